/* The placement algorithms: id (of file and function dlb_place_ID), name, summary, trivial, tried by the
 * default rule. Earlier ones win ties. */
PLACER(single, "single", "everything on the best single node", true, true)
PLACER(even, "even", "contiguous parts of equally many ops", true, true)
PLACER(largest_first, "largest-first", "fill the largest node, then the next", true, true)
PLACER(proportional, "proportional", "contiguous parts with load in proportion to weight times speed", false,
       true)
PLACER(interleaved, "interleaved", "contiguous parts, several a node, dealt to the nodes in turn (--chunks)",
       false, false)
PLACER(greedy, "greedy", "each op to the node that would finish it first", false, true)
PLACER(by_kind, "by-kind", "each op to the kind of device its class of work is at home on (--affinity)",
       false, false)
PLACER(heft, "heft", "by upward rank, each op where it would finish first, gaps filled", false, false)
PLACER(peft, "peft", "like heft, by the optimistic cost of what follows", false, false)
PLACER(etf, "etf", "among all ready ops the one that can start first", false, false)
PLACER(random, "random", "each op on a node drawn at random (--seed)", false, false)
PLACER(dp, "dp", "the best contiguous parts, over all ideals of the graph", false, false)
PLACER(refine, "refine", "the best of the others, then downhill from there (--effort, --time)", false, false)
PLACER(anneal, "anneal", "the best of the others, then annealing from there (--effort, --time)", false, false)
PLACER(auto, "auto", "the best of the others, then both; the default (--effort, --time)", false, false)
