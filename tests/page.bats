#!/usr/bin/env bats
# The page of dlb-view -f html in a real browser: no message on the console, everything drawn, pointer and keys work,
# both themes, print. With a document of 28 ops with a report and rounds, and with one of 10,000 ops.
load helper

setup_file() {
	export pages=$BATS_FILE_TMPDIR
	command -v chromium chromium-headless-shell google-chrome chrome >/dev/null || return 0
	# Two rounds of the loop, the second node slow, then a simulated run with a loss to draw.
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:3 | dlb-place -a even -m 4 >"$pages/small.json" || return
	for _ in 1 2; do
		dlb-run --dry-run --slow 1:3 --steps 10 "$pages/small.json" | dlb-rebalance | dlb-place >"$pages/next.json" || return
		mv "$pages/next.json" "$pages/small.json"
	done
	dlb-run --dry-run --steps 10 "$pages/small.json" | jq -c '.report.losses = [range(200) | 2 / (1 + . / 20) + . % 7 / 50] | .report.accuracy = 0.9731 |
		.report.evaluations = [range(20; 201; 20) | {step: ., test_loss: (2.1 / (1 + . / 20)), accuracy: (. / 205), time_s: 0.1}]' >"$pages/run.json"
	dlb-view -f html "$pages/run.json" >"$pages/small.html" || return
	"$root/tests/deep" 1000 >"$pages/deep.onnx" || return
	dlb-profile -q --analytic --batch 32 --loss mse "$pages/deep.onnx" >"$pages/deep.json" || return
	dlb-costmodel -c 'cpu:2 host cpu:2*0.5' "$pages/deep.json" | dlb-place -a even -m 4 | dlb-run --dry-run >"$pages/deep-run.json" || return
	dlb-view -f html "$pages/deep-run.json" >"$pages/deep.html"
}

setup() { [ -s "$pages/small.html" ] || skip 'no headless browser'; }

# browse PAGE [OPTION...]: $output is the output of tests/browser; no errors, no requests.
browse() {
	local page=$1
	shift
	run -0 "$root/tests/browser" "$page" "$@"
	jq -e '.errors == [] and .requests == []' <<<"$output" || { echo "$output"; return 1; }
}
result() { jq -r ".results[$1]" <<<"$output"; }

# bats test_tags=slow
@test "every section is there and its pictures are drawn, in both themes" {
	for scheme in --light --dark; do
		browse "$pages/small.html" $scheme --eval '[...document.querySelectorAll("section.card")].map((s) => s.id).join(" ")' \
			--eval 'document.documentElement.dataset.theme' --eval 'document.querySelectorAll("#failures").length' \
			--eval '[...document.querySelectorAll("canvas")].map((c) => { const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, seen = new Set();
				for (let i = 0; i < d.length; i += 4 * 7) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size; }).every((n) => n > 6)' \
			--eval 'document.querySelectorAll("#learning svg path").length > 0 && document.querySelectorAll("#rounds svg circle").length >= 4' \
			--eval 'document.querySelector("#learning").textContent.includes("97.31 %")' \
			--eval '(() => { const [loss, accuracy] = document.querySelectorAll("#learning svg"), dots = (s) => s.querySelectorAll("circle").length;
				return [dots(loss), [...loss.parentElement.querySelectorAll(".legend span")].map((s) => s.textContent).join(), accuracy.getAttribute("aria-label"), dots(accuracy)].join(" "); })()' \
			--full "$pages/small$scheme-full.png" --screenshot "$pages/small$scheme.png"
		[ "$(result 0)" = 'overview timeline waits learning rounds memory graph machine commands' ]
		[ "$(result 1)" = "${scheme#--}" ]
		[ "$(result 2)" = 0 ]
		[ "$(result 3)" = true ]
		[ "$(result 4)" = true ]
		[ "$(result 5)" = true ]
		[ "$(result 6)" = '10 loss of the step,running mean,loss on the test data Accuracy on the test data 10' ]
		[ -s "$pages/small$scheme.png" ]
	done
	run ! cmp -s "$pages/small--light.png" "$pages/small--dark.png"
}

# bats test_tags=slow
@test "a click on an op says why it is there; a name typed finds one; keys go along the graph" {
	browse "$pages/small.html" --click '#find-op' --type 'loss' --key Enter --eval 'document.querySelector("#graph .opname").textContent' \
		--eval 'document.querySelectorAll("#graph .side table tbody tr").length' \
		--eval 'document.querySelector("#graph canvas").focus()' --key '[' --eval 'document.querySelector("#graph .opname").textContent'
	[ "$(result 0)" = loss ]
	[ "$(result 1)" -ge 3 ]		# a row per node, and its label
	[ "$(result 3)" != loss ]
	# A page just opened shows the whole graph: find the first op under the pointer, row by row.
	browse "$pages/small.html" \
		--eval 'const c = document.querySelector("#graph canvas"); let hit = null; for (let y = 10; y < 610 && !hit; y += 8) for (let x = 10; x < c.clientWidth && !hit; x += 20) {
			const b = c.getBoundingClientRect(), e = { clientX: b.left + x, clientY: b.top + y, pointerId: 1, bubbles: true };
			c.dispatchEvent(new PointerEvent("pointermove", e)); if (!document.querySelector(".tip").hidden) hit = [x, y, document.querySelector(".tip b").textContent]; } hit.join()'
	IFS=, read -r x y name <<<"$(result 0)"
	browse "$pages/small.html" --click-at "$x,$y" '#graph canvas' --eval 'document.querySelector("#graph .opname").textContent' \
		--eval 'document.querySelector("#graph .side").textContent.includes("Why it is there")' --eval 'location.hash'
	[ "$(result 0)" = "$name" ]
	[ "$(result 1)" = true ]
	[[ $(result 2) == '#op='* ]]
}

