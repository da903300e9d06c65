/* The kernel table of the cuda back end, and the plug-in's exported symbol. */
#include "tensor/cuda/cudnn.h"
#include "tensor/plugin.h"

/* Functions of the host cannot reach device memory. */
int dlb_cuda_host(struct dlb_backend *b, dlb_host_fn fn, const void *ctx, size_t ctx_bytes,
		  size_t scratch_bytes, struct dlb_kernel **k, struct dlb_error *err)
{
	(void)b, (void)fn, (void)ctx, (void)ctx_bytes, (void)scratch_bytes, (void)k, (void)err;
	return DLB_NO_KERNEL;
}

const struct dlb_backend_ops dlb_cuda_ops = {
	.name = "cuda",
	.is_host_memory = false,
	.n_devices = dlb_cuda_n_devices,
	.about = dlb_cuda_dnn_about,
	.open = dlb_cuda_open,
	.close = dlb_cuda_close,
	.describe = dlb_cuda_describe,
	.free_bytes = dlb_cuda_free_bytes,
	.alloc = dlb_cuda_alloc,
	.free = dlb_cuda_free,
	.upload = dlb_cuda_upload,
	.download = dlb_cuda_download,
	.sync = dlb_cuda_sync,
	.mark = dlb_cuda_mark,
	.seconds = dlb_cuda_seconds,
	.host_alloc = dlb_cuda_host_alloc,
	.host_free = dlb_cuda_host_free,
	.transfer = dlb_cuda_transfer,
	.transferred = dlb_cuda_transferred,
	.join = dlb_cuda_join,
	.record = dlb_cuda_record,
	.recorded = dlb_cuda_recorded,
	.replay = dlb_cuda_replay,
	.discard = dlb_cuda_discard,
	.gemm = dlb_cuda_gemm,
	.product = dlb_cuda_product,
	.conv = dlb_cuda_conv,
	.pool = dlb_cuda_pool,
	.batch_norm = dlb_cuda_batch_norm,
	.softmax = dlb_cuda_softmax,
	.norm = dlb_cuda_norm,
	.attention = dlb_cuda_attention_by_products,
	.dropout = dlb_cuda_dropout,
	.cell = dlb_cuda_cell,
	.loss = dlb_cuda_loss,
	.map = dlb_cuda_map,
	.reduce = dlb_cuda_reduce,
	.copy = dlb_cuda_copy,
	.constant = dlb_cuda_constant,
	.index = dlb_cuda_index,
	.gather = dlb_cuda_gather,
	.select = dlb_cuda_select,
	.taps = dlb_cuda_taps,
	.scan = dlb_cuda_scan,
	.rotary = dlb_cuda_rotary,
	.accumulate = dlb_cuda_accumulate,
	.square_sum = dlb_cuda_square_sum,
	.update = dlb_cuda_update,
	.host = dlb_cuda_host,
};

extern const struct dlb_plugin dlb_plugin;
const struct dlb_plugin dlb_plugin = {
	.abi = DLB_PLUGIN_ABI,
	.ops = &dlb_cuda_ops,
};
