/* A canvas that is sharp on every screen, follows the theme, and can be zoomed and
 * moved by pointer, wheel and keys. */
const canvases = [];
const canvas = (label, height, draw) => {
	const c = el('canvas', {tabindex: 0, role: 'img', 'aria-label': label});
	const frame = el('div', {class: 'canvas'}, c);
	let asked = false;
	const self = {
		canvas: c,
		frame,
		width: 0,
		height: typeof height === 'number' ? height : 0,
		context: c.getContext('2d')
	};
	self.now = () => {
		asked = false;
		const ratio = theme.printing ? 3 : Math.min(devicePixelRatio || 1, 3),
		      w = Math.min(frame.clientWidth || 900, theme.printing ? 1000 : 1e5);
		const h = typeof height === 'number' ? height : height(w);
		self.width = w;
		self.height = h;
		if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) {
			c.width = Math.round(w * ratio);
			c.height = Math.round(h * ratio);
			c.style.height = `${h}px`;
		}
		self.context.setTransform(ratio, 0, 0, ratio, 0, 0);
		self.context.clearRect(0, 0, w, h);
		self.context.font = '12px system-ui, "DejaVu Sans", sans-serif';
		draw(self);
	};
	self.redraw = () => {
		if (!asked) {
			asked = true;
			requestAnimationFrame(() => asked && self.now());
		}
	};
	themed(() => self.width && self.now()); /* immediately: printing does not wait for a frame */
	new ResizeObserver(() => {
		if (frame.clientWidth !== self.width && !theme.printing) self.redraw();
	}).observe(frame);
	canvases.push(self);
	return self;
};

/* Panning and zooming of `view` = { x, y, scale_x, scale_y } of a canvas: pixels = world * scale + offset. */
const pan_zoom = (self, {view, clamp_view, vertical, click, hover, reset, key}) => {
	const c = self.canvas;
	c.classList.add('pan');
	const changed = () => {
		clamp_view();
		self.redraw();
	};
	const zoom = (factor, x = self.width / 2, y = self.height / 2) => {
		view.x = x - (x - view.x) * factor;
		view.scale_x *= factor;
		if (vertical) {
			view.y = y - (y - view.y) * factor;
			view.scale_y *= factor;
		}
		changed();
	};
	const pan = (dx, dy) => {
		view.x += dx;
		if (vertical) view.y += dy;
		changed();
	};
	let from = null, moved = 0;
	const place = (event) => {
		const b = c.getBoundingClientRect();
		return [event.clientX - b.left, event.clientY - b.top];
	};
	c.addEventListener('pointerdown', (event) => {
		from = place(event);
		moved = 0;
		c.setPointerCapture(event.pointerId);
	});
	c.addEventListener('pointermove', (event) => {
		const at = place(event);
		if (from) {
			moved += Math.abs(at[0] - from[0]) + Math.abs(at[1] - from[1]);
			pan(at[0] - from[0], at[1] - from[1]);
			from = at;
		}
		const lines = moved > 4 && from ? null : hover(at[0], at[1]);
		if (lines) show_tip(event.clientX, event.clientY, lines);
		else hide_tip();
	});
	c.addEventListener('pointerup', (event) => {
		if (from && moved <= 4 && click) click(...place(event));
		from = null;
	});
	c.addEventListener('pointerleave', () => { hide_tip(); });
	c.addEventListener('pointercancel', () => { from = null; });
	c.addEventListener('dblclick', (event) => zoom(event.shiftKey ? 0.5 : 2, ...place(event)));
	c.addEventListener('wheel', (event) => { /* the page scrolls; with Ctrl,
			Shift or after a click into the picture it zooms */
		if (!event.ctrlKey && !event.shiftKey && document.activeElement !== c) return;
		event.preventDefault();
		zoom(Math.exp(-(event.deltaY || event.deltaX) * (event.deltaMode ? 0.05 : 0.002)),
			...place(event));
	}, {passive: false});
	c.addEventListener('keydown', (event) => {
		if (event.altKey || event.ctrlKey || event.metaKey) return;
		const step = event.shiftKey ? 0.5 : 0.1;
		const keys = {
			'+': () => zoom(1.5),
			'=': () => zoom(1.5),
			'-': () => zoom(1 / 1.5),
			'0': reset,
			Home: reset,
			ArrowLeft: () => pan(self.width * step, 0),
			ArrowRight: () => pan(-self.width * step, 0),
			...(vertical ? {
				ArrowUp: () => pan(0, self.height * step),
				ArrowDown: () => pan(0, -self.height * step)
			}
				     : {}),
		};
		const act = (key && key(event)) || keys[event.key];
		if (!act) return;
		event.preventDefault();
		act();
	});
	return {
		zoom,
		pan,
		buttons: [
			el('button', {
				type: 'button',
				title: 'zoom in (+)',
				'aria-label': 'zoom in',
				onclick: () => zoom(1.5)
			},
				'+'),
			el('button', {
				type: 'button',
				title: 'zoom out (-)',
				'aria-label': 'zoom out',
				onclick: () => zoom(1 / 1.5)
			},
				'\u2212'),
			el('button', {type: 'button', title: 'all of it (0)', onclick: reset}, 'fit')
		],
	};
};
const toggle = (text, pressed, changed, title) => {
	const b = el('button', {
		type: 'button',
		'aria-pressed': String(pressed),
		title,
		onclick: () => {
			const on = b.getAttribute('aria-pressed') !== 'true';
			b.setAttribute('aria-pressed', String(on));
			changed(on);
		}
	},
		text);
	return b;
};
const keys_hint = (...pairs) => el('p', {class: 'hint'},
	pairs.map(([keys, what]) => [keys.map((k) => [el('kbd', {}, k), ' ']), what, '\u2003']));