# bats test_tags=slow
@test "the time-line zooms by keys and buttons, shows transfers when asked, and goes back" {
	look='(() => { const c = document.querySelector("#timeline canvas"); return c.toDataURL().length + ":" + c.toDataURL().slice(-400); })()'
	frame='new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))'
	browse "$pages/small.html" --eval "$look" --eval 'document.querySelector("#timeline canvas").focus()' --key + --eval "$frame" --eval "$look" \
		--key 0 --eval "$frame" --eval "$look" \
		--eval '[...document.querySelectorAll("#timeline button")].find((b) => b.textContent === "transfers").click()' --eval "$frame" --eval "$look"
	first=$(result 0) zoomed=$(result 3) again=$(result 5) arrows=$(result 8)
	[ "$first" != "$zoomed" ]
	[ "$first" = "$again" ]
	[ "$first" != "$arrows" ]
}

# bats test_tags=slow
@test "the theme's button and key; paper is light and has every section" {
	browse "$pages/small.html" --dark --click '#theme' --eval 'document.documentElement.dataset.theme' --key t --eval 'document.documentElement.dataset.theme' \
		--pdf "$pages/small.pdf" --eval 'document.documentElement.dataset.theme'
	[ "$(result 0)" = light ]
	[ "$(result 1)" = dark ]
	[ "$(result 2)" = dark ]
	[ "$(head -c 5 "$pages/small.pdf")" = '%PDF-' ]
	[ "$(stat -c %s "$pages/small.pdf")" -gt 20000 ]
}

# bats test_tags=slow
@test "10,000 ops: under 20 MB, drawn (with DLB_TIMING within 3 s)" {
	[ "$(jq '.graph.ops | length' "$pages/deep.json")" -eq 10000 ]
	[ "$(stat -c %s "$pages/deep.html")" -lt 20000000 ]
	browse "$pages/deep.html" --eval 'document.querySelectorAll("#failures").length' --eval 'document.querySelectorAll("canvas").length >= 6'
	[ "$(result 0)" = 0 ]
	[ "$(result 1)" = true ]
	took=$(jq .load_ms <<<"$output")
	echo "$took ms"
	[ -z "${DLB_TIMING:-}" ] || [ "$took" -lt 3000 ]
}

# bats test_tags=slow
@test "documents of one section only have a page" {
	for keep in graph 'graph,.profile' cluster; do
		jq -c "{dlb, ${keep//,./, }} | del(.profile.inputs)" "$pages/run.json" >"$BATS_TEST_TMPDIR/part.json"
		dlb-view -f html "$BATS_TEST_TMPDIR/part.json" >"$BATS_TEST_TMPDIR/part.html"
		browse "$BATS_TEST_TMPDIR/part.html" --eval 'document.querySelectorAll("section.card").length >= 1'
		[ "$(result 0)" = true ]
	done
	dlb-view -f html <<<'{"dlb": "1.0"}' >"$BATS_TEST_TMPDIR/empty.html"
	browse "$BATS_TEST_TMPDIR/empty.html" --eval 'document.querySelector("main").textContent.includes("An empty document")'
	[ "$(result 0)" = true ]
}

@test "names that look like markup are shown as text" {
	evil='<img src=x onerror="document.title=1"></script><b id=evil>'
	jq -c --arg evil "$evil" '.graph.ops[0].name = $evil | .cluster.nodes[0].host = $evil | .graph.model.path = $evil | .report.nodes[].host = $evil |
		.provenance[0].arguments += [$evil] | del(.profile.inputs, .cost.inputs, .plan.inputs, .report.inputs, .balance)' "$pages/run.json" >"$BATS_TEST_TMPDIR/evil.json"
	dlb-view -f html "$BATS_TEST_TMPDIR/evil.json" >"$BATS_TEST_TMPDIR/evil.html"
	browse "$BATS_TEST_TMPDIR/evil.html#op=0" --eval 'document.querySelector("#graph .opname").textContent' --eval 'document.querySelectorAll("#evil, img").length'
	[ "$(result 0)" = "$evil" ]
	[ "$(result 1)" = 0 ]
}
