/* Memory: checked allocation (running out of host memory prints an error and exits 2), and an arena.
 *
 * An arena owns everything allocated from it and is released once; files may be mapped into it too.
 * dlb_arena_alloc returns zeroed memory aligned to 16 bytes. dlb_xmalloc and the like use the heap. */
#ifndef DLB_UTIL_MEM_H
#define DLB_UTIL_MEM_H
#include <stdbool.h>
#include <stddef.h>

struct dlb_arena { struct dlb_arena_block *head; size_t used_bytes; };

void *dlb_arena_alloc(struct dlb_arena *a, size_t bytes);
/* overflow: exits, as out of memory */
void *dlb_arena_array(struct dlb_arena *a, size_t n, size_t size);
char *dlb_arena_strdup(struct dlb_arena *a, const char *s);
char *dlb_arena_printf(struct dlb_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void dlb_arena_release(struct dlb_arena *a);
/* `to` now owns all memory of `from` */
void dlb_arena_give(struct dlb_arena *from, struct dlb_arena *to);
/* Maps the first `bytes` of an open file (mapped.h). NULL with errno. */
void *dlb_arena_map(struct dlb_arena *a, int fd, size_t bytes, const char *path);
/* `to` now owns the files that are mapped into `from`; `from` keeps its other memory. */
void dlb_arena_give_mapped(struct dlb_arena *from, struct dlb_arena *to);
bool dlb_arena_maps(const struct dlb_arena *a, const void *p);	/* p lies in a mapped file of a */

void *dlb_xmalloc(size_t bytes);
void *dlb_xcalloc(size_t n, size_t size);
void *dlb_xrealloc(void *p, size_t n, size_t size);
char *dlb_xstrdup(const char *s);
char *dlb_xprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));	/* returns new */

/* Next capacity of an array of n elements. Under AddressSanitizer small arrays move with every element, so
 * that tests find pointers used after the array has grown. */
#if defined __SANITIZE_ADDRESS__
#define DLB_MOVES_OFTEN 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define DLB_MOVES_OFTEN 1
#endif
#endif
#ifdef DLB_MOVES_OFTEN
#define DLB_MORE(n, cap) ((n) < 512 ? (n) + 1 : 2 * (n))
#else
#define DLB_MORE(n, cap) ((cap) ? 2 * (cap) : 16)
#endif

/* Makes space for one more element in array `p` of n elements and capacity `cap`. */
#define DLB_GROW(p, n, cap) \
	do { if ((n) >= (cap)) { (cap) = DLB_MORE(n, cap); \
		(p) = dlb_xrealloc((p), (size_t)(cap), sizeof *(p)); } } while (0)
#define DLB_LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))
#endif
