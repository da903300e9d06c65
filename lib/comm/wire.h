/* Elements on the wire: loops over n units (allreduce.h) of one type, in memory format (x) and in wire format
 * (w). */
#ifndef DLB_COMM_WIRE_H
#define DLB_COMM_WIRE_H
#include "comm/allreduce.h"

struct dlb_wire_loops {
	void (*pack)(void *x, void *w, int64_t n);	/* w = x, rounded; x = w. NULL: x itself is sent */
	void (*add)(void *x, const void *w, int64_t n);		/* x += w */
	void (*take)(void *x, const void *w, int64_t n);	/* x = w */
	void (*round)(void *x, int64_t n);			/* rounds x as pack does; NULL: no rounding */
	/* x += w, then copies x to on (may alias w), past the caches if `far`; NULL: unsupported */
	void (*pass)(void *x, const void *w, void *on, int64_t n, bool far);
};
const struct dlb_wire_loops *dlb_wire_loops(enum dlb_wire wire, enum dlb_dtype dtype); /* NULL: unsupported */
#endif
