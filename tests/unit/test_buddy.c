/* Copies of the state on one rank: buddies, checksums, and slots that are sealed, torn or damaged. Several
 * ranks and hosts: tests/buddy.bats, tests/hosts.bats. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "exec/buddy.h"
#include "exec/copies.h"
#include "exec/job.h"
#include "exec/state.h"
#include "util/hash.h"
#include "util/mem.h"
#include "check.h"
#include "random_dag.h"

static void must(int rc, const struct dlb_error *err)
{
	if (!rc)
		return;
	dlb_error_print(stderr, "test_buddy", -1, err);
	abort();
}

static void test_choose(void)
{
	enum { N = 7 };
	const struct {
		int n, host[N];
		int most;
	} cases[] = {
		{ 2, { 0, 1 }, 1 },
		{ 4, { 0, 0, 2, 2 }, 1 },
		{ 3, { 0, 0, 2 }, 2 },
		{ 3, { 0, 1, 2 }, 1 },
		{ 7, { 0, 0, 0, 3, 3, 3, 6 }, 1 },
		{ 5, { 0, 1, 0, 1, 0 }, 2 },
		{ 3, { 0, 0, 0 }, 0 },
		{ 1, { 0 }, 0 },
	};

	for (int c = 0; c < DLB_LEN(cases); c++) {
		int buddy[N], wards[N] = { 0 };

		dlb_buddy_choose(cases[c].host, cases[c].n, buddy);
		for (int i = 0; i < cases[c].n; i++) {
			assert(IS(buddy[i] < 0, ==, cases[c].most == 0));
			if (buddy[i] < 0)
				continue;
			assert(IS(cases[c].host[buddy[i]], !=, cases[c].host[i]));
			assert(IS(++wards[buddy[i]], <=, cases[c].most));
		}
	}
}

/* In pieces or at once, each bit counts, and the order of words. */
static void test_checksum(void)
{
	unsigned char x[1000];
	uint64_t whole, sum;

	for (size_t i = 0; i < sizeof x; i++)
		x[i] = (unsigned char)(i * i >> 3);
	for (size_t n = 0; n <= sizeof x; n += 37) {
		struct dlb_checksum a = { { 0 } }, b = { { 0 } };

		dlb_checksum_add(&a, x, n);
		dlb_checksum_add(&b, x, n / 64 * 32);
		dlb_checksum_add(&b, x + n / 64 * 32, n - n / 64 * 32);
		whole = dlb_checksum_end(&a);
		assert(whole == dlb_checksum_end(&b));
		for (size_t bit = 0; bit < 8 * n; bit += 5) {
			struct dlb_checksum c = { { 0 } };

			x[bit / 8] ^= (unsigned char)(1 << bit % 8);
			dlb_checksum_add(&c, x, n);
			sum = dlb_checksum_end(&c);
			x[bit / 8] ^= (unsigned char)(1 << bit % 8);
			assert(sum != whole);
		}
	}
}

/* ---- slots ---- */

enum { N_WEIGHTS = 3, MOST = 5000 };
/* Weights with an update of their own, one that is not trained, and their values. */
struct model {
	struct dlb_graph g;
	struct dlb_op op[N_WEIGHTS];
	struct dlb_tensor tensor[N_WEIGHTS];
	struct dlb_backend be;
	struct dlb_state s;
	int placement[N_WEIGHTS];
};

static void make_model(struct model *m)
{
	static const char *const names[] = { "a", "constant", "b" };
	static const int64_t size[] = { 7, 11, MOST };
	struct dlb_error err;

	memset(m, 0, sizeof *m);
	must(dlb_backend_find("cpu")->open(0, 1, &m->be, &err), &err);
	for (int i = 0; i < N_WEIGHTS; i++) {
		m->op[i].phase = i == 1 ? DLB_FORWARD : DLB_UPDATE;
		m->tensor[i] = (struct dlb_tensor){ .name = names[i],
						    .kind = DLB_T_WEIGHT,
						    .dtype = DLB_F32,
						    .n_dims = 1,
						    .dim = { { size[i], 0 } },
						    .home = i };
	}
	m->g.op = m->op;
	m->g.tensor = m->tensor;
	m->g.n_ops = m->g.n_tensors = N_WEIGHTS;
	const struct dlb_local_graph l = { .graph = &m->g, .be = &m->be, .placement = m->placement };
	must(dlb_state_init(&m->s, &l, -1, false, NULL, &err), &err);
}

