/* Placement algorithms: id (file, function dlb_place_<id>), name, summary, trivial. Order breaks ties. */
PLACER(single, "single", "everything on the best single node", true)
PLACER(even, "even", "contiguous parts of equally many ops", true)
PLACER(largest_first, "largest-first", "fill the largest node, then the next", true)
PLACER(proportional, "proportional", "contiguous parts with load in proportion to weight times speed", false)
PLACER(greedy, "greedy", "each op to the node that would finish it first", false)
PLACER(random, "random", "each op on a node drawn at random (--seed)", false)
