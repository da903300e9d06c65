/* Parts of each node's step: busy, waiting by kind, the rest; prediction above measurement, all on one
 * scale. */
const waits_section = () => {
	const nodes = working_nodes.map((i) => ({i, ...data.nodes[i]})).filter((n) => n.plan || n.report);
	if (!nodes.length) return null;
	const p = data.plan, r = data.report, name = r && (r.dry_run ? 'simulated' : 'measured');
	const p_step = p && p.value_s, r_step = r && r.step_s;
	const most = Math.max(p_step || 0, r_step || 0,
		...nodes.map((n) => Math.max(n.plan ? n.plan.busy_s : 0,
				     n.report ? n.report.busy_s + n.report.wait_s : 0)));
	const far = p_step && r_step && Math.max(p_step, r_step) > 2.5 * Math.min(p_step, r_step);
	const part = (colour, s, scale, what) => s > 0 && (() => {
		const e = el(
			'i', {style: {width: `${100 * s / scale}%`}, title: `${what}: ${seconds(s)}`});
		themed(() => { e.style.background = palette[colour]; });
		return e;
	})();
	/* The plan has no waits by kind, but the gaps of its time-line have kinds. */
	const foreseen = (node, kind) => predicted && predicted.lanes[node]
		? sum(predicted.lanes[node].gaps.filter((g) => g.kind === kind).map((g) => g.end - g.start))
		: 0;
	const structural = nodes.some((n) => n.report && n.report.waits_s[3] > 0);
	const bars = el('div', {class: 'bars'});
	for (const n of nodes) {
		const first = [el('span', {class: 'who'}, node_swatch(n.i), ` node ${n.i}`)];
		if (n.plan && p_step) {
			const scale = far ? p_step : most;
			bars.append(first.pop() || el('span'), el('span', {class: 'note'}, 'predicted'),
				el('div', {class: 'bar'}, part('busy', n.plan.busy_s, scale, 'busy'),
					waits.map((w, k) => part(w, foreseen(n.i, k), scale, w)),
					part('other', foreseen(n.i, -1), scale, 'copying, other')),
				el('span', {class: 'num'}, seconds(n.plan.busy_s)));
		}
		if (n.report) {
			const scale = far ? r_step : most, rest = r_step - n.report.busy_s - n.report.wait_s;
			bars.append(first.pop() || el('span'), el('span', {class: 'note'}, name),
				el('div', {class: 'bar'}, part('busy', n.report.busy_s, scale, 'busy'),
					waits.map((w, k) => part(w, n.report.waits_s[k], scale, w)),
					part('other', rest, scale, 'copying, other')),
				el('span', {class: 'num'}, seconds(n.report.busy_s)));
		}
		bars.append(el('div', {class: 'gap'}));
	}
	const key = el('div', {});
	themed(() => key.replaceChildren(legend([palette.busy, 'busy'],
		       ...waits.slice(0, structural ? 4 : 3).map((w) => [palette[w], `waits: ${w}`]),
		       [palette.other, 'copying, other'])));
	const head = ['node', ...(data.cluster ? ['kind', 'host'] : []), '#ops', ...(p
		? ['#predicted busy'] : []),
		...(r ? [`#${name} busy`, '#error', '#waits', ...waits.slice(0, 3).map((w) => `#${w}`),
			'#sent a step'] : []), '#peak memory'];
	const ops_of = (n) => data.ops && data.ops.node
		? data.ops.node.filter((d) => d === (n.plan ? n.plan.part : n.i)).length
		: '';
	const rows = nodes.map((n) => [el('span', {}, node_swatch(n.i), ` ${n.i}`),
		...(data.cluster ? [data.cluster.kinds[data.cluster.nodes[n.i].kind].name,
			data.cluster.nodes[n.i].host || ''] : []), String(ops_of(n)),
		...(p ? [seconds(n.plan && n.plan.busy_s)] : []),
		...(r ? n.report ? [seconds(n.report.busy_s), change(n.report.busy_s,
			n.report.predicted_busy_s || (n.plan && n.plan.busy_s)), seconds(n.report.wait_s),
			...waits.slice(0, 3).map((w, k) => seconds(n.report.waits_s[k])),
				bytes(n.report.bytes_sent)] : ['', '', '', '', '', '', ''] : []),
		bytes(n.report && n.report.peak_bytes ? n.report.peak_bytes : n.plan && n.plan.peak_bytes)]);
	return section('waits', 'Busy and waiting',
		far ? 'predicted and measured each on a scale of its own' : `a whole bar is ${seconds(most)}`,
		null, bars, key, idle_line() && el('p', {class: 'note'}, idle_line()),
		el('h3', {}, 'A step, node by node'), table(head, rows));
};
