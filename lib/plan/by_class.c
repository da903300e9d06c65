/* Reads and writes the plan's compression of each class of sums, and the advice on it. See plan.h. */
#include <stdlib.h>
#include <string.h>
#include "comm/compress.h"
#include "plan/by_class.h"
#include "plan/program.h"
#include "plan/sharing.h"

const char *const dlb_compressed_names[DLB_N_COMPRESSED] = { "factor", "gradient", "small" };

static bool is_auto(const struct dlb_sharing *s)
{
	return !strcmp(s->compress, DLB_COMPRESS_AUTO);
}

bool dlb_sharing_compresses(const struct dlb_sharing *s)
{
	return strcmp(s->compress, "none") != 0;
}

struct dlb_compress_choice dlb_plan_compress(const struct dlb_plan *p, int cls)
{
	const struct dlb_sharing *s = &p->sharing;
	const char *text = !is_auto(s)                                      ? s->compress :
			   cls < DLB_N_COMPRESSED && s->compress_of[cls][0] ? s->compress_of[cls] :
									      "none";
	struct dlb_compress_choice choice;

	/* the text was checked when it was read */
	dlb_compress_parse(dlb_sharing_averages(s) ? "none" : text, &choice, NULL);
	choice.gradients_dense = p->inverse_every > 0;
	return choice;
}

struct dlb_compress_choice dlb_program_compress(const struct dlb_program *g, int cls)
{
	struct dlb_compress_choice choice = dlb_plan_compress(g->whole, cls);

	if (choice.how == DLB_COMPRESS_CHOLESKY && !choice.rank)
		choice.rank = g->most_rank;
	return choice;
}

void dlb_sharing_write_compression(const struct dlb_sharing *s, json_t *plan)
{
	json_t *by_class = json_object();

	dlb_set_str(plan, "compress", s->compress);
	for (int k = 0; k < DLB_N_COMPRESSED && is_auto(s); k++)
		if (s->compress_of[k][0])
			dlb_set_str(by_class, dlb_compressed_names[k], s->compress_of[k]);
	if (json_object_size(by_class))
		json_object_set(plan, "compress_by_class", by_class);
	else
		json_object_del(plan, "compress_by_class");
	if (!is_auto(s))
		json_object_del(plan, "compress_advice");
	json_decref(by_class);
}

/* Checks the text of a member and stores it in `to`. */
static int read_text(const struct dlb_ref *at, const char *text, char to[48], struct dlb_error *err)
{
	struct dlb_compress_choice ignored;
	struct dlb_error why = { .what = "" };

	if (strlen(text) >= 48)
		return dlb_ref_fail(at, err, "compression '%.60s...' is too long", text);
	if (dlb_compress_parse(text, &ignored, &why)) {
		dlb_ref_fail(at, err, "%s", why.what);
		return dlb_hint(err, "%s", why.hint);
	}
	strcpy(to, text);
	return 0;
}

int dlb_sharing_read_compression(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err)
{
	static const char *const known[] = { "factor", "gradient", "small", NULL };
	struct dlb_ref by_class = { .v = NULL }, at = dlb_ref_at(plan, "compress");
	const char *text = NULL;

	if (dlb_get_str(plan, "compress", DLB_OPT, &text, err) ||
	    dlb_get_object(plan, "compress_by_class", DLB_OPT, &by_class, err))
		return -1;
	if (text && !strcmp(text, DLB_COMPRESS_AUTO))
		strcpy(s->compress, text);
	else if (text && read_text(&at, text, s->compress, err))
		return -1;
	if (!by_class.v)
		return 0;
	if (!is_auto(s))
		return dlb_ref_fail(&by_class, err,
				    "sums travel as '%s', whatever their class; '" DLB_COMPRESS_AUTO
				    "' chooses by class",
				    s->compress);
	if (dlb_ref_known(&by_class, known, err))
		return -1;
	for (int k = 0; k < DLB_N_COMPRESSED; k++) {
		text = NULL;
		at = dlb_ref_at(&by_class, dlb_compressed_names[k]);
		if (dlb_get_str(&by_class, dlb_compressed_names[k], DLB_OPT, &text, err) ||
		    (text && read_text(&at, text, s->compress_of[k], err)))
			return -1;
	}
	return 0;
}

/* ---- the advice ---- */

void dlb_advice_write(const struct dlb_plan *p, json_t *plan)
{
	json_t *list = json_array();

	for (int i = 0; i < p->n_advice; i++) {
		const struct dlb_advice *a = &p->advice[i];
		json_t *o = json_pack("{ssssso}", "class", dlb_compressed_names[a->cls], "compress", a->how,
				      "bytes", dlb_doc_number(a->bytes));

		dlb_set_number(o, "step_s", a->step_s);
		dlb_set_number(o, "error", a->error);
		dlb_set_str(o, "error_of", a->error_of);
		dlb_set_bool(o, "chosen", a->chosen);
		json_array_append_new(list, o);
	}
	if (p->n_advice)
		json_object_set(plan, "compress_advice", list);
	else
		json_object_del(plan, "compress_advice");
	json_decref(list);
}

static int class_of(const char *name)
{
	for (int k = 0; k < DLB_N_COMPRESSED; k++)
		if (!strcmp(name, dlb_compressed_names[k]))
			return k;
	return -1;
}

static int read_advice(const struct dlb_ref *row, struct dlb_plan *p, struct dlb_advice *a,
		       struct dlb_error *err)
{
	static const char *const known[] = { "class", "compress", "bytes",  "step_s",
					     "error", "error_of", "chosen", NULL };
	struct dlb_ref at = dlb_ref_at(row, "compress");
	const char *cls = NULL, *how = NULL, *of = NULL;

	if (dlb_ref_known(row, known, err) || dlb_get_str(row, "class", DLB_NEED, &cls, err) ||
	    dlb_get_str(row, "compress", DLB_NEED, &how, err) ||
	    dlb_get_real(row, "bytes", DLB_NEED, 0, 1e300, &a->bytes, err) ||
	    dlb_get_real(row, "step_s", DLB_NEED, 0, 1e300, &a->step_s, err) ||
	    dlb_get_real(row, "error", DLB_OPT, 0, 1e300, &a->error, err) ||
	    dlb_get_str(row, "error_of", DLB_OPT, &of, err) ||
	    dlb_get_bool(row, "chosen", DLB_OPT, &a->chosen, err) || read_text(&at, how, a->how, err))
		return -1;
	a->cls = class_of(cls);
	at = dlb_ref_at(row, "class");
	if (a->cls < 0)
		return dlb_ref_fail(&at, err, "'factor', 'gradient' or 'small' is expected, not '%.40s'",
				    cls);
	a->error_of = of ? dlb_arena_strdup(&p->arena, of) : NULL;
	return 0;
}

int dlb_advice_read(const struct dlb_ref *plan, struct dlb_plan *p, struct dlb_error *err)
{
	struct dlb_ref list = { .v = NULL };
	int n = 0;

	if (dlb_get_array(plan, "compress_advice", DLB_OPT, &list, &n, err))
		return -1;
	p->advice = dlb_arena_array(&p->arena, (size_t)n + 1, sizeof *p->advice);
	for (p->n_advice = 0; p->n_advice < n; p->n_advice++) {
		struct dlb_ref row = dlb_ref_index(&list, p->n_advice);
		if (read_advice(&row, p, &p->advice[p->n_advice], err))
			return -1;
	}
	return 0;
}
