/* The graph. Forward ops run down, one row per step of the longest path. A backward op is in the row
 * of its forward op, to the right, and updates are further right, so a training step reads down on the
 * left and up on the right. Deep graphs are cut into columns side by side. Click an op or type its
 * name to see why it is on its node. */
const box = {
	width: 148,
	height: 30,
	across: 164,
	down: 48,
	between: 26,
	columns: 70
};
let select_op = () => {};

const layout_graph = (aspect_width, aspect_height) => {
	const ops = data.ops, tensors = data.tensors, n = ops.name.length;
	const row = new Int32Array(n), place = new Float64Array(n), x = new Float64Array(n),
	      y = new Float64Array(n);
	const producers = (i) => ops.inputs[i].map((t) => tensors.producer[t]).filter((p) => p >= 0);
	for (let i = 0; i < n; i++) { /* ops are in topological order */
		const from = producers(i);
		if (ops.phase[i] === 0)
			row[i] = from.reduce((m, p) => ops.phase[p] === 0 ? Math.max(m, row[p] + 1) : m, 0);
		else if (ops.of[i] >= 0 && ops.of[i] < n) row[i] = row[ops.of[i]];
		else row[i] = from.length ? Math.min(...from.map((p) => row[p])) : 0;
	}
	const n_rows = row.reduce((a, b) => Math.max(a, b), 0) + 1, training = ops.phase.some((p) => p > 0);
	const rows = Array.from({length: n_rows}, () => [[], [], []]);
	for (let i = 0; i < n; i++) rows[row[i]][ops.phase[i]].push(i);
	const settle = (list, near) => { /* at the mean position of its neighbours */
		const key = new Map(list.map((i) => {
			const k = near(i);
			return [i, k.length ? sum(k.map((j) => place[j])) / k.length : place[i]];
		}));
		list.sort((a, b) => key.get(a) - key.get(b) || a - b);
		list.forEach((i, k) => {
			place[i] = training ? -list.length + k + 1 : k - (list.length - 1) / 2;
		});
	};
	const readers = Array.from({length: n}, () => []);
	for (let i = 0; i < n; i++)
		for (const p of producers(i)) readers[p].push(i);
	for (const [fw] of rows) settle(fw, () => []);
	for (let pass = 0; pass < 2 && n < 50000; pass++) {
		for (const [fw] of rows) settle(fw, (i) => producers(i));
		for (const [fw] of rows.slice().reverse())
			settle(fw, (i) => readers[i].filter((r) => ops.phase[r] === 0));
	}
	const left_of = rows.map(([fw]) => training ? fw.length * box.across : fw.length * box.across / 2);
	const right_of = rows.map(([fw, bw, up]) => training
			? box.between + (bw.length + up.length) * box.across + (up.length ? box.between : 0)
			: fw.length * box.across / 2);
	const columns_of = (k) => {
		const per = Math.ceil(n_rows / k), columns = [];
		let at = 0;
		for (let r = 0; r < n_rows; r += per) {
			const left = Math.max(...left_of.slice(r, r + per)),
			      right = Math.max(...right_of.slice(r, r + per));
			columns.push({first: r, left: at, axis: at + left, right: at + left + right});
			at += left + right + box.columns;
		}
		return {per, columns, width: at - box.columns, height: per * box.down};
	};
	let best = null;
	for (let k = 1; k <= 80 && k <= n_rows; k++) {
		const c = columns_of(k), scale = Math.min(aspect_width / c.width, aspect_height / c.height);
		if (!best || scale > best.scale * 1.02) best = {...c, scale};
		if (best.scale >= 0.8) break;
	}
	rows.forEach(([fw, bw, up], r) => {
		const column = best.columns[Math.floor(r / best.per)], top = (r - column.first) * box.down;
		fw.forEach((i) => {
			x[i] = column.axis +
				(training ? (place[i] - 1) * box.across : (place[i] - 0.5) * box.across);
			y[i] = top;
		});
		bw.forEach((i, k) => {
			x[i] = column.axis + box.between + k * box.across;
			y[i] = top;
		});
		up.forEach((i, k) => {
			x[i] = column.axis + 2 * box.between + (bw.length + k) * box.across;
			y[i] = top;
		});
	});
	return {x, y, row, rows, readers, producers, ...best};
};

