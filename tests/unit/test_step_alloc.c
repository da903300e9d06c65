/* Our code allocates nothing in a step: a measurement with more steps makes the same number of calls to
 * malloc and similar functions. Calls are distinguished by their caller: oneDNN's execute always allocates
 * its list of arguments, which cannot be avoided; such calls are counted in `external` and printed. */
#include <stdio.h>
#include <stdlib.h>
#include "exec/exec.h"
#include "exec/profiling.h"
#include "graph/graph.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "model/onnx.h"
#include "util/mem.h"

#if defined(__clang__)
#define HAS_ASAN __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#else
#define HAS_ASAN 0
#endif
#if HAS_ASAN || !defined(__GLIBC__)
#define COUNTED 0
static int calls, external;
#else
#define COUNTED 1
#endif

#if COUNTED
static int calls, external;
extern char __executable_start, etext;		/* defined by the linker: begin and end of our code */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
static void count(const char *caller)
{
	__atomic_add_fetch(caller >= &__executable_start && caller < &etext ? &calls : &external, 1,
			   __ATOMIC_RELAXED);
}
void *malloc(size_t n) { count(__builtin_return_address(0)); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { count(__builtin_return_address(0)); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { count(__builtin_return_address(0)); return __libc_realloc(p, n); }
void *aligned_alloc(size_t align, size_t n)
{
	count(__builtin_return_address(0));
	return __libc_memalign(align, n);
}
int posix_memalign(void **p, size_t align, size_t n)
{
	count(__builtin_return_address(0));
	*p = __libc_memalign(align, n);
	return *p ? 0 : 12;		/* ENOMEM */
}
#endif

static int external_per_step;

static void must(int rc, const struct dlb_error *err)
{
	if (!rc)
		return;
	dlb_error_print(stderr, "test_step_alloc", -1, err);
	abort();
}

/* Number of calls to malloc and similar functions in a measurement of this many steps, with setup and end. */
static int calls_for(const struct dlb_graph *g, struct dlb_backend *be, int64_t n, int steps)
{
	struct dlb_error err = { .what = "" };
	double *op_s = dlb_xcalloc((size_t)g->n_ops, sizeof *op_s);
	int before = calls;
	struct dlb_measurement *m;
	must(dlb_measurement_open(g, be, n, &m, &err), &err);
	must(dlb_measurement_run(m, steps, 1, &err), &err);
	dlb_measurement_medians(m, op_s, NULL, NULL);
	dlb_measurement_free(m);
	free(op_s);
	return calls - before;
}

static void test_model(const char *path, struct dlb_backend *be)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	must(dlb_onnx_read(path, &g, &err), &err);
	g.training = true;
	must(dlb_graph_fold(&g, 4, be, &err) || dlb_graph_find_parameters(&g, &err) ||
		     dlb_graph_attach_loss(&g, NULL, &err) || dlb_graph_choose_layout(&g, &err) ||
		     dlb_graph_differentiate(&g, &err) || dlb_graph_index(&g),
	     &err);
	calls_for(&g, be, 4, 2);			/* libraries cache at first use */
	int few = calls_for(&g, be, 4, 2);
	external = 0;
	int many = calls_for(&g, be, 4, 12);
	external_per_step += external / 13;
	if (few <= 0 || many != few) {
		fprintf(stderr, "%s: %d calls with 3 steps, %d with 13\n", path, few, many);
		abort();
	}
	dlb_graph_release(&g);
}

int main(void)
{
	static const char *const models[] = { "digits_mlp", "digits_cnn", "lenet5", "resnet8" };
	struct dlb_error err = { .what = "" };
	struct dlb_backend be;
	if (!COUNTED) {
		printf("calls to malloc are not counted in this build\n");
		return 77;
	}
	must(dlb_backend_find("cpu")->open(0, 1, &be, &err), &err);
	for (int i = 0; i < DLB_LEN(models); i++) {
		char path[64];
		snprintf(path, sizeof path, "share/models/%s.onnx", models[i]);
		test_model(path, &be);
	}
	be.ops->close(&be);
	printf("test_step_alloc: %d models; a step of each makes no call of ours, %d of libraries in all\n",
	       DLB_LEN(models), external_per_step);
	return 0;
}
