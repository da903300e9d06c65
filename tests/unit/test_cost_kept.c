/* Kept results of costs on small random graphs: rooflines fitted to some measurements, times of all ops on
 * all kinds, between and beyond the measured batches, under all optimizers, in several memories; bytes,
 * sums, splits and transfers. kept.h says how they are replaced. */
#include "costs_case.h"
#include "optim/optim.h"

static const char *const kept[] = {
#include "cost_kept.inc"
};

static void keep_times(const char *name, const struct costs *x)
{
	static const double sizes[] = { 0, 1, 3, 7.5, 8, 12, 16, 33, 64, 100 };
	const struct dlb_cost *c = &x->d.c;

	for (int i = 0; i < c->n_ops; i++) {
		for (int k = 0; k < c->n_kinds; k++)
			for (int b = 0; b < DLB_LEN(sizes); b++) {
				kept_real(dlb_cost_kind_s(c, i, k, sizes[b]));
				kept_real(dlb_cost_scratch_bytes(c, i, k, sizes[b]));
				kept_real(dlb_cost_packed_bytes(c, i, k, sizes[b]));
			}
		for (int d = 0; d < x->d.cl.n_nodes; d++)
			kept_real(dlb_cost_op_s(c, i, d, 9));
		kept_real(dlb_cost_in_bytes(c->graph, i, 5));
		kept_real(dlb_cost_out_bytes(c->graph, i, 5));
	}
	kept_line(name, "%d ops on %d kinds, %d batches", c->n_ops, c->n_kinds, c->n_batches);
}

static void keep_memory(const char *name, const struct costs *x)
{
	const struct dlb_cost *c = &x->d.c;
	double most = 0;

	for (int i = 0; i < c->n_ops; i++) {
		double bytes[DLB_N_BUFFERS];

		dlb_cost_traffic(c, i, 6, bytes);
		for (int b = 0; b < DLB_N_BUFFERS; b++)
			kept_real(bytes[b]);
		for (int how = 0; how < 4; how++) {
			struct dlb_memory_use use = { { { 0 } } };

			for (int m = 0; m < 2; m++)
				for (int b = 0; b < DLB_N_BUFFERS; b++)
					use.bytes[m][b] = how == 3 ? 1e6 * (m + b) :
							  how == b ? 1e5 * m :
								     1e5 * (1 - m);
			for (int d = 0; d < 3; d++) {
				const double s = dlb_cost_use_s(c, i, d, 6, how ? &use : NULL);

				kept_real(s);
				most = isfinite(s) ? fmax(most, s) : most;
			}
		}
	}
	for (int t = 0; t < c->graph->n_tensors; t++) {
		for (int k = 0; k < c->n_kinds; k++) {
			kept_real(dlb_cost_accumulate_s(c, t, 7, k, true));
			kept_real(dlb_cost_accumulate_s(c, t, 7, k, false));
		}
		kept_real(dlb_cost_weight_bytes(c->graph, t, 2, true));
		kept_real(dlb_cost_weight_bytes(c->graph, t, .5, false));
	}
	kept_line(name, "in memory at most %.5g s", most);
}

static void keep_transfers(const char *name, const struct costs *x)
{
	static const int node[] = { 0, 2, 4, 1 };
	const struct dlb_cost *c = &x->d.c;

	for (int a = 0; a < x->d.cl.n_nodes; a++)
		for (int b = 0; b < x->d.cl.n_nodes; b++)
			kept_real(dlb_cost_xfer_s(c, 1e6, a, b));
	for (int i = 0; i < c->n_ops; i++)
		for (int k = 1; k <= 4; k++) {
			kept_real(dlb_cost_split_s(c, i, 11, node, k, DLB_SPLIT_OUTPUT));
			kept_real(dlb_cost_split_s(c, i, 11, node, k, DLB_SPLIT_SUM));
		}
	kept_line(name, "transfers");
}

static void keep_fit(const char *name, const struct costs *x)
{
	const struct dlb_cost *c = &x->d.c;
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	json_t *all = dlb_cost_write(c);

	for (int i = 0; i < c->n_fits; i++) {
		const struct dlb_cost_fit *y = &c->fit[i];

		kept_text(y->worst ? y->worst : "");
		kept_real(y->worst_error);
		kept_line(name, "%s %s: %d samples, %.5g s, %.5g, %.5g, errors %.4g, %.4g", y->kind, y->work,
			  y->n, kept_tidy(y->launch_s), kept_tidy(y->flop_efficiency),
			  kept_tidy(y->bytes_efficiency), kept_tidy(y->median_error),
			  kept_tidy(y->blind_error));
	}
	for (int k = 0; k < c->n_kinds; k++) {
		kept_real(c->accumulate_Bps[k]);
		kept_real(c->fit_error[k]);
		kept_real(c->step_spread[k]);
		kept_real(c->step_overhead_s[k]);
		kept_real(c->profile_step_s[k]);
		kept_real(c->matrix_flops ? c->matrix_flops[k] : 0);
	}
	dlb_cost_print_fit(c, f);
	fclose(f);
	kept_text(text);
	kept_json(all);
	kept_line(name, "written");
	json_decref(all);
	free(text);
}

static void keep_optimizers(const char *name, struct costs *x)
{
	double sum = 0;

	for (int rule = 0; dlb_optimizers[rule].name; rule++) {
		dlb_cost_set_optimizer(&x->d.c, rule);
		for (int i = 0; i < x->d.g.n_ops; i++)
			if (x->d.g.op[i].phase == DLB_UPDATE)
				sum += dlb_cost_kind_s(&x->d.c, i, 0, 8);
		kept_real(sum);
	}
	kept_line(name, "updates %.5g s", sum);
}

