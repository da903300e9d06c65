/* The room for processes, the largest lack of it, and the bytes that are left to a plan: by hand. */
#include "check.h"
#include <math.h>
#include "plan/process_bytes.h"

/* Two nodes of one host, one of another, and a device, whose memory is no host's. */
static void test_room(void)
{
	struct dlb_cluster c;
	struct dlb_error err;
	struct dlb_memory_room room[4];

	assert(IS(dlb_cluster_parse("cpu:2@3GB host cpu:1@5GB cpu/4:1@7GB", &c, &err), ==, 0));
	c.kind[c.node[3].kind].backend = "cuda";
	dlb_memory_room_of(&c, room);
	assert(IS(room[0].host, ==, 0) && IS(room[1].host, ==, 0) && IS(room[2].host, ==, 2) &&
	       IS(room[3].host, ==, -1));
	assert(IS(room[0].host_bytes, ==, dlb_cluster_node_memory(&c, 0) + dlb_cluster_node_memory(&c, 1)) &&
	       IS(room[1].host_bytes, ==, room[0].host_bytes) &&
	       IS(room[2].host_bytes, ==, dlb_cluster_node_memory(&c, 2)));
	for (int i = 0; i < 4; i++)
		assert(isinf(room[i].process_bytes));
	dlb_cluster_release(&c);
}

static const struct dlb_memory_need need[] = { { 8e9, 6e9 }, { 9e9, 7e9 }, { 5e8, 5e8 }, { 9e12, 9e12 } };

/* The lack of a host, of one process below its own limit, of both (the larger counts), of none. */
static void test_lacks(void)
{
	static const struct {
		double host_bytes, process_bytes; /* of the first host, of node 1 */
		int first, n;
		double need_bytes, room_bytes;
		const char *text;
	} rows[] = {
		{ 10e9, INFINITY, 0, 2, 13e9, 10e9,
		  "the processes of node 0 and 1 more of its host need 13 GB of memory, which has 10 GB" },
		{ 20e9, 4.5e9, 1, 1, 9e9, 4.5e9,
		  "the process of node 1 needs 9 GB of memory, its limit (ulimit) is 4.5 GB" },
		{ 10e9, 4.5e9, 1, 1, 9e9, 4.5e9, NULL },
		{ 10e9, 8e9, 0, 2, 13e9, 10e9, NULL },
		{ 13e9, 9e9, 0, 0, 0, 0, NULL },
	};

	for (int i = 0; i < DLB_LEN(rows); i++) {
		const struct dlb_memory_room room[] = { { 0, rows[i].host_bytes, INFINITY },
							{ 0, rows[i].host_bytes, rows[i].process_bytes },
							{ 2, 6e8, INFINITY },
							{ -1, 1, 1 } };
		struct dlb_memory_lack lack;
		char text[DLB_MEMORY_TEXT];

		assert(IS(dlb_memory_lacks(need, room, 4, &lack), ==, rows[i].n > 0));
		assert(IS(lack.first, ==, rows[i].first) && IS(lack.n, ==, rows[i].n) &&
		       IS(lack.need_bytes, ==, rows[i].need_bytes) &&
		       IS(lack.room_bytes, ==, rows[i].room_bytes));
		if (rows[i].text) {
			dlb_memory_lack_text(&lack, room, text);
			assert(SAME(text, rows[i].text));
		}
	}
	/* the only node of its host */
	const struct dlb_memory_room room[] = {
		{ 0, 2e10, INFINITY }, { 0, 2e10, INFINITY }, { 2, 4e8, INFINITY }, { -1, 1, 1 }
	};
	struct dlb_memory_lack lack;
	char text[DLB_MEMORY_TEXT];

	assert(dlb_memory_lacks(need, room, 4, &lack));
	dlb_memory_lack_text(&lack, room, text);
	assert(SAME(text, "the process of node 2 needs 500 MB of memory, its host has 400 MB"));
}

/* Peaks of 2 GB and 3 GB of 13 GB on a host with 10 GB: if the other 8 GB stay, 2 GB are left; in proportion,
 * 10 * 5 / 13. Each node gets half. Node 1's process has 4 GB of 9 GB: if the other 6 stay, -2 GB are left
 * (then the limit is 1 byte); in proportion, 4 * 3 / 9. Node 2 has room; a device sets no limit. */
static void test_limit(void)
{
	const double peak_bytes[] = { 2e9, 3e9, 1e8, 9e12 };
	struct dlb_memory_room room[] = {
		{ 0, 10e9, INFINITY }, { 0, 10e9, INFINITY }, { 2, 6e9, INFINITY }, { -1, 1, 1 }
	};

	assert(IS(fabs(dlb_memory_limit(need, room, 4, peak_bytes, false) - 1e9), <, 1));
	assert(IS(fabs(dlb_memory_limit(need, room, 4, peak_bytes, true) - 25e9 / 13), <, 1));
	room[1].process_bytes = 4e9;
	assert(IS(dlb_memory_limit(need, room, 4, peak_bytes, false), ==, 1));
	assert(IS(fabs(dlb_memory_limit(need, room, 4, peak_bytes, true) - 4e9 / 3), <, 1));
	room[0].host_bytes = room[1].host_bytes = 100e9;
	room[1].process_bytes = INFINITY;
	room[2].host_bytes = 4.5e8; /* 4e8 stay: 5e7; in proportion 4.5e8 / 5 */
	assert(IS(fabs(dlb_memory_limit(need, room, 4, peak_bytes, false) - 5e7), <, 1));
	assert(IS(fabs(dlb_memory_limit(need, room, 4, peak_bytes, true) - 9e7), <, 1));
	/* the least of a process, alone and among several */
	assert(IS(dlb_process_least_bytes(1), ==, 3.3e6) && IS(dlb_process_least_bytes(2), ==, 6.6e6));
}

int main(void)
{
	test_room();
	test_lacks();
	test_limit();
	puts("test_processes: room, lacks and limits of processes");
	return 0;
}
