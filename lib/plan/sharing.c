/* How replicas share what they learn: options, members of the plan section, defaults. See plan.h. */
#include <string.h>
#include "comm/allreduce.h"
#include "plan/plan.h"

void dlb_sharing_init(struct dlb_sharing *s)
{
	*s = (struct dlb_sharing){ .allreduce = dlb_allreduces[0]->name };
}

static int no_such(struct dlb_error *err, const char *name)
{
	const char *names[16];
	int n = 0;
	char all[200] = "";
	for (int i = 0; dlb_allreduces[i] && n < 16; i++)
		names[n++] = dlb_allreduces[i]->name;
	for (int i = 0; i < n; i++)
		snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i == 0 ? "" : i == n - 1 ? " and " : ", ", names[i]);
	return dlb_fail(err, NULL, "no way to sum '%s'; there are %s", name, all);
}

int dlb_sharing_apply(const struct dlb_sharing_options *o, struct dlb_sharing *s, struct dlb_error *err)
{
	if (o->sync && o->async)
		return dlb_fail(err, NULL, "--sync and --async-allreduce exclude each other");
	if (o->allreduce && !dlb_allreduce_find(o->allreduce))
		return no_such(err, o->allreduce);
	if (o->allreduce)
		s->allreduce = dlb_allreduce_find(o->allreduce)->name;
	s->sync = o->sync || (s->sync && !o->async);
	return 0;
}

void dlb_sharing_write(const struct dlb_sharing *s, json_t *plan)
{
	json_object_set_new(plan, "allreduce", json_string(s->allreduce));
	json_object_set_new(plan, "sync", json_boolean(s->sync));
}

int dlb_sharing_read(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err)
{
	const char *how = NULL;
	if (dlb_get_str(plan, "allreduce", DLB_OPT, &how, err) || dlb_get_bool(plan, "sync", DLB_OPT, &s->sync, err))
		return -1;
	if (how && !dlb_allreduce_find(how)) {
		struct dlb_ref at = dlb_ref_at(plan, "allreduce");
		return dlb_ref_fail(&at, err, "no way to sum '%s'", how);
	}
	if (how)
		s->allreduce = dlb_allreduce_find(how)->name;
	return 0;
}

int dlb_sharing_edit(struct dlb_doc *doc, const struct dlb_sharing_options *o, struct dlb_error *err)
{
	struct dlb_ref plan = dlb_ref_root(doc, "plan");
	struct dlb_sharing s;
	dlb_sharing_init(&s);
	if (!json_is_object(plan.v))
		return 0;				/* whoever needs it says so */
	if (dlb_sharing_read(&plan, &s, err) || dlb_sharing_apply(o, &s, err))
		return -1;
	if (json_object_get(plan.v, "replicas"))
		dlb_sharing_write(&s, plan.v);
	return 0;
}