/* Fits of random samples, with and without weights, from several starts. */
static void keep_rooflines(uint64_t seed)
{
	double flop[12], bytes[12], time_s[12], weight[12];
	struct dlb_rng r;

	dlb_rng_init(&r, seed);
	for (int i = 0; i < 12; i++) {
		flop[i] = seed % 5 ? floor(exp(20 * dlb_rng_uniform(&r))) : 1e6;
		bytes[i] = seed % 7 ? floor(exp(16 * dlb_rng_uniform(&r))) : 0;
		time_s[i] = (1e-6 * (double)(seed % 3) + fmax(flop[i] / 1e10, bytes[i] / 5e9) + 1e-8) *
			    (0.7 + 0.6 * dlb_rng_uniform(&r));
		weight[i] = (double)dlb_rng_below(&r, 3);
	}
	for (int n = 1; n <= 12; n += 1 + n / 3) {
		struct dlb_roofline a = { 1e-6, 1e-10, 1e-9 }, b = a;
		const struct dlb_roofline_samples s = { flop, bytes, time_s, NULL, n },
						  w = { flop, bytes, time_s, weight, n };

		dlb_roofline_fit(&a, &s);
		dlb_roofline_fit(&b, &w);
		kept_real(b.launch_s);
		kept_real(b.flop_s);
		kept_real(b.byte_s);
		kept_line("roofline", "%d of %.5g, %.5g, %.5g", n, a.launch_s, a.flop_s, a.byte_s);
	}
}

/* Kinds of the cluster that the profile has measured, or has not: times of the ops, by the nearest of the
 * measured kinds, by stated rates, or by default ones; else the message. */
static void keep_kinds(void)
{
	static const struct {
		const char *measured[2], *name, *backend;
		int threads;
		double peak_flops, bandwidth_Bps;
	} rows[] = {
		{ { "cpu", "cpu/4" }, "cpu/2", "cpu", 2, 0, 0 },
		{ { "cpu/1", "cpu/4" }, "cpu/3", "cpu", 3, 0, 0 },
		{ { "cpu/2", "cpu/4" }, "cpu/3", "cpu", 3, 0, 0 },
		{ { "cpu/4", "cpu/2" }, "cpu/3", "cpu", 3, 0, 0 },
		{ { "cpu/4", "cpu/2" }, "cpu", "cpu", 1, 3e10, 0 },
		{ { "cpu/4", "cpu" }, "cpu/8", "cpu", 8, 0, 2e10 },
		{ { "cuda", "gpu" }, "cpu/2", "cpu", 2, 0, 0 },
		{ { "gpu", "cuda" }, "cpu", "cpu", 1, 1e9, 0 },
		{ { "cpu", "cpu/4" }, "cuda", "cuda", 1, 0, 0 },
		{ { "cpu", "cpu/4" }, "cuda", "cuda", 1, 1e12, 0 },
		{ { "cpu", "cpu/4" }, "cuda", "cuda", 1, 0, 1e11 },
		{ { "cpu", "cuda/x" }, "cud", "cud", 1, 0, 0 },
		{ { "cpu", "cuda" }, "cuda", "cuda", 1, 1e12, 1e11 },
		{ { "cpux", "cp" }, "cpu/4", "cpu", 4, 0, 0 },
		{ { "cpu/2", "cuda" }, "cuda/b", "cuda", 1, 2e12, 1e11 },
	};

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct costs x;
		struct dlb_error err = { .what = "" };
		char name[16];

		costs_init(&x, 7);
		dlb_cost_release(&x.d.c);
		x.p.kind[0] = rows[i].measured[0];
		x.p.kind[1] = rows[i].measured[1];
		for (int k = 0; k < 2; k++) {
			x.d.cl.kind[k].name = rows[i].name;
			x.d.cl.kind[k].backend = rows[i].backend;
			x.d.cl.kind[k].threads = rows[i].threads;
			x.d.cl.kind[k].peak_flops = rows[i].peak_flops;
			x.d.cl.kind[k].bandwidth_Bps = rows[i].bandwidth_Bps;
		}
		x.d.cl.kind[2].peak_flops = x.d.cl.kind[2].bandwidth_Bps = 1e10;
		snprintf(name, sizeof name, "kind %s", rows[i].name);
		if (dlb_cost_fit(&x.d.c, &x.d.g, i % 5 == 4 ? NULL : &x.p, &x.d.cl, &err)) {
			kept_text(strncmp(err.hint, "did", 3) ? "state them" : err.hint); /* else folders */
			kept_line(name, "%s: %s", err.where, err.what);
		} else {
			keep_times(name, &x);
			dlb_cost_release(&x.d.c);
		}
		dlb_profile_release(&x.p);
		dlb_cluster_release(&x.d.cl);
		dlb_graph_release(&x.d.g);
	}
}

int main(int argc, char **argv)
{
	for (uint64_t seed = 1; seed <= 15; seed++) {
		struct costs x;
		char name[16];

		costs_init(&x, seed);
		snprintf(name, sizeof name, "%d", (int)seed);
		keep_fit(name, &x);
		keep_times(name, &x);
		keep_memory(name, &x);
		keep_transfers(name, &x);
		keep_optimizers(name, &x);
		costs_release(&x);
		keep_rooflines(seed);
	}
	keep_kinds();
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
