/* A plug-in: a back end in a shared object of its own, so that tools start where its libraries are missing.
 *
 * The object dlb-NAME.so exports one struct dlb_plugin named dlb_plugin. It is loaded (backends.c) from the
 * folder in DLB_PLUGIN_DIR, or else from lib/dlb beside the tool's own folder bin. */
#ifndef DLB_TENSOR_PLUGIN_H
#define DLB_TENSOR_PLUGIN_H
#include "tensor/backend.h"

/* abi: DLB_PLUGIN_ABI, a checksum (by the Makefile) of the headers of lib/tensor that both sides share. A
 * plug-in that was compiled with other headers is refused. */
struct dlb_plugin {
	size_t abi;
	const struct dlb_backend_ops *ops;
};
#endif