static void set_weights(struct model *m, float x)
{
	for (int t = 0; t < N_WEIGHTS; t++)
		for (int i = 0; i < (t == 2 ? MOST : 7); i++)
			((float *)m->s.value[t])[i] = x + (float)i;
}

static struct dlb_progress_state at(int64_t step)
{
	return (struct dlb_progress_state){ .step = step,
					    .epoch = step / 3,
					    .position = 4 * step,
					    .seed = 9,
					    .best_loss = HUGE_VAL,
					    .best_test_loss = HUGE_VAL };
}

static void copy(struct model *m, struct dlb_buddy *b, int64_t step, bool settles)
{
	const struct dlb_progress_state p = at(step);
	struct dlb_error err;

	set_weights(m, (float)step);
	must(dlb_buddy_copy(b, NULL, &p, &err), &err);
	assert(dlb_buddy_under_way(b));
	if (settles)
		must(dlb_buddy_settle(b, true, &err), &err);
}

/* The step of the newest copy; with m it is loaded, and checked. */
static int64_t newest(const char *name, struct dlb_comm *comm, struct model *m)
{
	struct dlb_buddy_found *f;
	struct dlb_progress_state p;
	struct dlb_error err;
	int64_t step;

	must(dlb_buddy_find(&f, name, comm, &err), &err);
	step = dlb_buddy_found_step(f);
	if (m && step >= 0) {
		set_weights(m, -1);
		must(dlb_buddy_load(f, &m->s, &p, &err), &err);
		assert(p.step == step && p.epoch == step / 3 && p.position == 4 * step && p.seed == 9);
		for (int t = 0; t < N_WEIGHTS; t++)
			for (int i = 0; i < (t == 2 ? MOST : 7); i++)
				assert(((float *)m->s.value[t])[i] ==
				       (t == 1 ? -1.0F : (float)step) + (float)i);
	}
	dlb_buddy_found_free(f);
	return step;
}

/* Flips the last byte of the files of a slot, or cuts them. */
static void damage(const char *name, const char *end, bool cut)
{
	char folder[DLB_COPIES_PATH];

	dlb_copies_path(name, folder);
	DIR *dir = opendir(folder);
	for (struct dirent *d; (d = readdir(dir));) {
		char *path = dlb_xprintf("%s/%s", folder, d->d_name);
		FILE *f = strstr(d->d_name, end) ? fopen(path, "r+b") : NULL;

		if (f) {
			long size;

			fseek(f, 0, SEEK_END);
			size = ftell(f);
			fseek(f, -1, SEEK_END);
			const int c = fgetc(f);
			fseek(f, -1, SEEK_END);
			fputc(c ^ 16, f);
			fclose(f);
			if (cut)
				assert(truncate(path, size - 1) == 0);
		}
		free(path);
	}
	closedir(dir);
}

static void test_slots(void)
{
	char name[DLB_COPIES_NAME], folder[DLB_COPIES_PATH];
	struct model m;
	struct dlb_comm *comm;
	struct dlb_buddy *b;
	struct dlb_error err;

	make_model(&m);
	must(dlb_comm_new_alone(&comm, &err) || dlb_copies_name(name, &err), &err);
	dlb_copies_path(name, folder);
	assert(newest(name, comm, NULL) == -1); /* no folder */
	const struct dlb_buddy_desc d = { name, comm, &m.s, 1 };
	must(dlb_buddy_new(&b, &d, &err), &err);
	assert(dlb_buddy_alone(b) && !dlb_buddy_under_way(b) && newest(name, comm, NULL) == -1);
	copy(&m, b, 1, false);
	assert(newest(name, comm, NULL) == -1); /* not sealed */
	must(dlb_buddy_settle(b, true, &err), &err);
	assert(newest(name, comm, &m) == 1);
	copy(&m, b, 2, true);
	assert(newest(name, comm, &m) == 2);
	copy(&m, b, 3, false); /* the slot of step 1 is torn now */
	assert(newest(name, comm, &m) == 2);
	must(dlb_buddy_settle(b, true, &err), &err);
	assert(newest(name, comm, &m) == 3);
	damage(name, "-0-0.part", false); /* of step 3 */
	assert(newest(name, comm, &m) == 2);
	damage(name, "-0-1.part", true); /* of step 2 */
	assert(newest(name, comm, &m) == -1);
	dlb_buddy_free(b, false);
	/* the next start of the ranks: its first copies beside those from before, then alone */
	must(dlb_buddy_new(&b, &d, &err), &err);
	copy(&m, b, 4, true);
	dlb_buddy_free(b, false);
	must(dlb_buddy_new(&b, &d, &err), &err);
	assert(newest(name, comm, &m) == 4);
	copy(&m, b, 5, false);
	assert(newest(name, comm, &m) == 4);
	must(dlb_buddy_settle(b, true, &err), &err);
	copy(&m, b, 6, false); /* removes the older ones, and step 5 is whole */
	assert(newest(name, comm, &m) == 5);
	damage(name, "-0-0.part", false);
	assert(newest(name, comm, &m) == -1);
	dlb_buddy_free(b, true);
	assert(access(folder, F_OK) != 0);
	dlb_comm_free(comm);
	dlb_state_release(&m.s);
	m.be.ops->close(&m.be);
}

