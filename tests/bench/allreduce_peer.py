"""The peer of tests/bench/allreduce: sums over gloo on request. Arguments: file of the rendezvous, rank, ranks.
Says "ready", then answers each line "ELEMENTS" with the seconds of one all_reduce in place of that many floats."""
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
rank, size = int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=size)
print("ready", flush=True)
x = torch.empty(0)
for line in iter(sys.stdin.readline, ""):
    n = int(line)
    if x.numel() != n:
        x = torch.empty(n)
    x.fill_(1)
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(x)
    took = time.perf_counter() - start
    if x[-1] != size:
        sys.exit("gloo: wrong sum")
    print(took, flush=True)
