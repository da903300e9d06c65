/* Runs kernels on the host: the threads of a block one after another; those with barriers as coroutines that
 * change at each barrier. */
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>
#include "emulate.h"
#include "host.h"

struct dim3 threadIdx, blockIdx, blockDim, gridDim;
static struct cuda_host_kernel *kernels;

cuda_host_kernel::cuda_host_kernel(const char *name_, size_t bytes, bool barriers_, void (*call_)(const void *))
	: name(name_), arg_bytes(bytes), barriers(barriers_), call(call_), next(kernels)
{
	kernels = this;
}

extern "C" const void *cuda_host_find(const char *name)
{
	for (struct cuda_host_kernel *k = kernels; k; k = k->next)
		if (!strcmp(k->name, name))
			return k;
	return NULL;
}
extern "C" const char *cuda_host_name(const void *kernel) { return ((const cuda_host_kernel *)kernel)->name; }
extern "C" size_t cuda_host_arg_bytes(const void *kernel) { return ((const cuda_host_kernel *)kernel)->arg_bytes; }

/* ---- coroutines: the threads of one block. A context starts a thread; later changes are jumps, since changing
 * contexts asks the system each time. ---- */
enum { THREADS = 1024, STACK = 64 << 10 };
struct thread { ucontext_t start; jmp_buf at; char *stack; bool begun, done; };
static struct thread thread_of[THREADS];
static jmp_buf scheduler;
static unsigned running;
static bool in_block;
static const struct cuda_host_kernel *now;
static const void *now_args;

void cuda_host_barrier(void)
{
	if (!in_block)
		cuda_host_abort(now ? now->name : "?", "a barrier in a KERNEL; declare it as BLOCK_KERNEL");
	if (!_setjmp(thread_of[running].at))
		_longjmp(scheduler, 1);
	threadIdx.x = running;
}

static void body(void)
{
	now->call(now_args);
	thread_of[running].done = true;
	_longjmp(scheduler, 1);
}

static void make_thread(struct thread *x)
{
	if (!x->stack)
		x->stack = (char *)malloc(STACK);
	getcontext(&x->start);
	x->start.uc_stack.ss_sp = x->stack;
	x->start.uc_stack.ss_size = STACK;
	x->begun = x->done = false;
	makecontext(&x->start, body, 0);
}

/* Runs thread t to its next barrier, or to its end. */
static void go_on(unsigned t)
{
	struct thread *x = &thread_of[t];

	running = t;
	threadIdx.x = t;
	if (_setjmp(scheduler))
		return;
	if (x->begun)
		_longjmp(x->at, 1);
	x->begun = true;
	setcontext(&x->start);
}

static void run_block(unsigned n)
{
	unsigned left = n;

	for (unsigned t = 0; t < n; t++)
		make_thread(&thread_of[t]);
	in_block = true;
	while (left) {
		unsigned ended = 0;

		for (unsigned t = 0; t < n; t++)
			if (!thread_of[t].done) {
				go_on(t);
				ended += thread_of[t].done;
			}
		if (ended && ended != left)
			cuda_host_abort(now->name, "some threads of a block end while others wait at a barrier");
		left -= ended;
	}
	in_block = false;
}

extern "C" void cuda_host_run(const void *kernel, const void *args, unsigned blocks, unsigned threads)
{
	now = (const struct cuda_host_kernel *)kernel;
	now_args = args;
	gridDim = { blocks, 1, 1 };
	blockDim = { threads, 1, 1 };
	threadIdx = { 0, 0, 0 };
	for (unsigned b = 0; b < blocks; b++) {
		blockIdx = { b, 0, 0 };
		if (now->barriers) {
			run_block(threads);
			continue;
		}
		for (unsigned t = 0; t < threads; t++) {
			threadIdx.x = t;
			now->call(args);
		}
	}
	now = NULL;
}