/* What copies cost: memory traffic of weights and states, and the part of the transfer for which the link is not free
 * until the next copy. */
static void test_predict(void)
{
	enum { N = 3, STATES = 2 };
	const struct dag_options o = { .seed = 6,
				       .n_forward = 14,
				       .training = true,
				       .batch = 8,
				       .cluster = "cpu:1 host cpu:1 host cpu:1" };
	static const char *const hosts[N] = { "a", "b", "c" };
	static struct dlb_job j;
	struct dag d;
	double bytes[N] = { 0 }, all = 0;

	dag_init(&d, &o);
	for (int i = 0; i < N; i++)
		d.cl.node[i].host = hosts[i];
	dlb_plan_init(&j.plan, d.g.n_ops, N);
	for (int i = 0; i < d.g.n_ops; i++)
		j.plan.placement[i] = (d.g.op[i].phase == DLB_FORWARD ? i : d.g.op[i].of) * N / d.g.n_ops;
	for (int i = 0; i < d.g.n_ops; i++)
		for (int k = 0; k < d.g.op[i].n_in && d.g.op[i].phase == DLB_UPDATE; k++) {
			const struct dlb_tensor *t = &d.g.tensor[d.g.op[i].in[k]];
			if (t->kind == DLB_T_WEIGHT)
				bytes[j.plan.placement[i]] += (1 + STATES) * dlb_tensor_bytes(t, 1);
		}
	j.graph = d.g;
	j.cluster = d.cl;
	j.cost = d.c;
	j.n_state = STATES;
	for (int i = 0; i < N; i++)
		all += bytes[i];
	assert(IS(bytes[0], >, 0) && IS(bytes[1], >, 0));
	for (int every = 1; every <= 1000; every *= 10) {
		struct dlb_report_node node[N] = { { .predicted_comm_s = 2e-5 },
						   { .predicted_comm_s = 0 },
						   { .predicted_comm_s = 3e-5 } };
		struct dlb_report r = { .node = node, .n_nodes = N, .predicted_step_s = 2.5e-5 };
		double link_s[N], longest = 0, time_s = 0;

		dlb_buddy_predict(&j, every, &r);
		for (int i = 0; i < N;
		     i++) { /* each sends to the next one, and receives from the one before */
			const int next = (i + 1) % N, before = (i + N - 1) % N;
			assert(IS(r.buddy.buddy[i], ==, next));
			link_s[i] = fmax(dlb_cost_xfer_s(&d.c, bytes[i], i, next),
					 dlb_cost_xfer_s(&d.c, bytes[before], before, i));
			longest = fmax(longest, link_s[i]);
			const double Bps = d.cl.kind[d.cl.node[i].kind].bandwidth_Bps,
				     free_s = every * fmax(0, r.predicted_step_s - node[i].predicted_comm_s);
			time_s = fmax(time_s,
				      2 * bytes[i] / (Bps > 0 ? Bps : 5e9) + fmax(0, link_s[i] - free_s));
		}
		assert(IS(r.buddy.bytes, ==, all) && IS(r.buddy.sent_bytes, ==, all) &&
		       IS(fabs(r.buddy.link_s / longest - 1), <, 1e-12) &&
		       IS(fabs(r.buddy.predicted_time_s / time_s - 1), <, 1e-12));
		dlb_arena_release(&r.arena);
	}
	dlb_plan_release(&j.plan);
	dag_release(&d);
}

int main(void)
{
	test_predict();
	test_choose();
	test_checksum();
	test_slots();
	return 0;
}
