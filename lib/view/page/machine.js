/* The cluster: nested groups, as links join them, with nodes in their colours. */
const machine_section = () => {
	const c = data.cluster;
	if (!c) return null;
	const link = (i) => i >= 0 && c.links[i]
		? `${c.links[i].name}: ${
			  c.links[i].bandwidth_Bps != null ? `${bytes(c.links[i].bandwidth_Bps)}/s`
							   : '\u2013'}, ${seconds(c.links[i].latency_s)}`
		: null;
	const node = (i) => {
		const n = c.nodes[i], d = data.nodes[i] || {}, b = data.balance;
		const e = el('div', {class: 'machine-node'}, el('span', {class: 'who'}, `node ${i}`),
			el('div', {},
				c.kinds[n.kind].name + (n.speed !== 1 ? `, speed ${digits(n.speed)}` : '')),
			el('div', {class: 'note'}, n.memory_bytes != null && bytes(n.memory_bytes)),
			d.plan &&
				el('div', {class: 'note'},
					d.idle ? 'no work' : `busy ${seconds((d.report || d.plan).busy_s)}`),
			b && b.weights[i] != null &&
				el('div', {class: 'note'}, `weight ${digits(b.weights[i])}`));
		themed(() => { e.style.borderLeftColor = d.idle ? palette.line : node_colour(i); });
		return e;
	};
	const most = 64;
	const group = (g) => {
		const inside = c.nodes.map((n, i) => n.group === g ? i : -1).filter((i) => i >= 0);
		const memories = c.memories.filter((m) => m.group === g)
					 .map((m) => `${m.name}${m.count > 1 ? ` \u00d7 ${m.count}` : ''}${
						      m.bytes ? ` ${bytes(m.bytes)}` : ''}`);
		return el('div', {class: 'box'},
			el('div', {class: 'title'}, el('b', {}, c.groups[g].name || `group ${g}`),
				c.groups[g].class && c.groups[g].class !== c.groups[g].name
					? ` (${c.groups[g].class})`
					: '',
				link(c.groups[g].inside) && ` \u2013 inside by ${link(c.groups[g].inside)}`,
				link(c.groups[g].up) && ` \u2013 up by ${link(c.groups[g].up)}`,
				memories.length > 0 && ` \u2013 memory ${memories.join(', ')}`),
			el('div', {class: 'inner'},
				c.groups.map((x, i) => x.parent === g && i !== g ? group(i) : null),
				inside.slice(0, most).map(node),
				inside.length > most &&
					el('div', {class: 'note'},
						`and ${inside.length - most} more nodes`)));
	};
	const roots = c.groups.map((x, i) => x.parent < 0 ? group(i) : null);
	const loose = c.nodes.map((n, i) => n.group < 0 ? i : -1).filter((i) => i >= 0);
	return section('machine', 'Machine',
		`${plural(c.nodes.length, 'node')}, ${plural(c.kinds.length, 'kind')} of device, ${
			plural(c.groups.length, 'group')}`,
		null, roots, loose.length > 0 && el('div', {class: 'inner'}, loose.slice(0, most).map(node)),
		el('div', {class: 'two'},
			el('div', {}, el('h3', {}, 'Kinds of device'),
				table(
					[
						'kind', 'back end', '#threads', '#peak', '#memory bandwidth',
						'no kernels for'
					],
					c.kinds.map(
						(k) => [k.name, k.backend || '', String(k.threads),
							k.peak_flops ? `${flop(k.peak_flops)}/s` : '\u2013',
							k.bandwidth_Bps ? `${bytes(k.bandwidth_Bps)}/s`
									: '\u2013',
							k.without.join(', ')]))),
			el('div', {}, el('h3', {}, 'Links'),
				table(['link', 'class', '#latency', '#bandwidth', ''],
					c.links.slice(0, 64).map(
						(l) => [l.name, l.class || '', seconds(l.latency_s),
							l.bandwidth_Bps != null
								? `${bytes(l.bandwidth_Bps)}/s`
								: '\u2013',
							[
								l.duplex && 'each way',
								!l.overlap && 'the sender copies'
							].filter(Boolean)
								.join(', ')])),
				c.links.length > 64 &&
					el('p', {class: 'note'}, `and ${c.links.length - 64} more links`))));
};
