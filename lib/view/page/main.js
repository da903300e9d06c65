/* Draws the page from top to bottom. If a section fails, the others are still drawn. */
const overview_section = () => {
	const {model, plan, report, losses} = data, tiles = [];
	const tile = (what, value, more) => tiles.push(
		el('div', {class: 'tile'}, el('div', {class: 'what'}, what),
			el('div', {class: 'value'}, value), more && el('div', {class: 'more'}, more)));
	if (report)
		tile(`step, ${report.dry_run ? 'simulated' : 'measured'}`, seconds(report.step_s),
			`${rate((report.batch || (plan && plan.batch)) / report.step_s)} samples/s`);
	if (plan)
		tile('step, predicted', seconds(report ? report.predicted_step_s : plan.value_s),
			report ? (report.predicted_step_high_s ?
				`${seconds(report.predicted_step_low_s)} to ${seconds(report.predicted_step_high_s)}, ` : '') +
				`off by ${percent(report.prediction_error)}`
			       : `${rate(plan.batch / plan.value_s)} samples/s`);
	if (plan) tile('no plan is below', seconds(plan.bound_s), `gap ${percent(plan.gap)}`);
	if (report || plan)
		tile('imbalance', digits((report || plan).imbalance), 'greatest over mean busy time');
	if (losses) {
		const wide = losses.stride > 1 ? 3 : 1, last = losses.values[losses.values.length - wide];
		tile('loss', digits(last, 4),
			`from ${digits(losses.values[0], 4)} in ${plural(report.steps, 'step')}`);
	}
	if (report && report.accuracy != null)
		tile('accuracy', `${(100 * report.accuracy).toFixed(2)} %`, 'on the test data');
	if (plan)
		tile('schedule', plan.schedule,
			`batch of ${plan.batch} in ${
				plural(plan.micro_batches, 'micro-batch').replace(/batchs$/, 'batches')}`);
	if (plan)
		tile('placed by', plan.algorithm,
			plan.replicas > 1 ? `${plan.replicas} replicas`
				: plan.moved_ops ? `${plural(plan.moved_ops, 'op')} moved since the last plan`
						 : null);
	if (model) tile('model', `${count(model.parameters)}`, `parameters; ${flop(model.flop)} a step`);
	if (data.cluster)
		tile('machine', plural(data.cluster.nodes.length, 'node'),
			data.cluster.kinds.map((k) => k.name).join(', '));
	if (report && report.message_bytes > 0)
		tile('messages a step', bytes(report.message_bytes),
			report.message_s > 0
				? `${
					  percent(report.hidden_s /
						  report.message_s)} of their time beside computing`
				: null);
	return tiles.length
		? section('overview', 'Overview',
			  plan && plan.edited
				  ? el('span', {class: 'warn'},
					    'the placement was edited since its times were stated')
				  : null,
			  null, el('div', {class: 'tiles'}, tiles))
		: null;
};
const commands_section = () => {
	const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
	return data.provenance.length
		? section('commands', 'Commands', 'that made this document', null,
			  el('ol', {class: 'commands mono'},
				  data.provenance.map((words) => el('li', {}, words.map(quoted).join(' ')))))
		: null;
};

const theme_button = el('button',
	{type: 'button', id: 'theme', title: 'colours: as the system has them, light, dark (t)'});
const name_theme = () => {
	theme_button.textContent = {auto: 'auto', light: 'light', dark: 'dark'}[theme.chosen];
	theme_button.setAttribute('aria-label', `colours: ${theme.chosen}`);
};
const next_theme = () => {
	theme.choose(theme.choices[(theme.choices.indexOf(theme.chosen) + 1) % 3]);
	name_theme();
};
theme_button.addEventListener('click', next_theme);

const start = () => {
	theme.start();
	name_theme();
	const body =
		[
			overview_section, timeline_section, waits_section, learning_section, rounds_section,
			memory_section, graph_section, machine_section, commands_section
		]
			.map((make_section) => {
				try {
					return make_section();
				} catch (error) {
					failures.push(error);
					return null;
				}
			})
			.filter(Boolean);
	const titles = {
		overview: 'Overview',
		timeline: 'Time-line',
		waits: 'Waits',
		learning: 'Loss',
		rounds: 'Rounds',
		memory: 'Memory',
		graph: 'Graph',
		machine: 'Machine',
		commands: 'Commands'
	};
	const name = base_name(data.model && data.model.path) || base_name(data.file) || 'a document';
	document.body.append(el('a', {class: 'skip', href: '#overview'}, 'to the contents'),
		el('header', {class: 'top'},
			el('h1', {title: (data.model && data.model.path) || data.file}, name),
			el('nav', {'aria-label': 'sections'},
				sections.map((s) => el('a', {href: `#${s.id}`}, titles[s.id]))),
			theme_button),
		el('main', {}, body, !body.length && el('p', {}, 'An empty document.'),
			failures.length > 0 &&
				el('p', {class: 'warn', id: 'failures'},
					`This page could not draw all of the document: ${
						failures.map((e) => e.message).join('; ')}`),
			el('footer', {}, 'dlb-view -f html')),
		tip);
	addEventListener('keydown', (event) => {
		if (event.key === 't' && !event.ctrlKey && !event.metaKey && !event.altKey &&
			!/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName))
			next_theme();
		if (event.key === '/' && event.target.tagName !== 'INPUT' &&
			document.getElementById('find-op')) {
			event.preventDefault();
			document.getElementById('find-op').focus();
		}
		if (event.key === 'Escape') hide_tip();
	});
	for (const c of canvases) c.now();
	const asked = /^#op=(\d+)$/.exec(location.hash);
	if (asked) select_op(Number(asked[1]), true);
	for (const error of failures) console.error(error);
	document.documentElement.dataset.ready = Math.round(performance.now());
};
start();
