# Members that sections get before they are spoilt: see write.
def report: .report = $report[0];
def options: .plan += {
	in_flight: 3, chunks: 2, algorithm_given: true, seed: -5, objective: "throughput", effort: 7, clip: true, clip_norm: 1.5,
	inverse_every: 10, migration_s: 0.25, moved_ops: 3, moved_bytes: 4096, pins: {"/1/Gemm": 1}, exclude: [2], priority: "given",
	affinity: "cpu=0", rewrites: "all"
};
def given: .plan += {split: "power", split_given: true};
def offload: .plan.offload |= {
	states: [{weights: "*", memory: "pool"}],
	weights: [{weights: "1.*", memory: "pool"}],
	activations: [{ops: "*Relu", memory: "pool"}]
};
