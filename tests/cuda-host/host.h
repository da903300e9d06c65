/* Between the parts of the stand-in: streams and memory (runtime.c), kernels (emulate.cpp), libraries. */
#ifndef CUDA_HOST_HOST_H
#define CUDA_HOST_HOST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cuda_runtime_api.h"
#ifdef __cplusplus
extern "C" {
#endif
/* Prints "cuda-host: CALL: WHAT" and aborts. */
void cuda_host_abort(const char *call, const char *what) __attribute__((noreturn));
/* The number in a variable of the environment; `otherwise` without it. */
uint64_t cuda_host_setting(const char *name, uint64_t otherwise);
/* True if this call is the one that DLB_CUDA_HOST_FAIL counts to. Every entry point asks once. */
bool cuda_host_fails(void);
/* Aborts unless [p, p + bytes) lies in one allocation of device memory. */
void cuda_host_must_be_device(const char *call, const void *p, size_t bytes);
/* Queues run(arg) on the stream; arg is copied. Device memory can be reached while it runs. */
void cuda_host_enqueue(cudaStream_t stream, void (*run)(void *arg), const void *arg, size_t bytes);

const void *cuda_host_find(const char *name);		/* a kernel of emulate.cpp; NULL: none */
const char *cuda_host_name(const void *kernel);
size_t cuda_host_arg_bytes(const void *kernel);
void cuda_host_run(const void *kernel, const void *args, unsigned blocks, unsigned threads);
#ifdef __cplusplus
}
#endif
#endif
