/* Line charts as SVG: a title, axes with round numbers, lines with a legend, values under the pointer.
 *   lines: [{ name, colour: () => css, points: [[x, y], ...], band: [[x, lo, hi], ...], dashed, dots }] */
const chart = ({
	title,
	lines,
	x_name,
	y_format,
	x_format = (x) => String(x),
	log = false,
	zero = false,
	height = 230,
	whole = false
}) => {
	const width = 640, left = 62, right = 14, top = 10, bottom = 34;
	const all = lines.flatMap((l) => [...l.points.map((p) => p[1]),
					  ...(l.band || []).flatMap((b) => [b[1], b[2]])])
			    .filter((y) => y != null && isFinite(y) && (!log || y > 0));
	const xs = lines.flatMap((l) => l.points.map((p) => p[0]));
	if (!all.length) return null;
	let lo = all.reduce((a, b) => Math.min(a, b)), hi = all.reduce((a, b) => Math.max(a, b));
	let x0 = xs.reduce((a, b) => Math.min(a, b)), x1 = xs.reduce((a, b) => Math.max(a, b));
	if (zero) lo = Math.min(0, lo);
	if (hi === lo) {
		hi += Math.abs(hi) * 0.1 || 1;
		lo -= zero ? 0 : Math.abs(lo) * 0.1 || 1;
	}
	if (!log) {
		const pad = (hi - lo) * 0.06;
		hi += pad;
		if (!zero || lo < 0) lo -= pad;
	}
	if (x1 === x0) {
		x0 -= 0.5;
		x1 += 0.5;
	}
	const f = log ? Math.log10 : (y) => y;
	const px = (x) => left + (x - x0) / (x1 - x0) * (width - left - right);
	const py = (y) => height - bottom - (f(y) - f(lo)) / (f(hi) - f(lo)) * (height - top - bottom);
	const good = (p) => p[1] != null && isFinite(p[1]) && (!log || p[1] > 0);
	const root = svg('svg',
		{class: 'chart', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title});
	let y_marks = ticks(lo, hi, 5);
	if (log) {
		y_marks = [];
		for (let k = Math.floor(f(lo)); k <= f(hi); k++)
			y_marks.push(...(f(hi) - f(lo) < 2 ? [1, 2, 5] : [1]).map((m) => m * 10 ** k));
		y_marks = y_marks.filter((y) => y >= lo && y <= hi);
		if (y_marks.length < 2) y_marks = ticks(lo, hi, 4).filter((y) => y > 0);
	}
	for (const y of y_marks)
		root.append(
			svg('line', {class: 'grid', x1: left, x2: width - right, y1: py(y), y2: py(y)}),
			svg('text', {x: left - 8, y: py(y) + 4, 'text-anchor': 'end'}, y_format(y)));
	for (const x of ticks(x0, x1, 7).filter((t) => !whole || Number.isInteger(t)))
		root.append(svg('text', {x: px(x), y: height - bottom + 17, 'text-anchor': 'middle'},
			x_format(x)));
	root.append(svg('text', {x: width - right, y: height - 3, 'text-anchor': 'end'}, x_name));
	const cross = svg('line', {class: 'cross', y1: top, y2: height - bottom, visibility: 'hidden'});
	for (const l of lines) {
		const points = l.points.filter(good), draw = [];
		if (l.band)
			draw.push(svg('path', {
				stroke: 'none',
				'fill-opacity': 0.18,
				d: 'M' +
					l.band.map(([x, , h]) => `${px(x).toFixed(1)},${py(h).toFixed(1)}`)
						.join('L') +
					'L' +
					l.band.slice()
						.reverse()
						.map(([x, b]) => `${px(x).toFixed(1)},${py(b).toFixed(1)}`)
						.join('L') +
					'Z'
			}));
		draw.push(svg('path', {
			fill: 'none',
			'stroke-width': 1.8,
			'stroke-linejoin': 'round',
			'stroke-dasharray': l.dashed ? '5 4' : null,
			d: points.length ? 'M' +
					points.map((p) => `${px(p[0]).toFixed(1)},${py(p[1]).toFixed(1)}`)
						.join('L')
					  : ''
		}));
		if (l.dots || points.length === 1)
			draw.push(...points.map((p) => svg('circle', {cx: px(p[0]), cy: py(p[1]), r: 3})));
		root.append(...draw);
		const colour = () => draw.forEach(
			(d) => d.setAttribute(d.tagName === 'circle' || d.getAttribute('stroke') === 'none'
					? 'fill'
					: 'stroke',
				l.colour()));
		colour();
		themed(colour);
	}
	root.append(cross);
	root.addEventListener('pointermove', (event) => {
		const box = root.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * width;
		const x = x0 + (at - left) / (width - left - right) * (x1 - x0);
		const near = (l) => l.points.reduce(
			(a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a, l.points[0]);
		const first = near(lines.reduce((a, b) => b.points.length > a.points.length ? b : a));
		if (!first) return;
		cross.setAttribute('x1', px(first[0]));
		cross.setAttribute('x2', px(first[0]));
		cross.setAttribute('visibility', 'visible');
		show_tip(event.clientX, event.clientY, [
			`${x_name} ${x_format(first[0])}`, ...lines.slice(0, 12).map((l) => {
				const p = near(l);
				return p && p[0] === first[0] && `${l.name}: ${y_format(p[1])}`;
			})
		]);
	});
	root.addEventListener('pointerleave', () => {
		hide_tip();
		cross.setAttribute('visibility', 'hidden');
	});
	const key = el('div', {class: 'legend'}, lines.length > 1 && lines.slice(0, 16).map((l) => {
		const s = swatch(l.colour());
		themed(() => { s.style.background = l.colour(); });
		return el('span', {}, s, l.name);
	}),
		lines.length > 16 && el('span', {}, `and ${lines.length - 16} more`));
	return el('div', {}, title && el('h3', {}, title), root, key);
};