/* Bytes that nodes exchange in a step of one replica: traffic[a][b]. */
const node_traffic = () => {
	const {ops, tensors} = data, traffic = data.nodes.map(() => new Map()), seen = new Set();
	if (!ops.node) return traffic;
	ops.inputs.forEach((list, i) => list.forEach((t) => {
		const p = tensors.producer[t], a = p < 0 ? -1 : ops.node[p], b = ops.node[i];
		if (a < 0 || a === b || seen.has(`${t},${b}`)) return;
		seen.add(`${t},${b}`);
		traffic[a].set(b, (traffic[a].get(b) || 0) + tensors.bytes[t]);
		traffic[b].set(a, (traffic[b].get(a) || 0) + tensors.bytes[t]);
	}));
	return traffic;
};

const why = data.why && {...data.why, steps: new Map(data.why.steps_s.map((s) => [s[0], s.slice(1)]))};
const work_of = (op, node) => why ? why.work_s[why.group[op] * why.classes + why.class[node]] : null;

/* Text on an op: what it is, why it is on its node, and the ops it is connected to. */
const op_panel = (op, traffic, select) => {
	const {ops, tensors} = data, here = ops.node ? ops.node[op] : null;
	const link = (i) => el('button', {type: 'button', onclick: () => select(i)}, ops.name[i]);
	const edge = (t, i, arrow) => el('li', {},
		ops.node && ops.node[i] !== here && node_swatch(ops.node[i]), ' ', arrow, ' ', link(i),
		el('span', {class: 'note'},
			` ${bytes(tensors.bytes[t])}${
				ops.node && ops.node[i] !== here ? `, node ${ops.node[i]}` : ''}`));
	const inputs = ops.inputs[op]
			       .filter((t) => tensors.producer[t] >= 0)
			       .map((t) => edge(t, tensors.producer[t], '\u2190'));
	const outputs = [];
	ops.inputs.forEach((list, i) => list.forEach((t) => {
		if (tensors.producer[t] === op) outputs.push(edge(t, i, '\u2192'));
	}));
	const bound = why
		? why.group.map((g, i) => g === why.group[op] && i !== op ? i : -1).filter((i) => i >= 0)
		: [];
	const list = (title, items) => items.length > 0 && [
		el('h3', {}, title), el('ul', {class: 'linklist'}, items.slice(0, 24)),
		items.length > 24 && el('p', {class: 'note'}, `and ${items.length - 24} more`)
	];
	const rows = [];
	if (why && here != null) {
		const steps = why.steps.get(why.group[op]);
		data.nodes.forEach((d, k) => {
			if (data.plan.replicas > 1 && d.plan && d.plan.replica > 0) return;
			const work = work_of(op, k), step = steps && steps[k];
			rows.push({
				mark: k === here ? 'here' : null,
				cells: [
					el('span', {}, node_swatch(k), ` ${k}`),
					data.cluster.kinds[data.cluster.nodes[k].kind].name,
					work == null ? 'no kernel' : seconds(work),
					!steps		       ? ''
						: step == null ? work == null ? '' : 'does not fit'
							       : seconds(step),
					steps && step != null
						? k === here ? 'here' : change(step, why.now_s) || '+0 %'
						: k === here ? 'here'
							     : ''
				]
			});
		});
	}
	const best = why && why.steps.get(why.group[op]);
	const verdict = best && (() => {
		const others = best.map((s, k) => [s, k]).filter(([s, k]) => s != null && k !== here);
		const least = others.length && others.reduce((a, b) => b[0] < a[0] ? b : a);
		if (!least) return 'No other node can take it.';
		return least[0] >= why.now_s * 0.9999
			? `On any other node the step would be longer: on node ${least[1]} by ${
				  seconds(Math.max(0, least[0] - why.now_s))}.`
			: `Alone on node ${least[1]} the step would be ${
				  seconds(why.now_s -
					  least[0])} shorter; the plan was not made of single moves.`;
	})();
	const talks = here == null ? [] : [...traffic[here]].sort((a, b) => b[1] - a[1]);
	return [
		el('div', {class: 'opname'}, ops.name[op]),
		el('dl', {}, el('dt', {}, 'op'),
			el('dd', {}, `${op}, ${ops.types[ops.type[op]]}, ${phases[ops.phase[op]]}`),
			here != null && [el('dt', {}, 'node'), el('dd', {}, node_swatch(here), ` ${here}`)],
			el('dt', {}, 'work'), el('dd', {}, flop(ops.flop[op])),
			ops.measured_s && ops.measured_s[op] != null &&
				[
					el('dt', {}, data.report.dry_run ? 'simulated' : 'measured'),
					el('dd', {}, `${seconds(ops.measured_s[op])} a micro-batch`)
				]),
		rows.length > 0 &&
			[
				el('h3', {}, 'Why it is there'), verdict && el('p', {}, verdict),
				table(['node', 'kind', '#work', '#step', '#change'], rows.slice(0, 64)),
				!best &&
					el('p', {class: 'note'},
						'The step on other nodes is simulated for the ops with the most work only; for this one: ',
						el('code', {},
							`dlb-view --why ${op} ${
								data.file === '<stdin>'
									? 'DOCUMENT'
									: base_name(data.file)}`))
			],
		bound.length > 0 && list('Bound to it', bound.map((i) => el('li', {}, link(i)))),
		list('Reads', inputs), list('Read by', outputs),
		talks.length > 0 &&
			[
				el('h3', {}, `Node ${here} exchanges in a step`),
				el('ul', {class: 'linklist'}, talks.slice(0, 16).map(([d,
					b]) => el('li', {}, node_swatch(d), ` ${bytes(b)} with node ${d}`)))
			]
	];
};

