/* Loss per step, and measurements on test data. */
const learning_section = () => {
	const r = data.report, l = data.losses, measured = data.evaluations || [];
	if (!r || (!l && r.accuracy == null)) return null;
	const body = [];
	/* [step, value] of column k: 1, the loss; 2, the accuracy. */
	const on_test_data = (k) => measured.filter((m) => m[k] != null).map((m) => [m[0], m[k]]);
	const test_losses = on_test_data(1), accuracies = on_test_data(2);
	if (l) {
		const wide = l.stride > 1 ? 3 : 1, points = [], band = [];
		for (let i = 0; i < l.values.length; i += wide) {
			const x = l.first + i / wide * l.stride;
			points.push([x, l.values[i]]);
			if (wide === 3)
				band.push([
					x, l.values[i + 1] ?? l.values[i], l.values[i + 2] ?? l.values[i]
				]);
		}
		const finite = points.map((p) => p[1]).filter((y) => y != null && isFinite(y));
		const log = finite.length > 0 && Math.min(...finite) > 0 &&
			Math.max(...finite) > 30 * Math.min(...finite);
		const smooth = [];
		if (points.length > 60)
			for (let i = 0, mean = points[0][1], w = Math.max(2, points.length / 40);
				i < points.length; i++) {
				if (points[i][1] != null)
					mean += ((points[i][1] - (mean ?? points[i][1])) /
						Math.min(i + 1, w));
				smooth.push([points[i][0], mean]);
			}
		body.push(chart({
			title: `Loss${log ? ', logarithmic' : ''}`,
			x_name: 'step',
			y_format: (y) => digits(y, 4),
			log,
			whole: true,
			lines: [
				{
					name: wide === 3 ? `mean of ${l.stride} steps` : 'loss of the step',
					colour: () => smooth.length ? palette.structural : palette.forward,
					points,
					band: band.length ? band : null
				},
				...(smooth.length ? [{
					name: 'running mean',
					colour: () => palette.forward,
					points: smooth
				}]
						  : []),
				...(test_losses.length ? [{
					name: 'loss on the test data',
					colour: () => palette.starved,
					points: test_losses,
					dots: true
				}]
						       : [])
			]
		}));
		if (accuracies.length)
			body.push(chart({
				title: 'Accuracy on the test data',
				x_name: 'step',
				y_format: (y) => `${digits(100 * y, 4)} %`,
				whole: true,
				lines: [{
					name: 'accuracy',
					colour: () => palette.backward,
					points: accuracies,
					dots: true
				}]
			}));
		if (finite.length)
			body.push(el('div', {}, el('h3', {}, 'In numbers'), table(['', '#'], [
				['first loss', digits(finite[0], 5)],
				['last loss', digits(finite[finite.length - 1], 5)],
				['least loss', digits(Math.min(...finite), 5)],
				...(r.test_loss != null
						? [[ 'loss on the test data', digits(r.test_loss, 5)] ]
						: []),
				...(r.accuracy != null ? [[
					'accuracy on the test data', `${(100 * r.accuracy).toFixed(2)} %`
				]]
						       : []),
				['steps', `${count(r.steps)}, from step ${r.first_step}`],
				...(r.optimizer ? [[ 'optimizer', r.optimizer] ] : []),
				...(r.stopped ? [[ 'ended by', r.stopped] ] : [])
			].map((c) => ({cells: c})))));
	}
	return section('learning', 'Loss and accuracy',
		r.accuracy != null ? `accuracy ${(100 * r.accuracy).toFixed(2)} % on the test data` : null,
		null, el('div', {class: 'two'}, body));
};
