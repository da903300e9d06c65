/* Checked allocation and the arena: see mem.h. Blocks grow with the arena, so a document of a hundred
 * thousand ops needs a few dozen. */
#include "util/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "util/mapped.h"

/* Under AddressSanitizer the bytes behind each piece of an arena are poisoned, as behind a piece of the
 * heap. */
#ifdef DLB_MOVES_OFTEN
#include <sanitizer/asan_interface.h>
enum { BEHIND = 16 };
#else
enum { BEHIND = 0 };
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

static _Noreturn void out_of_memory(size_t bytes)
{
	fprintf(stderr, "dlb: out of memory: cannot allocate %zu bytes\n", bytes);
	exit(2);
}

static size_t product(size_t n, size_t size)
{
	if (size && n > SIZE_MAX / 2 / size)
		out_of_memory(SIZE_MAX);
	return n * size;
}

void *dlb_xmalloc(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (!p)
		out_of_memory(bytes);
	return p;
}

void *dlb_xcalloc(size_t n, size_t size)
{
	size_t bytes = product(n, size);
	void *p = calloc(bytes ? bytes : 1, 1);

	if (!p)
		out_of_memory(bytes);
	return p;
}

void *dlb_xrealloc(void *p, size_t n, size_t size)
{
	size_t bytes = product(n, size);
	void *q = realloc(p, bytes ? bytes : 1);

	if (!q)
		out_of_memory(bytes);
	return q;
}

char *dlb_xstrdup(const char *s)
{
	size_t n = strlen(s) + 1;

	return memcpy(dlb_xmalloc(n), s, n);
}

/* Formats text; `take` allocates n bytes from `from`. */
__attribute__((format(printf, 3, 0), nonnull(3)))
static char *print(void *(*take)(void *from, size_t n), void *from, const char *fmt, va_list ap)
{
	va_list again;
	char *s;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		n = 0;
	s = take(from, (size_t)n + 1);
	vsnprintf(s, (size_t)n + 1, fmt, ap);
	return s;
}

static void *take_heap(void *from, size_t n)
{
	(void)from;
	return dlb_xcalloc(n, 1);
}

static void *take_arena(void *from, size_t n)
{
	return dlb_arena_alloc(from, n);
}

char *dlb_xprintf(const char *fmt, ...)
{
	va_list ap;
	char *s;

	va_start(ap, fmt);
	s = print(take_heap, NULL, fmt, ap);
	va_end(ap);
	return s;
}

/* ---- the arena ---- */

struct dlb_arena_block {
	struct dlb_arena_block *next;
	void *mapped;			/* a file of mapped_bytes, alone in this block */
	size_t size, used, mapped_bytes;
	_Alignas(16) unsigned char data[];
};

static struct dlb_arena_block *new_block(size_t size)
{
	struct dlb_arena_block *b;

	if (size > SIZE_MAX / 2)
		out_of_memory(size);
	b = dlb_xcalloc(1, sizeof *b + size);
	b->size = size;
	ASAN_POISON_MEMORY_REGION(b->data, size);
	return b;
}

/* Inserts a full block b after the head, so that small pieces are still taken from the head. */
static void insert(struct dlb_arena *a, struct dlb_arena_block *b)
{
	struct dlb_arena_block **at = a->head ? &a->head->next : &a->head;

	b->next = *at;
	*at = b;
}

void *dlb_arena_alloc(struct dlb_arena *a, size_t bytes)
{
	struct dlb_arena_block *b = a->head;
	size_t need, size;
	void *p;

	if (bytes > SIZE_MAX / 2)
		out_of_memory(bytes);
	need = (bytes ? (bytes + 15) / 16 * 16 : 16) + BEHIND;
	if (!b || b->size - b->used < need) {
		size = a->used_bytes < 4096 ? 4096 : a->used_bytes > 1 << 20 ? 1 << 20 : a->used_bytes;
		/* a large piece gets a block of its own behind the current one */
		if (need > size / 4 && b) {
			struct dlb_arena_block *own = new_block(need);

			insert(a, own);
			b = own;
		} else {
			b = new_block(size > need ? size : need);
			b->next = a->head;
			a->head = b;
		}
	}
	p = b->data + b->used;
	b->used += need;
	a->used_bytes += need - BEHIND;
	ASAN_UNPOISON_MEMORY_REGION(p, bytes);
	return p;
}

void *dlb_arena_array(struct dlb_arena *a, size_t n, size_t size)
{
	return dlb_arena_alloc(a, product(n, size));
}

char *dlb_arena_strdup(struct dlb_arena *a, const char *s)
{
	size_t n = strlen(s) + 1;

	return memcpy(dlb_arena_alloc(a, n), s, n);
}

char *dlb_arena_printf(struct dlb_arena *a, const char *fmt, ...)
{
	va_list ap;
	char *s;

	va_start(ap, fmt);
	s = print(take_arena, a, fmt, ap);
	va_end(ap);
	return s;
}

void dlb_arena_release(struct dlb_arena *a)
{
	if (!a)
		return;
	for (struct dlb_arena_block *b = a->head, *next; b; b = next) {
		next = b->next;
		dlb_mapped_free(b->mapped, b->mapped_bytes);
		free(b);
	}
	a->head = NULL;
	a->used_bytes = 0;
}

void dlb_arena_give(struct dlb_arena *from, struct dlb_arena *to)
{
	struct dlb_arena_block **last = &to->head;

	while (*last)
		last = &(*last)->next;
	*last = from->head;
	to->used_bytes += from->used_bytes;
	from->head = NULL;
	from->used_bytes = 0;
}

void *dlb_arena_map(struct dlb_arena *a, int fd, size_t bytes, const char *path)
{
	void *p = dlb_mapped_new(fd, bytes, path);
	struct dlb_arena_block *b;

	if (!p)
		return NULL;
	b = new_block(0);
	b->mapped = p;
	b->mapped_bytes = bytes;
	insert(a, b);
	return p;
}

void dlb_arena_give_mapped(struct dlb_arena *from, struct dlb_arena *to)
{
	for (struct dlb_arena_block **at = &from->head, *b; (b = *at);) {
		if (!b->mapped) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		insert(to, b);
	}
}

bool dlb_arena_maps(const struct dlb_arena *a, const void *p)
{
	for (const struct dlb_arena_block *b = a->head; b; b = b->next)
		if (b->mapped && (uintptr_t)p >= (uintptr_t)b->mapped &&
		    (uintptr_t)p - (uintptr_t)b->mapped < b->mapped_bytes)
			return true;
	return false;
}
