/* The rounds: predicted and measured step, weights and plan of each. */
const rounds_section = () => {
	const b = data.balance;
	if (!b || !b.history.length) return null;
	const h = b.history, n_nodes = b.weights.length || (h[0].weights || []).length;
	const steps = chart({
		title: 'Seconds a step',
		x_name: 'round',
		y_format: seconds,
		whole: true,
		zero: true,
		lines: [
			{
				name: 'measured',
				colour: () => palette.starved,
				dots: true,
				points: h.map((r) => [r.round, r.step_s])
			},
			{
				name: 'predicted',
				colour: () => palette.forward,
				dots: true,
				dashed: true,
				points: h.map((r) => [r.round, r.predicted_step_s])
			},
			...(b.floor_s ? [{
				name: 'no plan can be below',
				colour: () => palette.faint,
				points: h.map((r) => [r.round, b.floor_s])
			}]
				      : [])
		]
	});
	const nodes = [...Array(n_nodes).keys()];
	const with_next = b.weights.length ? [...h, {round: h[h.length - 1].round + 1, weights: b.weights}]
					   : h;
	const weights = chart({
		title: 'Weights of the nodes; the last are the next round\u2019s',
		x_name: 'round',
		y_format: (y) => digits(y),
		whole: true,
		lines: nodes.slice(0, 32).map((k) => ({
			name: `node ${k}`,
			colour: () => node_colour(k),
			dots: true,
			points: with_next.map((r) => [r.round, r.weights[k]])
		}))
	});
	const plans = [...new Set(h.map((r) => r.plan))];
	const chip = (plan) => {
		const c = el('span', {class: 'chip mono', title: plan}, swatch(''), ` ${plan.slice(0, 8)}`);
		themed(() => { c.firstChild.style.background = node_colour(plans.indexOf(plan)); });
		return c;
	};
	const rows = h.map((r) => ({
		mark: r.plan === b.best_plan ? 'here' : null,
		cells: [
			String(r.round), seconds(r.step_s), seconds(r.predicted_step_s),
			change(r.step_s, r.predicted_step_s), seconds(r.mean_excess_s), String(r.moved_ops),
			chip(r.plan),
			(r.weights || []).slice(0, 16).map((w) => digits(w)).join('  ') +
				(n_nodes > 16 ? ' \u2026' : ''),
			[
				r.plan === b.best_plan && 'best plan', r.held && 'plan held',
				r.rolled_back && 'rolled back', r.changed && 'the machine changed'
			].filter(Boolean)
				.join(', ')
		]
	}));
	return section('rounds', 'Rounds',
		`rule ${b.rule || '\u2013'}, ${
			b.converged ? `converged: ${b.reason || 'balanced'}` : 'not converged'}`,
		null, el('div', {class: 'two'}, steps, weights), el('h3', {}, 'Round by round'),
		table(
			[
				'round', '#measured', '#predicted', '#error', '#waits beyond structural',
				'#ops moved', 'plan', 'weights', ''
			],
			rows));
};
