/* The time-line: a row per node and source, prediction above measurement. One unit along x is the longer
 * of the two, or each of them if they have scales of their own. Computation fills the row; a wait is a
 * thin bar in its kind's colour. */
const read_timeline = (t) => {
	if (!t) return null;
	const tick = t.tick_s,
	      line = {name: t.name, end: t.end * tick, joined: t.joined, left_out: t.sendings_left_out};
	line.lanes = t.spans.map((flat, node) => {
		const n = flat.length / 5, lane = {
			node,
			n,
			op: new Int32Array(n),
			m: new Int32Array(n),
			more: new Int32Array(n),
			again: new Uint8Array(n),
			start: new Float64Array(n),
			end: new Float64Array(n),
			busy: 0
		};
		for (let i = 0, now = 0; i < n; i++) {
			const from = now + flat[5 * i + 2];
			now = from + flat[5 * i + 3];
			lane.op[i] = flat[5 * i];
			lane.m[i] = flat[5 * i + 1];
			lane.again[i] = flat[5 * i + 4] < 0;
			lane.more[i] = lane.again[i] ? -flat[5 * i + 4] - 1 : flat[5 * i + 4];
			lane.start[i] = from * tick;
			lane.end[i] = now * tick;
			lane.busy += lane.end[i] - lane.start[i];
		}
		const gaps = t.gaps[node];
		lane.gaps = [];
		for (let i = 0; i < gaps.length; i += 4)
			lane.gaps.push({
				kind: gaps[i],
				peer: gaps[i + 1],
				start: gaps[i + 2] * tick,
				end: (gaps[i + 2] + gaps[i + 3]) * tick
			});
		return lane;
	});
	line.sendings = [];
	for (let i = 0; i < t.sendings.length; i += 7) {
		const [from, to, tensor, m, start, end, size] = t.sendings.slice(i, i + 7);
		line.sendings.push(
			{from, to, tensor, m, start: start * tick, end: end * tick, bytes: size});
	}
	return line;
};
const predicted = read_timeline(data.predicted), measured = read_timeline(data.measured);

const op_name = (op) => data.ops ? data.ops.name[op] : `op ${op}`;
const op_phase = (op) => data.ops && op < data.ops.phase.length ? data.ops.phase[op] : 0;
const wait_colour = (kind) => kind < 0 ? palette.other : palette[waits[kind]];
/* First i whose list[i] is greater than x. */
const after = (list, x) => {
	let lo = 0, hi = list.length;
	while (lo < hi) {
		const mid = (lo + hi) >> 1;
		if (list[mid] > x) hi = mid;
		else lo = mid + 1;
	}
	return lo;
};

