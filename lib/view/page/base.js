'use strict';
/* The page of dlb-view -f html. The Makefile joins the files of this folder into one script, in its order;
 * this file has the data and the functions shared by all: elements, numbers with units, colours, theme,
 * tooltip. Text of the document enters the page as text (textContent, fillText), never as markup. */

const data = JSON.parse(document.getElementById('document').textContent);
const failures = []; /* exceptions of sections; the page lists them at its end */

/* ---- elements ---- */
const make = (ns, tag, attributes, children) => {
	const e = ns ? document.createElementNS(ns, tag) : document.createElement(tag);
	for (const [k, v] of Object.entries(attributes || {})) {
		if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
		else if (k === 'style') Object.assign(e.style, v);
		else if (v !== false && v != null) e.setAttribute(k, v === true ? '' : v);
	}
	for (const c of children.flat(9))
		if (c != null && c !== false) e.append(c);
	return e;
};
const el = (tag, attributes, ...children) => make(null, tag, attributes, children);
const svg = (tag, attributes, ...children) => make('http://www.w3.org/2000/svg', tag, attributes, children);
const sum = (list) => list.reduce((a, b) => a + b, 0);
const clamp = (x, lo, hi) => Math.max(lo, Math.min(hi, x));
const base_name = (path) => (path || '').replace(/.*\//, '');
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

/* ---- numbers with units, three significant digits ---- */
const digits = (x, n = 3) => {
	if (x == null || !isFinite(x)) return '\u2013';
	if (x === 0) return '0';
	const a = Math.abs(x);
	return a >= 1e5 || a < 1e-4 ? x.toExponential(n - 1)
				    : String(+x.toPrecision(Math.max(n, Math.floor(Math.log10(a)) + 1)));
};
const with_unit = (x, units) => {
	if (x == null || !isFinite(x)) return '\u2013';
	const [size, unit] = units.find(([s]) => Math.abs(x) >= s * 0.9995) || units[units.length - 1];
	return `${x === 0 ? 0 : +(x / size).toPrecision(3)} ${unit}`;
};
const seconds = (x) => x === 0 ? '0 s' : with_unit(x, [
	[86400, 'd'], [3600, 'h'], [1, 's'], [1e-3, 'ms'], [1e-6, '\u00b5s'], [1e-9, 'ns']
]);
const bytes = (x) => with_unit(
	x, [[ 1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [1, 'B'] ]);
const flop = (x) => with_unit(x, [
	[1e15, 'PFLOP'], [1e12, 'TFLOP'], [1e9, 'GFLOP'], [1e6, 'MFLOP'], [1e3, 'kFLOP'],
	[1, 'FLOP']
]);
const rate = (x) => x >= 1e4 ? with_unit(x, [[ 1e6, 'million'], [1e3, 'thousand'] ]) : digits(x, 4);
const count = (x) => x >= 1e5 ? with_unit(x, [[ 1e9, 'G'], [1e6, 'M'], [1e3, 'k'] ]).replace(' ', '')
			      : String(x);
const percent = (x) => x == null || !isFinite(x) ? '\u2013' : `${digits(100 * x)} %`;
const change = (now, then) => !(then > 0)
	? ''
	: `${now >= then ? '+' : '\u2212'}${digits(Math.abs(now / then - 1) * 100, 2)} %`;

/* About n round numbers from lo to hi. */
const ticks = (lo, hi, n) => {
	const raw = (hi - lo) / n, unit = 10 ** Math.floor(Math.log10(raw)),
	      step = unit * [1, 2, 5, 10].find((k) => k * unit >= raw * 0.999);
	const list = [];
	if (!(step > 0) || !isFinite(step)) return list;
	for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++) list.push(i * step);
	return list;
};

/* ---- colours ---- */
const phases = ['forward', 'backward', 'update'];
const waits = ['starved', 'backpressure', 'collective', 'structural'];
const held = [
	'weights and state', 'workspace', 'activations', 'gradients', 'weight gradients', 'samples',
	'from other nodes'
];
let palette = {};
const read_palette = () => {
	const style = getComputedStyle(document.documentElement);
	palette = new Proxy(
		{}, {get: (seen, name) => seen[name] ??= style.getPropertyValue(`--${name}`).trim()});
};
const is_dark = () => document.documentElement.dataset.theme === 'dark';
const hues = [212, 28, 152, 338, 52, 268, 186, 4, 98, 308];
const node_colour = (n) => {
	const hue = hues[n % hues.length] + 11 * Math.floor(n / hues.length);
	return is_dark() ? `hsl(${hue} 55% 60%)` : `hsl(${hue} 62% 46%)`;
};
const swatch = (colour) => el('i', {class: 'swatch', style: {background: colour}});
const node_swatch = (n) => {
	const s = swatch(node_colour(n));
	themed(() => { s.style.background = node_colour(n); });
	return s;
};
const legend = (...items) => el(
	'div', {class: 'legend'}, items.map(([colour, text]) => el('span', {}, swatch(colour), text)));

/* ---- theme: the reader's setting unless chosen; paper is light ---- */
const redraws = [];
const themed = (redraw) => {
	redraws.push(redraw);
	if (theme.started) redraw();
};
const theme = {
	choices: ['auto', 'light', 'dark'],
	chosen: 'auto',
	printing: false,
	started: false,
	system: matchMedia('(prefers-color-scheme: dark)'),
	apply() {
		const dark = !this.printing &&
			(this.chosen === 'dark' || (this.chosen === 'auto' && this.system.matches));
		document.documentElement.dataset.theme = dark ? 'dark' : 'light';
		read_palette();
		for (const redraw of redraws) redraw();
	},
	choose(what) {
		this.chosen = this.choices.includes(what) ? what : 'auto';
		try {
			localStorage.setItem('dlb-theme', this.chosen);
		} catch { /* a page opened from a file may have no storage */
		}
		this.apply();
	},
	start() {
		try {
			this.chosen = localStorage.getItem('dlb-theme') || 'auto';
		} catch { /* as above */
		}
		this.system.addEventListener('change', () => this.apply());
		addEventListener('beforeprint', () => {
			this.printing = true;
			this.apply();
		});
		addEventListener('afterprint', () => {
			this.printing = false;
			this.apply();
		});
		this.apply();
		this.started = true;
	},
};

/* ---- tooltip: lines of text, the first one bold ---- */
const tip = el('div', {class: 'tip', hidden: true, role: 'status'});
const show_tip = (x, y, lines) => {
	tip.replaceChildren(...lines.filter(Boolean).map((line, i) => el(i ? 'div' : 'b', {}, line)));
	tip.hidden = false;
	const w = tip.offsetWidth, h = tip.offsetHeight;
	tip.style.left = `${clamp(x + 14, 4, innerWidth - w - 6)}px`;
	tip.style.top = `${y + 18 + h > innerHeight ? y - h - 10 : y + 18}px`;
};
const hide_tip = () => { tip.hidden = true; };

/* ---- a section of the page ---- */
const sections = [];
const section = (id, title, note, tools, ...body) => {
	const s = el('section', {class: 'card', id, 'aria-labelledby': `${id}-title`},
		el('div', {class: 'head'}, el('h2', {id: `${id}-title`}, title),
			note && el('span', {class: 'note'}, note),
			tools && tools.length && el('div', {class: 'tools'}, tools)),
		body);
	sections.push({id, title, element: s});
	return s;
};
const table = (head, rows, attributes) => el('div', {class: 'scroll'},
	el('table', attributes || {},
		el('thead', {},
			el('tr', {},
				head.map((h) => el('th',
						 {scope: 'col', class: h.startsWith('#') ? 'num' : null},
						 h.replace('#', ''))))),
		el('tbody', {},
			rows.map(
				(r) => el('tr', {class: r.mark || null},
					(r.cells || r)
						.map((c, i) => el('td',
							     {class: head[i].startsWith('#') ? 'num' : null},
							     c)))))));
/* Formats ascending numbers as "0, 3-7". */
const ranges = (list) => {
	const out = [];
	for (let i = 0, j; i < list.length; i = j + 1) {
		for (j = i; j + 1 < list.length && list[j + 1] === list[j] + 1;) j++;
		out.push(j > i ? `${list[i]}\u2013${list[j]}` : `${list[i]}`);
	}
	return out.join(', ');
};
const idle_nodes = data.nodes.map((n, i) => n.idle ? i : -1).filter((i) => i >= 0);
const idle_line = () => idle_nodes.length
	? `${idle_nodes.length === 1 ? 'node' : 'nodes'} ${ranges(idle_nodes)}: no work`
	: null;
const working_nodes = data.nodes.map((n, i) => n.idle ? -1 : i).filter((i) => i >= 0);
