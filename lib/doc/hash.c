/* Hashes parts of a document by value, so that reformatting changes no hash.
 *
 * Members are sorted. A number with an integer's value is hashed as int64 (1 and 1.0 are equal, as in jq),
 * any other as the bits of its double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "doc/doc.h"
#include "util/hash.h"
#include "util/mem.h"

/* head: first bytes of the name, in the same order */
struct member { uint64_t head; const char *name; const json_t *value; };

static uint64_t head_of(const char *name)
{
	uint64_t head = 0;

	for (int i = 0; i < 8; i++)
		head = head << 8 | (*name ? (unsigned char)*name++ : 0);
	return head;
}

static bool before(const struct member *a, const struct member *b)
{
	return a->head != b->head ? a->head < b->head : strcmp(a->name, b->name) < 0;
}

static int by_name(const void *a, const void *b)
{
	return before(a, b) ? -1 : before(b, a);
}

/* Insertion sort: most objects have few members, nearly sorted; qsort would cost more than the hash. */
static void sort(struct member *m, size_t n)
{
	if (n > 32) {
		qsort(m, n, sizeof *m, by_name);
		return;
	}
	for (size_t i = 1; i < n; i++) {
		struct member x = m[i];
		size_t k = i;

		for (; k > 0 && before(&x, &m[k - 1]); k--)
			m[k] = m[k - 1];
		m[k] = x;
	}
}

static bool skipped(const char *key, const char *const *skip)
{
	if (key[0] == 'x' && key[1] == '-')
		return true;
	for (; skip && *skip; skip++)
		if (!strcmp(*skip, key))
			return true;
	return false;
}

static uint64_t hash(uint64_t h, const json_t *v, const char *const *skip);

static uint64_t hash_object(uint64_t h, const json_t *v, const char *const *skip)
{
	struct member few[32], *members = few;
	json_t *o = (json_t *)v;
	size_t n = 0;

	if (json_object_size(v) > 32)
		members = dlb_xmalloc(json_object_size(v) * sizeof *members);
	for (void *at = json_object_iter(o); at; at = json_object_iter_next(o, at)) {
		const char *key = json_object_iter_key(at);

		if (!skipped(key, skip))
			members[n++] = (struct member){ head_of(key), key, json_object_iter_value(at) };
	}
	sort(members, n);
	h = dlb_hash_bytes(h, "{", 1);
	for (size_t i = 0; i < n; i++)
		h = hash(dlb_hash_str(h, members[i].name), members[i].value, skip);
	if (members != few)
		free(members);
	return dlb_hash_bytes(h, "}", 1);
}

static uint64_t hash_int(uint64_t h, int64_t i)
{
	return dlb_hash_u64(dlb_hash_bytes(h, "i", 1), (uint64_t)i);
}

static uint64_t hash_real(uint64_t h, double x)
{
	if (x == floor(x) && fabs(x) < 0x1p63)
		return hash_int(h, (int64_t)x);
	return dlb_hash_bytes(dlb_hash_bytes(h, "r", 1), &x, sizeof x);
}

static uint64_t hash(uint64_t h, const json_t *v, const char *const *skip)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return hash_object(h, v, skip);
	case JSON_ARRAY:
		h = dlb_hash_bytes(h, "[", 1);
		for (size_t i = 0; i < json_array_size(v); i++)
			h = hash(h, json_array_get(v, i), skip);
		return dlb_hash_bytes(h, "]", 1);
	case JSON_STRING:
		return dlb_hash_str(dlb_hash_bytes(h, "s", 1), json_string_value(v));
	case JSON_INTEGER:
		return hash_int(h, json_integer_value(v));
	case JSON_REAL:
		return hash_real(h, json_real_value(v));
	case JSON_TRUE:
		return dlb_hash_bytes(h, "t", 1);
	case JSON_FALSE:
		return dlb_hash_bytes(h, "f", 1);
	case JSON_NULL:
		return dlb_hash_bytes(h, "n", 1);
	}
	return h;
}

uint64_t dlb_doc_hash(const json_t *v, const char *const *skip)
{
	return v ? hash(DLB_HASH_INIT, v, skip) : DLB_HASH_INIT;
}

/* Members that input hashes skip at every depth: the optimizer is chosen for the run and changes no op id. */
static const char *const not_hashed[] = { "optimizer", "hyper", NULL };

/* Hashes a section. Its own "inputs" (an object at its top) is skipped; "inputs" of an op are hashed. */
static void hash_section(const struct dlb_doc *d, const char *section, char out[17])
{
	json_t *v = dlb_doc_section(d, section), *own = NULL;

	if (json_is_object(json_object_get(v, "inputs"))) {
		own = json_copy(v);
		json_object_del(own, "inputs");
	}
	dlb_hash_hex(dlb_doc_hash(own ? own : v, not_hashed), out);
	json_decref(own);
}

json_t *dlb_doc_input_hashes(const struct dlb_doc *d, const char *const *sections)
{
	json_t *inputs = json_object();
	char hex[17];

	for (; *sections; sections++) {
		if (!dlb_doc_section(d, *sections))
			continue;
		hash_section(d, *sections, hex);
		dlb_set_str(inputs, *sections, hex);
	}
	return inputs;
}

int dlb_doc_check_inputs(const struct dlb_doc *d, const char *section, struct dlb_error *err)
{
	static const char *const names[] = { "graph",   "profile", "cluster", "cost",
					     "balance", "plan",    "run",     "report" };
	struct dlb_ref r = dlb_ref_root(d, section), inputs;

	if (!r.v)
		return 0;
	if (dlb_get_object(&r, "inputs", DLB_OPT, &inputs, err))
		return -1;
	for (int i = 0; inputs.v && i < DLB_LEN(names); i++) {
		const char *was = NULL;
		char is[17];

		if (dlb_get_str(&inputs, names[i], DLB_OPT, &was, err))
			return -1;
		if (!was)
			continue;
		hash_section(d, names[i], is);
		if (strcmp(was, is)) {
			dlb_ref_fail(&r, err, "made from another %s than the document has", names[i]);
			/* another tool's file has no profile to make costs from */
			if (!strcmp(section, "cost") && !dlb_doc_section(d, "profile"))
				return dlb_hint(err,
						"make it again: run the tools from dlb-costmodel on; costs "
						"imported by dlb-convert "
						"stay valid without this member: jq 'del(.cost.inputs)'");
			return dlb_hint(err, "make it again: run the tools from %s on",
					!strcmp(section, "cost") ? "dlb-costmodel" :
					!strcmp(section, "profile") ? "dlb-profile" : "dlb-place");
		}
	}
	return 0;
}
