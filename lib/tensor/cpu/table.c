/* The table of the cpu back end, one for each level (level.h). */
#include "tensor/cpu/cpu.h"

const struct dlb_backend_ops dlb_cpu_ops = {
	.name = "cpu",
	.n_devices = dlb_cpu_n_devices,
	.open = dlb_cpu_open,
	.close = dlb_cpu_close,
	.alloc = dlb_cpu_alloc,
	.free = dlb_cpu_free,
	.upload = dlb_cpu_copy_bytes,
	.download = dlb_cpu_copy_bytes,
	.sync = dlb_cpu_sync,
	.gemm = dlb_cpu_gemm,
	.conv = dlb_cpu_conv,
	.pool = dlb_cpu_mixed_pool,
	.batch_norm = dlb_cpu_batch_norm,
	.softmax = dlb_cpu_mixed_softmax,
	.norm = dlb_cpu_mixed_norm,
	.dropout = dlb_cpu_mixed_dropout,
	.cell = dlb_cpu_cell,
	.loss = dlb_cpu_loss,
	.map = dlb_cpu_mixed_map,
	.reduce = dlb_cpu_mixed_reduce,
	.copy = dlb_cpu_copy,
	.accumulate = dlb_cpu_accumulate,
	.update = dlb_cpu_update,
	.host = dlb_cpu_host,
};
