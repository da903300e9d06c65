/* The memory plan: instructions of a node's program along x, bytes along y. Permanent memory is at the
 * bottom, at a smaller scale if the rest would be too small. */
const memory_section = () => {
	if (!data.memory) return null;
	const peak = (m) => m.state + m.scratch + m.arena;
	const nodes = working_nodes.filter((i) => data.memory[i]);
	if (!nodes.length) return null;
	const panel = (node) => {
		const m = data.memory[node], kept = m.state + m.scratch, left = 78, right = 12, bottom = 24,
		      height = 230, plot_height = height - bottom - 6;
		const cut = m.arena > 0 && kept * plot_height / peak(m) > 70,
		      kept_px = cut ? 36 : kept / (peak(m) || 1) * plot_height;
		const per_byte = m.arena > 0 ? (plot_height - kept_px) / m.arena : 0,
		      view = {x: 0, scale_x: 1, fitted: true};
		const plot = () => self.width - left - right, base = height - bottom;
		const px = (i) => left + view.x + i / (m.instructions || 1) * view.scale_x;
		const py = (b) => base -
			(b <= kept ? (kept ? b / kept * kept_px : 0) : kept_px + (b - kept) * per_byte);
		const rects = [];
		for (let i = 0; i < m.places.length; i += 8) {
			const [tensor, life, cls, copies, offset, size, first, last] = m.places.slice(
				i, i + 8);
			const again = life >= m.micro_batches, batch = again ? life - m.micro_batches : life;
			const stretches = copies > 1 ? [[ 0, m.instructions] ]
				: last < first	     ? [[ 0, last], [first, m.instructions] ]
						     : [[ first, last] ];
			for (const [from, to] of stretches)
				rects.push({
					tensor,
					batch,
					again,
					cls,
					copies,
					from,
					to,
					low: kept + offset,
					high: kept + offset + size,
					size
				});
		}
		const
			draw =
				(me) => {
					const c = me.context;
					if (view.fitted) {
						view.x = 0;
						view.scale_x = plot();
					}
					c.save();
					c.beginPath();
					c.rect(left, 0, me.width - left - right, height);
					c.clip();
					c.fillStyle = palette['held-0'];
					c.fillRect(left, py(m.state), plot(), base - py(m.state));
					c.fillStyle = palette['held-1'];
					c.fillRect(left, py(kept), plot(), py(m.state) - py(kept));
					for (const r of rects) {
						const x = px(r.from), w = px(r.to) - x, h = r.size * per_byte;
						if (x + w < left || x > me.width) continue;
						c.fillStyle = palette[`held-${r.cls}`];
						c.globalAlpha = r.batch > 0 && r.batch % 2 ? 0.7 : 1;
						c.fillRect(x, py(r.high),
							Math.max(w - (w > 3 ? 0.6 : 0), 0.5),
							Math.max(h - (h > 3 ? 0.6 : 0), 0.4));
					}
					c.globalAlpha = 1;
					c.strokeStyle = palette.ink;
					c.lineWidth = 1.2;
					c.beginPath();
					for (let i = 0; i < m.alive.length; i += 2) {
						const y = py(kept + m.alive[i + 1]),
						      next = i + 2 < m.alive.length ? m.alive[i + 2]
										    : m.instructions;
						if (i) c.lineTo(px(m.alive[i]), y);
						else c.moveTo(px(m.alive[i]), y);
						c.lineTo(px(next), y);
					}
					c.stroke();
					c.setLineDash([6, 4]);
					c.beginPath();
					c.moveTo(left, py(kept + m.bound));
					c.lineTo(me.width, py(kept + m.bound));
					c.stroke();
					c.setLineDash([]);
					if (cut) {
						c.strokeStyle = palette.well;
						c.lineWidth = 3;
						c.beginPath();
						for (let x = left, k = 0; x <= me.width; x += 12, k++)
							c.lineTo(x, base - kept_px / 2 + (k % 2 ? -3 : 3));
						c.stroke();
					}
					c.restore();
					c.fillStyle = palette.soft;
					c.textAlign = 'right';
					for (const b of cut ? [kept, ...[1, 2,
						3].map((k) => kept + m.arena * k / 3)] : ticks(0, peak(m),
						4)) {
						c.fillText(bytes(b), left - 9, py(b) + 4);
						c.fillRect(left - 5, py(b), 5, 1);
					}
					c.textAlign = 'left';
					c.fillText('instruction 0', left, height - 7);
					c.textAlign = 'right';
					c.fillText(String(m.instructions), me.width - right, height - 7);
				};
		const self = canvas(`memory plan of node ${node}: ${bytes(peak(m))} at most`, height, draw);
		pan_zoom({...self, get width() { return self.width - left - right; }}, {
			view: {
				get x() { return view.x + left; },
				set x(v) { view.x = v - left; },
				get scale_x() { return view.scale_x; },
				set scale_x(v) { view.scale_x = v; }
			},
			clamp_view: () => {
				view.scale_x = clamp(view.scale_x, plot(), plot() * 1e4);
				view.x = clamp(view.x, plot() - view.scale_x, 0);
				view.fitted = view.scale_x <= plot() * 1.0001;
			},
			reset: () => {
				view.fitted = true;
				self.redraw();
			},
			hover: (x, y) => {
				const r = rects.findLast((k) => x >= px(k.from) && x <= px(k.to) &&
						y >= py(k.high) && y <= py(k.low));
				if (r)
					return [
						data.tensors.name[r.tensor],
						`${held[r.cls]}, ${bytes(r.size)}${
							r.copies > 1 ? `, ${r.copies} copies` : ''}${
							r.batch >= 0 ? `, micro-batch ${r.batch}` : ''}${
							r.again ? ', computed again' : ''}`,
						`instructions ${r.from} to ${r.to}`
					];
				return y > py(m.state) && y < base ? [held[0], bytes(m.state)]
					: y > py(kept) && y < base ? [held[1], bytes(m.scratch)]
								   : null;
			},
		});
		const over = m.bound ? 100 * (m.arena / m.bound - 1) : 0;
		return el('div', {},
			el('h3', {}, node_swatch(node),
				` node ${node}: at most ${bytes(peak(m))}; ${bytes(kept)} stay, arena ${
					bytes(m.arena)}, ${digits(over, 2)} % over the most alive`),
			self.frame,
			m.left_out > 0 &&
				el('p', {class: 'note'},
					`The largest places are drawn; ${
						count(m.left_out)} smaller ones are not.`));
	};
	const holder = el('div', {class: 'two'}), most = 8;
	const fill = (list) => holder.replaceChildren(...list.map(panel));
	fill(nodes.slice(0, most));
	const pages = [];
	for (let i = 0; i < nodes.length; i += most) pages.push(nodes.slice(i, i + most));
	const tools = pages.length > 1
		? [el('select', {'aria-label': 'nodes', onchange: (e) => { fill(pages[e.target.value]); }},
			  pages.map((p, i) => el('option', {value: i}, `nodes ${ranges(p)}`)))]
		: null;
	const key = el('div', {});
	themed(() => key.replaceChildren(legend(...held.map((h, i) => [palette[`held-${i}`], h]),
		       [palette.ink, 'line: alive; dashed: the most alive'])));
	return section('memory', 'Memory', 'planned, node by node', tools, holder, key,
		idle_line() && el('p', {class: 'note'}, idle_line()));
};
