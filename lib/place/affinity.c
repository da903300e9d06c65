/* Reads tables of affinity: see affinity.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "graph/fuse_activation.h"
#include "op/op.h"
#include "place/affinity.h"
#include "util/input.h"
#include "util/share.h"

static int read_row(const struct dlb_ref *r, struct dlb_affinity *a, struct dlb_affinity_row *row,
		    struct dlb_error *err)
{
	if (!json_is_array(r->v) || !json_array_size(r->v))
		return dlb_ref_fail(r, err, "an array of kinds of device is expected");
	row->kind = dlb_arena_array(&a->arena, json_array_size(r->v), sizeof *row->kind);
	for (size_t i = 0; i < json_array_size(r->v); i++) {
		struct dlb_ref e = dlb_ref_index(r, (int)i);
		if (!json_is_string(e.v))
			return dlb_ref_fail(&e, err, "the name of a kind of device is expected");
		row->kind[row->n++] = dlb_arena_strdup(&a->arena, json_string_value(e.v));
	}
	return 0;
}

static int read_table(const struct dlb_ref *root, struct dlb_affinity *a, struct dlb_error *err)
{
	static const char *const known[] = { "classes", NULL };
	struct dlb_ref classes;
	const char *key;
	json_t *v;
	if (!json_is_object(root->v))
		return dlb_ref_fail(root, err, "an object is expected");
	if (dlb_ref_known(root, known, err) || dlb_get_object(root, "classes", DLB_NEED, &classes, err))
		return -1;
	a->row = dlb_arena_array(&a->arena, json_object_size(classes.v) + 1, sizeof *a->row);
	json_object_foreach(classes.v, key, v) {
		struct dlb_ref r = dlb_ref_at(&classes, key);
		if (!strncmp(key, "x-", 2))
			continue;
		a->row[a->n].work = dlb_arena_strdup(&a->arena, key);
		if (read_row(&r, a, &a->row[a->n++], err))
			return -1;
	}
	return 0;
}

int dlb_affinity_read(struct dlb_affinity *a, const char *name, struct dlb_error *err)
{
	char path[4096], where[300], places[200];
	json_error_t e;
	*a = (struct dlb_affinity){ .n = 0 };
	if (access(name, R_OK) && !dlb_share_find("affinity", name, path, sizeof path)) {
		dlb_share_places("affinity", places, sizeof places);
		dlb_fail(err, NULL, "no table of affinity '%.100s': no file, nor in %s", name, places);
		return dlb_hint(err, "--affinity FILE, or leave the tool in its tree and link to it");
	}
	const char *file = access(name, R_OK) ? path : name;
	struct dlb_ref root = { .index = -1, .doc = name };
	char *text;
	size_t n;
	if (dlb_input_read_text(file, '{', &text, &n, err))
		return -1;
	json_t *v = root.v = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	free(text);
	if (!v) {
		snprintf(where, sizeof where, "%.200s:%d:%d", file, e.line, e.column);
		return dlb_fail(err, where, "%s", e.text);
	}
	int rc = read_table(&root, a, err);
	json_decref(v);
	if (rc)
		dlb_affinity_release(a);
	return rc;
}

void dlb_affinity_release(struct dlb_affinity *a)
{
	dlb_arena_release(&a->arena);
	*a = (struct dlb_affinity){ .n = 0 };
}

const struct dlb_affinity_row *dlb_affinity_find(const struct dlb_affinity *a, const char *type)
{
	const char *work = dlb_op_work(type);
	const struct dlb_affinity_row *row = NULL;
	for (int i = 0; i < a->n; i++) {
		if (!strcmp(a->row[i].work, type))
			return &a->row[i];
		if (!strcmp(a->row[i].work, work))
			row = &a->row[i];
	}
	return row;
}

const struct dlb_affinity_row *dlb_affinity_find_fused(const struct dlb_affinity *a, const struct dlb_op *o)
{
	const struct dlb_fused f = dlb_graph_fused(o);
	char both[100];

	for (int i = 0; f.type && i < a->n; i++) {
		snprintf(both, sizeof both, "%s%s", f.type, f.activation);
		if (!strcmp(a->row[i].work, both))
			return &a->row[i];
	}
	return NULL;
}

const struct dlb_device_kind *dlb_affinity_home(const struct dlb_affinity_row *row, const char *type,
						const struct dlb_cluster *c)
{
	for (int i = 0; row && i < row->n; i++)
		for (int d = 0; d < c->n_nodes; d++) {
			const struct dlb_device_kind *k = &c->kind[c->node[d].kind];
			if (dlb_affinity_means(row->kind[i], k) &&
			    !dlb_device_kind_lacks(k, type, dlb_op_kind_find(type, NULL)))
				return k;
		}
	return NULL;
}

bool dlb_affinity_means(const char *word, const struct dlb_device_kind *kind)
{
	size_t n = strcspn(kind->name, "/");
	return !strcmp(word, kind->name) || !strcmp(word, kind->backend) ||
	       (strlen(word) == n && !strncmp(word, kind->name, n));
}
