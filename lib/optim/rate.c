/* Learning-rate schedules, and the exchange between replicas: see optim.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"

static int wrong(const char *text, struct dlb_error *err)
{
	return dlb_fail(err, NULL,
			"no learning-rate schedule '%.100s'; there are constant, cosine[:STEPS[:MIN]] and "
			"step:N:FACTOR",
			text);
}

/* Reads :NUMBER at *p and advances *p. */
static bool number(const char **p, double least, double most, double *x)
{
	char *end;

	if (**p != ':')
		return false;
	*x = strtod(*p + 1, &end);
	if (end == *p + 1 || !(*x >= least && *x <= most))
		return false;
	*p = end;
	return true;
}

int dlb_rate_parse(const char *text, int64_t steps, struct dlb_rate *r, struct dlb_error *err)
{
	struct dlb_rate x = { .warmup = r->warmup, .steps = steps, .factor = 1 };
	const char *p = text;
	double n;

	if (!strcmp(text, "constant")) {
		*r = x;
		return 0;
	}
	if (!strncmp(p, "cosine", 6)) {
		x.kind = DLB_RATE_COSINE;
		p += 6;
		if (*p) {
			if (!number(&p, 1, 1e15, &n) || n != floor(n) ||
			    (*p && !number(&p, 0, 1e38, &x.min)) || *p)
				return wrong(text, err);
			x.steps = (int64_t)n;
		} else if (!steps) {
			return dlb_fail(
				err, NULL,
				"a cosine must end at some step: cosine:STEPS, or --until-step or --steps");
		}
	} else if (!strncmp(p, "step", 4)) {
		x.kind = DLB_RATE_STEP;
		p += 4;
		if (!number(&p, 1, 1e15, &n) || n != floor(n) || !number(&p, 0, 1e38, &x.factor) || *p)
			return wrong(text, err);
		x.steps = (int64_t)n;
	} else {
		return wrong(text, err);
	}
	*r = x;
	return 0;
}

double dlb_optimizer_rate(const struct dlb_optimizer_choice *o, int64_t step)
{
	const struct dlb_rate *r = &o->rate;
	double lr = o->hyper[DLB_HYPER_LR];

	if (step < r->warmup)
		return lr * (double)(step + 1) / (double)r->warmup;
	if (r->kind == DLB_RATE_STEP)
		return lr * pow(r->factor, (double)(step / r->steps));
	if (r->kind == DLB_RATE_COSINE) {
		const double pi = 3.14159265358979323846;
		double done = step >= r->steps ? 1 :
						 (double)(step - r->warmup) / (double)(r->steps - r->warmup);

		return r->min + (lr - r->min) * (1 + cos(pi * done)) / 2;
	}
	return lr;
}

int dlb_reduce_parse(const char *text, enum dlb_reduce_what *what, enum dlb_reduce_how *how,
		     struct dlb_error *err)
{
	static const struct {
		const char *text;
		enum dlb_reduce_what what;
		enum dlb_reduce_how how;
	} rows[] = {
		{ "gradients", DLB_REDUCE_GRADIENTS, DLB_REDUCE_BY_MEAN },
		{ "gradients:mean", DLB_REDUCE_GRADIENTS, DLB_REDUCE_BY_MEAN },
		{ "gradients:sum", DLB_REDUCE_GRADIENTS, DLB_REDUCE_BY_SUM },
		{ "moments", DLB_REDUCE_MOMENTS, DLB_REDUCE_BY_MEAN },
		{ "moments:mean", DLB_REDUCE_MOMENTS, DLB_REDUCE_BY_MEAN },
		{ "moments:sum", DLB_REDUCE_MOMENTS, DLB_REDUCE_BY_SUM },
		{ "moments:max", DLB_REDUCE_MOMENTS, DLB_REDUCE_BY_MAX },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (strcmp(rows[i].text, text))
			continue;
		*what = rows[i].what;
		*how = rows[i].how;
		return 0;
	}
	return dlb_fail(
		err, NULL,
		"cannot reduce '%.100s'; there are gradients[:mean|:sum] and moments[:mean|:sum|:max]", text);
}

void dlb_optimizer_exchange(const struct dlb_optimizer_choice *o, double share,
			    struct dlb_optimizer_exchange *e)
{
	const bool sum = o->reduce_by == DLB_REDUCE_BY_SUM;

	*e = (struct dlb_optimizer_exchange){ .n = 1, .in = sum ? 1 / share : 1, .out = { 1, 1 } };
	if (o->reduce == DLB_REDUCE_GRADIENTS)
		return;
	e->moments = true;
	e->n = dlb_optimizers[o->rule].n_moments;
	e->in = 1 / share;
	e->out[0] = sum ? 1 : share;
	e->out[1] = o->reduce_by == DLB_REDUCE_BY_MEAN ? share : 1;
	e->max[1] = o->reduce_by == DLB_REDUCE_BY_MAX;
}

struct dlb_update_desc dlb_optimizer_desc(const struct dlb_optimizer_choice *o, enum dlb_dtype dtype,
					  int64_t count, enum dlb_update_stage stage,
					  const struct dlb_optimizer_exchange *e)
{
	struct dlb_update_desc d = { .dtype = dtype,
				     .count = count,
				     .rule = o->rule,
				     .variant = o->variant,
				     .stage = stage,
				     .keep_local = o->local_max };

	memcpy(d.hyper, o->hyper, sizeof d.hyper);
	for (int k = 0; k < dlb_optimizers[o->rule].n_state; k++)
		d.code[k] = dlb_optimizer_code(o->rule, o->state_dtype, k);
	if (stage == DLB_UPDATE_LOCAL) {
		d.scale[0] = e->in;
		memcpy(d.scale + 1, e->out, sizeof e->out);
	}
	return d;
}
