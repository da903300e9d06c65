#!/usr/bin/env bats
# Real runs in many modes: bytes, losses, states, messages and files are those that are kept (tests/data/runs/show). Losses that must
# not depend on the plan are compared to the last bit there.
load helper

same() { # CASE...
	command -v mpiexec.openmpi >/dev/null || skip 'no Open MPI'
	"$root/tests/data/runs/show" "$@"
}

@test "runs: placements" { same placements; }
@test "runs: drawn" { same drawn; }
@test "runs: logs" { same logs; }
@test "runs: continued" { same continued; }
@test "runs: replicas" { same replicas; }
@test "runs: averages" { same averages; }
@test "runs: shards" { same shards; }
@test "runs: compressed" { same compressed; }
@test "runs: kfac" { same kfac; }
@test "runs: clipped" { same clipped; }
@test "runs: moments" { same moments; }
@test "runs: asynchronous" { same asynchronous; }
@test "runs: frozen" { same frozen; }
@test "runs: left-out" { same left-out; }
@test "runs: ends" { same ends; }
@test "runs: statistics" { same statistics; }
@test "runs: copies" { same copies; }
@test "runs: offloaded" { same offloaded; }
@test "runs: words" { same words; }
@test "runs: words-of-replicas" { same words-of-replicas; }
@test "runs: simulated" { same simulated; }
@test "runs: moving" { same moving; }
@test "runs: moving-replicas" { same moving-replicas; }
@test "runs: moving-kfac" { same moving-kfac; }
@test "runs: moving-asynchronous" { same moving-asynchronous; }
@test "runs: states" { same states; }
@test "runs: damaged" { same damaged; }
@test "runs: damaged-manifests" { same damaged-manifests; }
@test "runs: words-of-profiles" { same words-of-profiles; }
@test "runs: put-back" { same put-back; }
@test "runs: measured" { same measured; }
@test "runs: launched" { same launched; }
@test "runs: events" { same events; }
@test "runs: started-again" { same started-again; }
@test "runs: lost" { same lost; }
@test "runs: lost-kfac" { same lost-kfac; }
@test "runs: lost-shares" { same lost-shares; }
@test "runs: lost-residuals" { same lost-residuals; }
@test "runs: hosts" { same hosts; }
@test "runs: stopped" { same stopped; }
@test "runs: saved" { same saved; }
@test "runs: not-saved" { same not-saved; }
@test "runs: parts" { same parts; }
@test "runs: edited-parts" { same edited-parts; }
@test "runs: edited-shares" { same edited-shares; }
@test "runs: edited-members" { same edited-members; }
@test "runs: tested" { same tested; }
@test "runs: adapters" { same adapters; }
@test "runs: saved-state" { same saved-state; }
