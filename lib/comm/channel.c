/* Channels between ranks of one host. See comm.h.
 *
 * Each end counts its messages; the cell holds the counts that the other end must know. After a place is
 * posted, the sender owns it until `filled` reaches the message's number; then the receiver owns it again. A
 * message read in place needs no posted place and arrives at once, unless the sender is so far ahead that its
 * entry of `in_place` would overwrite one that the receiver has not read. */
#include <stdatomic.h>
#include "comm/shared.h"
#include "util/clock.h"

/* Whether `count` has reached n. Counts only grow, and may wrap. */
static bool reached(const _Atomic uint32_t *count, uint32_t n)
{
	return (int32_t)(atomic_load_explicit(count, memory_order_acquire) - n) >= 0;
}

void dlb_channel_post(struct dlb_channel *ch, int peer, struct dlb_request *r)
{
	*r = (struct dlb_request){
		.peer = peer, .active = true, .receives = true, .channel = ch, .nth = ++ch->n
	};
	atomic_store_explicit(&ch->cell->posted, ch->n, memory_order_release);
	if (ch->wakeup)
		dlb_wakeup_send(ch->wakeup);
}

bool dlb_channel_ready(const struct dlb_channel *ch)
{
	return !ch->first && reached(&ch->cell->posted, ch->n + 1);
}

void dlb_channel_queue(struct dlb_channel *ch, struct dlb_request *r)
{
	struct dlb_request **at = &ch->first;

	while (*at)
		at = &(*at)->later;
	*at = r;
}

bool dlb_channel_push(struct dlb_channel *ch)
{
	struct dlb_request *r;

	while ((r = ch->first) &&
	       reached(&ch->cell->posted, r->in_place ? r->nth - (DLB_CELL_WAYS - 1) : r->nth)) {
		if (r->from != r->to && !r->in_place) {
			double from_s = dlb_clock_s();
			dlb_copy_there(&ch->copy_tuner, r->to, r->from, r->bytes);
			ch->copied_s += dlb_clock_s() - from_s;
		}
		atomic_store_explicit(&ch->cell->in_place[r->nth % DLB_CELL_WAYS], r->in_place,
				      memory_order_relaxed);
		atomic_store_explicit(&ch->cell->filled, r->nth, memory_order_release);
		if (ch->wakeup)
			dlb_wakeup_send(ch->wakeup);
		ch->first = r->later;
		r->active = r->returned;
	}
	return !ch->first;
}

bool dlb_channel_test(struct dlb_request *r)
{
	if (r->receives && reached(&r->channel->cell->filled, r->nth))
		r->active = false;
	if (r->returned && reached(&r->channel->cell->returned, r->nth))
		r->active = false;
	return !r->active;
}

bool dlb_channel_is_in_place(const struct dlb_request *r)
{
	return atomic_load_explicit(&r->channel->cell->in_place[r->nth % DLB_CELL_WAYS],
				    memory_order_relaxed);
}

void dlb_channel_return(struct dlb_channel *ch)
{
	atomic_store_explicit(&ch->cell->returned, ++ch->n_returned, memory_order_release);
	if (ch->wakeup)
		dlb_wakeup_send(ch->wakeup);
}
