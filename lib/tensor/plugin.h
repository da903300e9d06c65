/* A plug-in: a back end in a shared object of its own, so that tools start where its libraries are missing.
 *
 * The object dlb-NAME.so exports one struct dlb_plugin named dlb_plugin. It is loaded (backends.c) from the
 * folder in DLB_PLUGIN_DIR, or else from lib/dlb beside the tool's own folder bin. */
#ifndef DLB_TENSOR_PLUGIN_H
#define DLB_TENSOR_PLUGIN_H
#include "tensor/backend.h"

struct dlb_plugin {
	size_t size;		/* DLB_PLUGIN_SIZE of the headers that it was compiled with */
	const struct dlb_backend_ops *ops;
	/* Number of devices that can be used; 0 with err: the reason why there is none. */
	int (*n_devices)(struct dlb_error *err);
};
/* A plug-in of another version is refused: changes with the tables and descriptors that both sides share. */
#define DLB_PLUGIN_SIZE \
	(sizeof(struct dlb_plugin) + sizeof(struct dlb_backend_ops) + sizeof(struct dlb_run) + \
	 sizeof(struct dlb_kernel) + sizeof(struct dlb_attention_desc) + sizeof(struct dlb_conv_desc) + \
	 sizeof(struct dlb_loss_desc) + sizeof(struct dlb_update_desc) + (size_t)DLB_N_MAPS)
#endif
