/* The table of back ends: one is built in, the others are plug-ins (plugin.h). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/backend.h"
#include "tensor/cpu/cpu.h"
#include "tensor/plugin.h"
#include "util/share.h"

/* `built_in` NULL: a plug-in */
static const struct { const char *name; const struct dlb_backend_ops *built_in; } back_ends[] = {
	{ "cpu", &dlb_cpu_ops },	/* when opened, uses the best level of the processor */
	{ "cuda", NULL },
};

const char *dlb_backend_name(int i)
{
	return i >= 0 && i < DLB_LEN(back_ends) ? back_ends[i].name : NULL;
}

/* Opens the plug-in of that name and checks its version. The object stays loaded. */
static const struct dlb_plugin *open_plugin(const char *name, struct dlb_error *err)
{
	const char *dir = getenv("DLB_PLUGIN_DIR");
	char beside[3000], path[4096];
	const struct dlb_plugin *p;
	void *object;

	if (!dir || !*dir)
		dir = dlb_share_beside("../lib/dlb", beside, sizeof beside) ? beside : ".";
	snprintf(path, sizeof path, "%s/dlb-%s.so", dir, name);
	if (access(path, R_OK)) {
		dlb_refuse(err, NULL, "build with CUDA=1, or set DLB_PLUGIN_DIR to its folder",
			   "back end '%s': no plug-in '%s'", name, path);
		return NULL;
	}
	object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!object) {
		dlb_fail(err, NULL, "back end '%s' cannot be loaded: %s", name, dlerror());
		return NULL;
	}
	p = dlsym(object, "dlb_plugin");
	if (!p || p->abi != DLB_PLUGIN_ABI) {
		dlb_refuse(err, path, "build both from one source", "the plug-in is not of this version");
		return NULL;
	}
	return p;
}

int dlb_numerics_read(const char *name, struct dlb_numerics *out, struct dlb_error *err)
{
	const char *at = strchr(name, '+');
	size_t n;

	*out = (struct dlb_numerics){ false, false };
	for (; at && *at; at += n + 1) {
		n = strcspn(at + 1, "+");
		if (n == 4 && !strncmp(at + 1, "tf32", n))
			out->tf32 = true;
		else if (n == 4 && !strncmp(at + 1, "fast", n))
			out->fast = true;
		else
			return dlb_refuse(err, NULL, "what may follow a plus is 'tf32' or 'fast'", "no back end '%s'", name);
	}
	return 0;
}

int dlb_backend_open(const char *name, int device, int n_threads, struct dlb_backend *out, struct dlb_error *err)
{
	const struct dlb_backend_ops *ops = dlb_backend_load(name, err);
	struct dlb_numerics numerics;

	if (!ops || dlb_numerics_read(name, &numerics, err) || ops->open(device, n_threads, out, err))
		return -1;
	out->numerics = numerics;
	return 0;
}

const struct dlb_backend_ops *dlb_backend_load(const char *text, struct dlb_error *err)
{
	const struct dlb_plugin *p;
	struct dlb_numerics numerics;
	char name[32];
	int i = 0;

	if (dlb_numerics_read(text, &numerics, err))
		return NULL;
	snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "+"), text);
	while (i < DLB_LEN(back_ends) && strcmp(back_ends[i].name, name))
		i++;
	if (i == DLB_LEN(back_ends)) {
		dlb_refuse(err, NULL, "there are 'cpu' and 'cuda'", "no back end '%s'", name);
		return NULL;
	}
	if (back_ends[i].built_in && (numerics.tf32 || numerics.fast)) {
		dlb_refuse(err, NULL, "leave the plus and what follows out", "back end '%s' has one way to compute",
			   name);
		return NULL;
	}
	if (back_ends[i].built_in)
		return back_ends[i].built_in;
	p = open_plugin(name, err);
	return p && p->ops->n_devices(err) > 0 ? p->ops : NULL;
}

const struct dlb_backend_ops *dlb_backend_find(const char *name)
{
	return dlb_backend_load(name, NULL);
}
