/* Lists of taps of one dimension, as struct dlb_taps_desc has them. */
#ifndef DLB_OP_TAP_LIST_H
#define DLB_OP_TAP_LIST_H
#include "tensor/backend.h"

/* The taps of n indices. Zero-initialised it is empty; release it with dlb_tap_list_release. */
struct dlb_tap_list { int64_t n, *end, n_taps, cap_taps; struct dlb_tap *tap; };
/* Lists without taps for n indices. */
void dlb_tap_list_start(struct dlb_tap_list *l, int64_t n);
/* Adds a tap to index i, which is not below that of the last call. */
void dlb_tap_list_add(struct dlb_tap_list *l, int64_t i, int64_t from, double w);
/* Closes the lists, after the last tap. */
void dlb_tap_list_end(struct dlb_tap_list *l);
/* For n positions: the indices that have a tap there, with its weight, in ascending order. */
void dlb_tap_list_transpose(const struct dlb_tap_list *l, int64_t n, struct dlb_tap_list *to);
void dlb_tap_list_release(struct dlb_tap_list *l);
#endif
