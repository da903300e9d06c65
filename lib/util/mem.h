/* Memory: checked allocation (out of host memory reports and exits 2) and an arena.
 *
 * An arena owns everything that was taken from it and is released once; dlb_arena_alloc returns
 * zeroed memory aligned to 16 bytes. dlb_xmalloc and friends are for the heap. */
#ifndef DLB_UTIL_MEM_H
#define DLB_UTIL_MEM_H
#include <stddef.h>

struct dlb_arena { struct dlb_arena_block *head; size_t used_bytes; };

void *dlb_arena_alloc(struct dlb_arena *a, size_t bytes);
void *dlb_arena_array(struct dlb_arena *a, size_t n, size_t size);	/* overflow: exits like out of memory */
char *dlb_arena_strdup(struct dlb_arena *a, const char *s);
char *dlb_arena_printf(struct dlb_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void dlb_arena_release(struct dlb_arena *a);
void dlb_arena_give(struct dlb_arena *from, struct dlb_arena *to);	/* all that `from` owns is `to`'s from now on */

void *dlb_xmalloc(size_t bytes);
void *dlb_xcalloc(size_t n, size_t size);
void *dlb_xrealloc(void *p, size_t n, size_t size);
char *dlb_xstrdup(const char *s);
char *dlb_xprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));	/* returns new */

/* Grows array `p` of n elements (capacity *cap) so that one more fits. */
#define DLB_GROW(p, n, cap) \
	do { if ((n) >= (cap)) { (cap) = (cap) ? 2 * (cap) : 16; \
		(p) = dlb_xrealloc((p), (size_t)(cap), sizeof *(p)); } } while (0)
#define DLB_LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))
#endif