const graph_section = () => {
	const {ops, tensors} = data;
	if (!ops || !ops.name.length) return null;
	const height = 620, n = ops.name.length;
	let chosen = -1, colour_by = ops.node ? 'node' : 'phase', at = null, traffic = null, query = '';
	const view = {x: 0, y: 0, scale_x: 1, scale_y: 1, fitted: true};
	const times = ops.name.map((_, i) => ops.measured_s && ops.measured_s[i] != null ? ops.measured_s[i]
			: why && ops.node ? work_of(i, ops.node[i]) || 0
					  : ops.flop[i]);
	const longest = times.reduce((a, b) => Math.max(a, b), 0) || 1;
	const colour = (i) => colour_by === 'node' ? node_colour(ops.node[i])
		: colour_by === 'phase'
		? palette[phases[ops.phase[i]]]
		: `hsl(${210 - 190 * Math.sqrt(times[i] / longest)} ${
			  25 + 55 * Math.sqrt(times[i] / longest)}% ${is_dark() ? 58 : 48}%)`;
	const side = el('div', {class: 'side', 'aria-live': 'polite'});
	const fit = () => {
		const scale = Math.min((self.width - 24) / at.width, (height - 24) / at.height, 1.2);
		Object.assign(view, {
			scale_x: scale,
			scale_y: scale,
			x: (self.width - at.width * scale) / 2,
			y: (height - at.height * scale) / 2 + scale * 8,
			fitted: true
		});
	};
	const sx = (i) => view.x + at.x[i] * view.scale_x, sy = (i) => view.y + at.y[i] * view.scale_y;
	const edge_path = (c, a, b) => {
		const s = view.scale_x, w = box.width * s, h = box.height * s, down = at.y[b] - at.y[a],
		      far = Math.abs(at.x[b] - at.x[a]) > 4 * box.across;
		if (Math.abs(down) < 1) {
			const right = at.x[b] > at.x[a], x0 = sx(a) + (right ? w : 0),
			      x1 = sx(b) + (right ? 0 : w), y = sy(a) + h / 2;
			c.moveTo(x0, y);
			if (Math.abs(x1 - x0) < 70 * s) c.lineTo(x1, y);
			else c.bezierCurveTo(x0 + 24 * s, y + 24 * s, x1 - 24 * s, y + 24 * s, x1, y);
			return;
		}
		const x0 = sx(a) + w / 2, x1 = sx(b) + w / 2, y0 = sy(a) + (down > 0 ? h : 0),
		      y1 = sy(b) + (down > 0 ? 0 : h), bend = clamp((y1 - y0) / 2, -60 * s, 60 * s);
		c.moveTo(x0, y0);
		if (far) c.lineTo(x1, y1);
		else c.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
	};
	const each_edge = (visit) => {
		for (let i = 0; i < n; i++)
			for (const t of ops.inputs[i]) {
				const p = tensors.producer[t];
				if (p >= 0) visit(p, i, t);
			}
	};
	const seen = (i, me) => {
		const x = sx(i), y = sy(i);
		return x > -box.across * view.scale_x && x < me.width && y > -box.down * view.scale_y &&
			y < height;
	};
	const draw_edges = (c, me) => {
		const s = view.scale_x;
		if (s < 0.12) return;
		for (const crossing of [false, true]) {
			c.beginPath();
			each_edge((a, b) => {
				if ((ops.node ? ops.node[a] !== ops.node[b] : false) !== crossing ||
					!(seen(a, me) || seen(b, me)))
					return;
				edge_path(c, a, b);
			});
			c.strokeStyle = crossing ? palette.starved : palette.faint;
			c.globalAlpha = crossing ? 0.95 : 0.85;
			c.lineWidth = crossing ? 1.8 : 1.1;
			c.setLineDash(crossing ? [5, 3] : []);
			c.stroke();
		}
		c.setLineDash([]);
		c.globalAlpha = 1;
	};
	const draw_op = (c, i, s, found) => {
		const x = sx(i), y = sy(i), w = box.width * s, h = box.height * s;
		c.globalAlpha = found ? 1 : 0.22;
		c.fillStyle = colour(i);
		if (s > 0.3) {
			c.globalAlpha *= 0.16;
			c.fillRect(x, y, w, h);
			c.globalAlpha = found ? 1 : 0.22;
			c.fillRect(x, y, 4 * s, h);
			c.strokeStyle = colour(i);
			c.lineWidth = 1;
			c.strokeRect(x, y, w, h);
		} else c.fillRect(x, y, Math.max(w, 0.8), Math.max(h, 0.8));
		if (s > 0.5) {
			c.fillStyle = palette.ink;
			c.textAlign = 'left';
			c.font = `${Math.min(12, 11 * s)}px system-ui, "DejaVu Sans", sans-serif`;
			const fits = Math.floor((w - 14 * s) / (Math.min(12, 11 * s) * 0.56)),
			      short = (t) => t.length > fits ? `\u2026${t.slice(-fits + 1)}` : t;
			c.fillText(short(ops.name[i]), x + 9 * s, y + 13 * s);
			c.fillStyle = palette.soft;
			c.fillText(`${ops.types[ops.type[i]]}`.slice(0, fits), x + 9 * s, y + 25 * s);
		}
		c.globalAlpha = 1;
	};
	const matches = () => query
		? new Set(ops.name.flatMap((name, i) => name.toLowerCase().includes(query) ||
					  ops.types[ops.type[i]].toLowerCase().includes(query) ||
					  String(i) === query
				  ? [i]
				  : []))
		: null;
	let found = null;
	const draw = (me) => {
		const c = me.context;
		at ??= layout_graph(me.width, height);
		if (view.fitted) fit();
		draw_edges(c, me);
		for (let i = 0; i < n; i++)
			if (seen(i, me)) draw_op(c, i, view.scale_x, !found || found.has(i));
		if (chosen >= 0) {
			c.strokeStyle = palette.accent;
			c.lineWidth = 2;
			c.beginPath();
			each_edge((a, b) => {
				if (a === chosen || b === chosen) edge_path(c, a, b);
			});
			c.stroke();
			c.lineWidth = 3;
			c.strokeRect(sx(chosen) - 2, sy(chosen) - 2,
				Math.max(6, box.width * view.scale_x + 4),
				Math.max(6, box.height * view.scale_y + 4));
		}
	};
	const self = canvas('the graph; ops are found by name in the field above it', height, draw);
	const op_at = (px, py) => {
		const wx = (px - view.x) / view.scale_x, wy = (py - view.y) / view.scale_y,
		      slack = 3 / view.scale_x;
		const column = at.columns.findIndex((k, j) => wx >= k.left - slack &&
				(j + 1 === at.columns.length || wx < at.columns[j + 1].left - slack));
		if (column < 0) return -1;
		const r = Math.floor((wy + slack) / box.down) + at.columns[column].first;
		if (r < at.columns[column].first ||
			r >= Math.min(at.rows.length, at.columns[column].first + at.per))
			return -1;
		for (const list of at.rows[r])
			for (const i of list)
				if (wx >= at.x[i] - slack && wx <= at.x[i] + box.width + slack &&
					wy >= at.y[i] - slack && wy <= at.y[i] + box.height + slack)
					return i;
		return -1;
	};
	const bring = (i) => { /* moves and zooms so that the op is visible and readable */
		if (!self.width) self.now();
		view.fitted = false;
		if (view.scale_x < 0.55) view.scale_x = view.scale_y = 0.8;
		view.x = self.width / 2 - (at.x[i] + box.width / 2) * view.scale_x;
		view.y = height / 2 - (at.y[i] + box.height / 2) * view.scale_y;
	};
	select_op = (i, from_elsewhere) => {
		if (!(i >= 0 && i < n)) return;
		chosen = i;
		traffic ??= node_traffic();
		side.replaceChildren(
			...op_panel(i, traffic, (k) => select_op(k, true)).flat(9).filter(Boolean));
		side.scrollTop = 0;
		if (from_elsewhere) {
			bring(i);
			if (from_elsewhere !== 'stay')
				document.getElementById('graph').scrollIntoView({block: 'nearest'});
		}
		try {
			history.replaceState(null, '', `#op=${i}`);
		} catch { /* a page opened from a file may have no history */
		}
		self.redraw();
	};
	const step = (d) => select_op(chosen < 0 ? 0 : (chosen + d + n) % n, 'stay');
	const follow = (forward) => {
		if (chosen < 0) return;
		const next = forward ? at.readers[chosen][0] : at.producers(chosen)[0];
		if (next != null) select_op(next, 'stay');
	};
	const moves = pan_zoom(self, {
		view,
		vertical: true,
		clamp_view: () => {
			const least = Math.min((self.width - 24) / at.width, (height - 24) / at.height, 1.2) *
				0.8,
			      factor = clamp(view.scale_x, least, 4) / view.scale_x;
			view.scale_x *= factor;
			view.scale_y = view.scale_x;
			view.fitted = false;
			view.x = clamp(view.x, self.width / 2 - at.width * view.scale_x, self.width / 2);
			view.y = clamp(view.y, height / 2 - at.height * view.scale_y, height / 2);
		},
		reset: () => {
			view.fitted = true;
			self.redraw();
		},
		click: (x, y) => {
			const i = op_at(x, y);
			if (i >= 0) select_op(i);
		},
		hover: (x, y) => {
			const i = at ? op_at(x, y) : -1;
			return i >= 0 ? [ops.name[i],
				`${ops.types[ops.type[i]]}, ${phases[ops.phase[i]]}`, ops.node &&
				`node ${ops.node[i]}`] : null;
		},
		key: (event) => ({
			']': () => step(1),
			'[': () => step(-1),
			i: () => follow(false),
			o: () => follow(true)
		})[event.key],
	});
	const hits = el('span', {class: 'note'});
	const search = el('input', {
		type: 'search',
		placeholder: 'find an op',
		'aria-label': 'find an op by name, type or number',
		id: 'find-op',
		oninput: () => {
			query = search.value.trim().toLowerCase();
			found = matches();
			hits.textContent = found ? `${found.size} found` : '';
			self.redraw();
		},
		onkeydown: (event) => {
			if (event.key !== 'Enter' || !found || !found.size) return;
			const list = [...found],
			      exact = list.find(
				      (i) => ops.name[i].toLowerCase() === query || String(i) === query);
			select_op(exact ?? list[(list.indexOf(chosen) + 1) % list.length], 'stay');
		}
	});
	const by = el('select', {
		'aria-label': 'colour by',
		onchange: () => {
			colour_by = by.value;
			self.redraw();
			key();
		}
	},
		[...(ops.node ? ['node'] : []), 'phase', 'time'].map(
			(k) => el('option', {value: k}, `coloured by ${k}`)));
	const legend_box = el('div', {});
	const key = () => legend_box.replaceChildren(legend(...(colour_by === 'node'
		? working_nodes.slice(0, 24).map((k) => [node_colour(k), `node ${k}`])
		: colour_by === 'phase' ? phases.map((p) => [palette[p], p]) : [['hsl(210 25% 50%)',
		'short'], ['hsl(20 80% 50%)', `${seconds(longest)}`]]),
		...(ops.node ? [[palette.starved, 'dashed: from node to node']] : [])));
	themed(key);
	const whole = sum(times) || 1,
	      longest_ops = times.map((s, i) => [s, i]).sort((a, b) => b[0] - a[0]).slice(0, 14);
	side.append(
		el('p', {class: 'note'},
			'Click an op, or find it by its name, to see why it is on its node. Those that take the longest:'),
		table(
			[
				'op', ...(ops.node ? ['node'] : []),
				ops.measured_s || why ? '#time' : '#work', '#share'
			],
			longest_ops.map(
				([s, i]) => [el('button', {
					type: 'button',
					class: 'plain',
					onclick: () => select_op(i, 'stay')
				},
						       ops.name[i]),
					...(ops.node ? [el('span', {}, node_swatch(ops.node[i]),
							       ` ${ops.node[i]}`)]
						     : []),
					ops.measured_s || why ? seconds(s) : flop(s), percent(s / whole)])));
	const counts = phases.map((p, k) => [p, ops.phase.filter((x) => x === k).length]).filter(([,
		k]) => k);
	return section('graph', 'Graph',
		`${plural(n, 'op')}: ${counts.map(([p, k]) => `${k} ${p}`).join(', ')}`,
		[search, hits, by, ...moves.buttons],
		el('div', {class: 'graph'},
			el('div', {}, self.frame, legend_box,
				keys_hint([[ '[', ']'], 'previous, next op'],
					[[ 'i', 'o'], 'along an input, an output'],
					[[ '+', '\u2212'], 'zoom'],
					[[ '\u2190', '\u2191', '\u2192', '\u2193'], 'move'],
					[[ '0'], 'all of it'])),
			side));
};
