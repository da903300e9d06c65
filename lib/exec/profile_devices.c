/* dlb-profile's devices, and the time of each op on them. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "exec/profile_command.h"
#include "exec/profiling.h"

/* -- devices: "cpu" is one thread, "cpu/4" four -- */

/* Appends the suffixes of --tf32 and --fast-math to the name of a back end that has this choice. */
static void add_numerics(const struct dlb_profile_options *o, char *backend, size_t n)
{
	const struct dlb_backend_ops *ops = dlb_backend_find(backend);
	const size_t used = strlen(backend);

	if (ops && !ops->is_host_memory && !strchr(backend, '+'))
		snprintf(backend + used, n - used, "%s%s", o->tf32 ? "+tf32" : "", o->fast_math ? "+fast" : "");
}

static int open_device(struct dlb_profile_command *w, const char *text, struct dlb_error *err)
{
	char backend[48] = "";
	int threads = 1, used = 0;
	struct dlb_profile_opened *d = &w->device[w->n_devices];

	if (w->n_devices == DLB_PROFILE_DEVICES)
		return dlb_fail(err, NULL, "more than %d devices", DLB_PROFILE_DEVICES);
	if (sscanf(text, "%31[^/]%n", backend, &used) != 1 ||
	    (text[used] && (sscanf(text + used, "/%d%n", &threads, &used) != 1 || strchr(text, '/')[used] ||
			    threads < 1))) {
		dlb_fail(err, NULL, "no device '%s'", text);
		return dlb_hint(err, "devices are named as in cpu, cpu/4, which has 4 threads, or cuda");
	}
	add_numerics(w->o, backend, sizeof backend);
	if (dlb_backend_open(backend, 0, threads, &d->be, err))
		return -1;
	d->name = dlb_cluster_kind_name(&w->arena, backend, threads);
	w->n_devices++;
	return 0;
}

int dlb_profile_open_devices(struct dlb_profile_command *w, struct dlb_error *err)
{
	bool numerics = false;

	if (!w->o->devices.n && open_device(w, "cpu", err))
		return -1;
	for (int i = 0; i < w->o->devices.n; i++)
		if (open_device(w, w->o->devices.item[i], err))
			return -1;
	for (int i = 0; i < w->n_devices; i++)
		numerics |= w->device[i].be.numerics.tf32 || w->device[i].be.numerics.fast;
	if ((w->o->tf32 || w->o->fast_math) && !numerics && !w->o->analytic)
		return dlb_refuse(err, NULL, "add -d cuda", "--%s is for GPUs, and no -d names one",
				  w->o->tf32 ? "tf32" : "fast-math");
	return 0;
}

/* -- measuring -- */

struct progress_bar { struct dlb_progress bar; const struct dlb_cli *cli; int done, total; };

static void show_progress(void *ctx, const char *kind, int64_t batch)
{
	struct progress_bar *s = ctx;
	char what[100];

	snprintf(what, sizeof what, "%s, batch %lld", kind, (long long)batch);
	/* a size that did not fit into memory beside others is reported again */
	dlb_progress_update(&s->bar, s->done < s->total ? s->done++ : s->total, s->total, what);
}

static void show_warning(void *ctx, const char *kind, int64_t batch, const struct dlb_error *err)
{
	struct progress_bar *s = ctx;

	dlb_cli_warn(s->cli, "batch %lld is not measured on %s: %s", (long long)batch, kind, err->what);
}

/* Warns which ops a kind of device cannot run. */
static void warn_of_missing(const struct dlb_profile_command *w, int kind)
{
	char types[200] = "";
	int n = 0;

	for (int r = 0; r < w->p.n_rows; r++) {
		const struct dlb_profile_row *row = &w->p.row[r];
		const size_t used = strlen(types);
		const char *type = w->g->op[row->op[0]].type;

		if (!isinf(row->time_s[kind][0]))
			continue;
		n += row->n_ops;
		if (!strstr(types, type) && used + strlen(type) + 3 < sizeof types)
			snprintf(types + used, sizeof types - used, "%s%s", used ? ", " : "", type);
	}
	if (n)
		dlb_cli_warn(w->cli, "%s has no kernel for %d of %d ops (%s): a plan keeps them on other nodes",
			     w->p.kind[kind], n, w->g->n_ops, types);
}

int dlb_profile_run(struct dlb_profile_command *w, struct dlb_error *err)
{
	struct progress_bar s = { .cli = w->cli };
	const struct dlb_profile_watch watch = { .progress = show_progress, .warn = show_warning, .ctx = &s };
	struct dlb_profile_device d[DLB_PROFILE_DEVICES];

	if (!w->p.n_batches)
		dlb_profile_init(&w->p, w->g, w->g->batch);
	if (w->o->analytic)
		return 0;
	for (int i = 0; i < w->n_devices; i++)
		d[i] = (struct dlb_profile_device){ &w->device[i].be, w->device[i].name };
	s.total = w->n_devices * w->p.n_batches * (1 + DLB_PROFILE_TURNS);
	dlb_progress_start(&s.bar, "measuring", w->cli->quiet || dlb_profile_rank(w));
	const int rc = dlb_profile_measure(&w->p, w->g, d, w->n_devices, w->comm, &watch, err);
	dlb_progress_end(&s.bar);
	for (int k = 0; k < w->p.n_kinds && !rc && !dlb_profile_rank(w); k++)
		warn_of_missing(w, k);
	return rc;
}

/* -- lines of -v -- */

void dlb_profile_say(const struct dlb_profile_command *w)
{
	static const char *const phase[] = { "forward", "backward", "update" };
	double flop[DLB_N_PHASES] = { 0 }, weights = 0;
	int ops[DLB_N_PHASES] = { 0 };

	for (int i = 0; i < w->g->n_ops; i++) {
		ops[w->g->op[i].phase]++;
		flop[w->g->op[i].phase] += w->g->op[i].flop;
	}
	for (int t = 0; t < w->g->n_tensors; t++)
		if (w->g->tensor[t].kind == DLB_T_WEIGHT)
			weights += dlb_tensor_bytes(&w->g->tensor[t], 1) /
				   (double)dlb_dtype_bytes(w->g->tensor[t].dtype);
	dlb_cli_say(w->cli, "batch %lld, %.0f parameters, %d distinct signatures", (long long)w->g->batch,
		    weights, w->p.n_rows);
	for (int i = 0; i < DLB_N_PHASES; i++)
		if (ops[i])
			dlb_cli_say(w->cli, "%-8s %4d ops %10.4g GFLOP", phase[i], ops[i], flop[i] / 1e9);
	for (int k = 0; k < w->p.n_kinds; k++)
		if (isfinite(w->p.step_s[k]))
			dlb_cli_say(w->cli, "%s: %.4g s a step, %.4g GFLOP/s", w->p.kind[k], w->p.step_s[k],
				    (flop[0] + flop[1] + flop[2]) / w->p.step_s[k] / 1e9);
}