const timeline_section = () => {
	const sources = [predicted, measured].filter(Boolean);
	if (!sources.length) return null;
	const label_width = 118, lane_height = 20, between = 9, axis_height = 24,
	      far = sources.length === 2 &&
		Math.max(predicted.end, measured.end) > 2.5 * Math.min(predicted.end, measured.end);
	let own = far, arrows = data.transfers, shown = new Set(sources);
	const view = {x: 0, scale_x: 1, fitted: true};
	const unit = (s) => own ? s.end : Math.max(...sources.map((t) => t.end));
	const plot = () => self.width - label_width - 12;
	const px = (s, time) => label_width + view.x + time / unit(s) * view.scale_x;
	const time_at = (s, x) => (x - label_width - view.x) / view.scale_x * unit(s);
	const visible = () => sources.filter((s) => shown.has(s));
	const rows = () => { /* position of each row */
		const list = [];
		let y = 6 + (own && visible().length === 2 ? axis_height : 0);
		for (const node of working_nodes) {
			for (const s of visible())
				if (s.lanes[node]) {
					list.push({s, node, y});
					y += lane_height + 2;
				}
			y += between;
		}
		list.bottom = y;
		return list;
	};
	const height = () => rows().bottom + axis_height + 4;

	const axis = (c, s, y, name) => {
		const from = Math.max(0, time_at(s, label_width)),
		      to = Math.min(unit(s), time_at(s, self.width));
		c.fillStyle = palette.soft;
		c.textAlign = 'right';
		if (name) c.fillText(name, label_width - 8, y + 15);
		c.textAlign = 'center';
		for (const t of ticks(from, to, Math.max(2, Math.floor(plot() / 110)))) {
			c.fillRect(px(s, t), y, 1, 4);
			if (px(s, t) > label_width - 1)
				c.fillText(t === 0 ? '0' : seconds(t), Math.min(px(s, t), self.width - 32),
					y + 15);
		}
	};
	const draw_lane = (c, {s, node, y}) => {
		const lane = s.lanes[node], lo = time_at(s, label_width), hi = time_at(s, self.width);
		c.fillStyle = palette.card;
		c.fillRect(px(s, 0), y, s.end / unit(s) * view.scale_x, lane_height);
		for (const g of lane.gaps) {
			if (g.end < lo || g.start > hi) continue;
			const x = px(s, g.start), w = px(s, g.end) - x;
			if (w < 0.3) continue;
			c.fillStyle = wait_colour(g.kind);
			c.globalAlpha = g.kind < 0 ? 0.35 : 0.9;
			c.fillRect(x, y + lane_height / 2 - 2.5, w, 5);
		}
		for (let i = after(lane.end, lo), j; i < lane.n && lane.start[i] < hi; i = j) {
			const phase = op_phase(lane.op[i]), odd = lane.m[i] > 0 && lane.m[i] % 2;
			let end = px(s, lane.end[i]);
			const x = px(s, lane.start[i]);
			for (j = i + 1; end - x < 3 + (end - px(s, lane.start[j - 1]) < 1.5 ? 1e9 : 0) &&
				j < lane.n && lane.m[j] === lane.m[i] && op_phase(lane.op[j]) === phase &&
				px(s, lane.start[j]) - end < 0.4 &&
				px(s, lane.end[j]) - px(s, lane.start[j]) < 1.5;
				j++)
				end = px(s, lane.end[j]);
			const w = end - x;
			c.fillStyle = palette[phases[phase]];
			c.globalAlpha = odd ? 0.68 : 1;
			c.fillRect(x, y, Math.max(w > 3 ? w - 0.4 : w, 0.4), lane_height);
			if (w > 20) {
				c.globalAlpha = 1;
				c.fillStyle = is_dark() ? '#0b0d11' : '#ffffff';
				c.textAlign = 'center';
				const name = w > 90 && j === i + 1
					? base_name(op_name(lane.op[i])).slice(0, Math.floor((w - 12) / 7))
					: lane.m[i] < 0 ? ''
							: String(lane.m[i]);
				const from = Math.max(x, label_width), to = Math.min(x + w, self.width);
				if (name && to - from > 20) c.fillText(name, (from + to) / 2, y + 14);
			}
		}
		c.globalAlpha = 1;
	};
	const arrow = (c, x0, y0, x1, y1) => {
		const angle = Math.atan2(y1 - y0, x1 - x0), head = 5;
		c.moveTo(x0, y0);
		c.lineTo(x1, y1);
		c.moveTo(x1 - head * Math.cos(angle - 0.45), y1 - head * Math.sin(angle - 0.45));
		c.lineTo(x1, y1);
		c.lineTo(x1 - head * Math.cos(angle + 0.45), y1 - head * Math.sin(angle + 0.45));
	};
	const ends_of = (list, s, x) => { /* pixels of a message's arrow, from row edge to row edge */
		const from = list.find((r) => r.s === s && r.node === x.from),
		      to = list.find((r) => r.s === s && r.node === x.to);
		if (!from || !to) return null;
		const down = to.y > from.y;
		return [
			px(s, x.start), from.y + (down ? lane_height : 0), px(s, Math.max(x.end, x.start)),
			to.y + (down ? 0 : lane_height)
		];
	};
	const draw = (me) => {
		const c = me.context, list = rows();
		if (view.fitted) {
			view.x = 0;
			view.scale_x = plot();
		}
		c.save();
		c.beginPath();
		c.rect(label_width, 0, me.width - label_width, me.height);
		c.clip();
		for (const row of list) draw_lane(c, row);
		if (arrows) {
			c.strokeStyle = palette.arrow;
			c.lineWidth = 0.8;
			c.beginPath();
			for (const s of visible()) {
				let n = 0;
				for (const x of s.sendings) {
					const e = ends_of(list, s, x);
					if (!e || Math.max(e[0], e[2]) < label_width ||
						Math.min(e[0], e[2]) > me.width || n++ > 3000)
						continue;
					arrow(c, ...e);
				}
			}
			c.stroke();
		}
		c.restore();
		for (const [i, row] of list.entries()) {
			const first = !i || list[i - 1].node !== row.node;
			c.textAlign = 'left';
			c.fillStyle = palette.ink;
			if (first) {
				c.fillStyle = node_colour(row.node);
				c.fillRect(8, row.y, 4, visible().length * (lane_height + 2) - 2);
				c.fillStyle = palette.ink;
				c.fillText(String(row.node), 18, row.y + 14);
			}
			c.fillStyle = palette.soft;
			c.textAlign = 'right';
			c.fillText(row.s.name, label_width - 8, row.y + 14);
		}
		if (own && visible().length === 2) {
			axis(c, predicted, 2, predicted.name);
			axis(c, measured, list.bottom - 3, measured.name);
		} else axis(c, visible()[0] || sources[0], list.bottom - 3, null);
		if (view.scale_x > plot() * 1.01) { /* visible part of the step */
			c.fillStyle = palette.faint;
			c.fillRect(label_width + -view.x / view.scale_x * plot(), me.height - 3,
				plot() * plot() / view.scale_x, 3);
		}
	};
	const self = canvas(
		'time-lines of the nodes; the table of busy and waiting time below has their sums', height,
		draw);

	const find = (x, y) => {
		const row = rows().find((r) => y >= r.y && y < r.y + lane_height);
		if (!row || x < label_width) return null;
		const lane = row.s.lanes[row.node], t = time_at(row.s, x),
		      slack = 1.5 / view.scale_x * unit(row.s);
		let i = after(lane.end, t);
		if (!(i < lane.n && lane.start[i] <= t))
			i = i < lane.n && lane.start[i] - t < slack    ? i
				: i > 0 && t - lane.end[i - 1] < slack ? i - 1
								       : -1;
		return {...row, lane, i, t};
	};
	const hover = (x, y) => {
		if (arrows) {
			const list = rows();
			for (const s of visible())
				for (const v of s.sendings.slice(0, 3000)) {
					const e = ends_of(list, s, v);
					if (!e || x < Math.min(e[0], e[2]) - 3 ||
						x > Math.max(e[0], e[2]) + 3 || y < Math.min(e[1], e[3]) ||
						y > Math.max(e[1], e[3]))
						continue;
					const length = Math.hypot(e[2] - e[0], e[3] - e[1]) || 1;
					if (Math.abs(
						    (e[2] - e[0]) * (e[1] - y) - (e[0] - x) * (e[3] - e[1])) /
							length <
						3)
						return [
							data.tensors.name[v.tensor],
							`${bytes(v.bytes)} from node ${v.from} to node ${
								v.to}${
								v.m >= 0 ? `, micro-batch ${v.m}` : ''}`,
							`made at ${seconds(v.start)}, read at ${
								seconds(v.end)}`
						];
				}
		}
		const at = find(x, y);
		if (!at) return null;
		const {s, lane, i, t} = at;
		if (i >= 0)
			return [
				op_name(lane.op[i]) + (lane.more[i] ? ` and ${lane.more[i]} more` : ''),
				`${data.ops ? data.ops.types[data.ops.type[lane.op[i]]] + ', ' : ''}${
					phases[op_phase(lane.op[i])]}${lane.again[i] ? ', again' : ''}${
					lane.m[i] >= 0 ? `, micro-batch ${lane.m[i]}` : ''}`,
				`node ${at.node}, ${s.name}: ${seconds(lane.end[i] - lane.start[i])}, from ${
					seconds(lane.start[i])} to ${seconds(lane.end[i])}`
			];
		const g = lane.gaps.find((k) => k.start <= t && t < k.end);
		return g && [
			g.kind < 0 ? 'copying, other' : waits[g.kind],
			g.peer >= 0 && `waits for node ${g.peer}`,
			`node ${at.node}, ${s.name}: ${seconds(g.end - g.start)}, from ${
				seconds(g.start)} to ${seconds(g.end)}`
		];
	};
	const clamp_view = () => {
		view.fitted = false;
		view.scale_x = clamp(view.scale_x, plot(), plot() * 1e5);
		view.x = clamp(view.x, plot() - view.scale_x, 0);
		if (view.scale_x <= plot() * 1.0001) view.fitted = true;
	};
	const moves = pan_zoom({...self, get width() { return self.width - label_width; }}, {
		view: {
			get x() { return view.x + label_width; },
			set x(v) { view.x = v - label_width; },
			get scale_x() { return view.scale_x; },
			set scale_x(v) { view.scale_x = v; }
		},
		clamp_view,
		hover,
		reset: () => {
			view.fitted = true;
			self.redraw();
		},
		click: (x, y) => {
			const at = find(x, y);
			if (at && at.i >= 0) select_op(at.lane.op[at.i], true);
		},
	});
	const tools = [];
	if (sources.length === 2) {
		for (const s of sources)
			tools.push(toggle(s.name, true, (on) => {
				if (on) shown.add(s);
				else shown.delete(s);
				self.redraw();
			}, `show the ${s.name} time-line`));
		tools.push(toggle('own scales', own, (on) => {
			own = on;
			view.fitted = true;
			self.redraw();
		}, 'each time-line fills the width'));
	}
	if (sources.some((s) => s.sendings.length))
		tools.push(toggle('transfers', arrows, (on) => {
			arrows = on;
			self.redraw();
		}, 'arrows from the op that makes a tensor to the first that reads it on another node'));
	const kinds = new Set(sources.flatMap((s) => s.lanes.flatMap((l) => l.gaps.map((g) => g.kind))));
	const key = el('div', {});
	themed(() => key.replaceChildren(legend(...phases.map((p) => [palette[p], p]),
		       ...waits.flatMap((w, k) => kinds.has(k) ? [[ palette[w], `waits: ${w}`] ] : []),
		       ...(kinds.has(-1) ? [[ palette.other, 'copying, other'] ] : []))));
	const left_out = sum(sources.map((s) => s.left_out));
	return section('timeline', 'Time-line of a step',
		[sources.map((s) => `${s.name} ${seconds(s.end)}`).join(', ')],
		[...tools, ...moves.buttons], self.frame, key,
		idle_line() && el('p', {class: 'note'}, idle_line()),
		far &&
			el('p', {class: 'note'},
				`${
					digits(measured.end / predicted.end,
						2)} times the predicted time: each has a scale of its own until "own scales" is off.`),
		sources.some((s) => s.joined) &&
			el('p', {class: 'note'},
				'Ops that follow one another closely are drawn as one: there are more than fit a page.'),
		left_out > 0 &&
			el('p', {class: 'note'},
				`The largest transfers are shown; ${count(left_out)} smaller ones are not.`),
		keys_hint([[ '+', '\u2212'], 'zoom'], [[ '\u2190', '\u2192'], 'move'],
			[[ '0'], 'all of it'], [[ 'drag'], 'moves'], [[ 'Ctrl', 'wheel'], 'zooms'],
			[[ 'click'], 'an op: why it is there']));
};
