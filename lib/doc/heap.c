/* The memory of a parsed document. The sizes are those of jansson's structures (jansson_private.h,
 * hashtable.h of 2.14), which jansson's interface does not tell. */
#include "doc/doc.h"
#include <string.h>

enum { OBJECT = 72, BUCKET = 16, PAIR = 57, ARRAY = 40, STRING = 32, NUMBER = 24, LEAST_BUCKETS = 8 };

/* Bytes that malloc takes for n bytes. */
static double chunk(size_t n)
{
	const size_t all = (n + 8 + 15) / 16 * 16;

	return all < 32 ? 32 : (double)all;
}

/* Capacity of a table or array of n elements: it doubles when it is full. */
static size_t room(size_t n)
{
	size_t all = LEAST_BUCKETS;

	while (all < n)
		all *= 2;
	return all;
}

static double heap_of(const json_t *v)
{
	double sum = 0;
	const char *key;
	size_t i;
	json_t *x;

	switch (json_typeof(v)) {
	case JSON_OBJECT:
		json_object_foreach((json_t *)v, key, x) sum += chunk(PAIR + strlen(key)) + heap_of(x);
		return sum + chunk(OBJECT) + chunk(BUCKET * room(json_object_size(v)));
	case JSON_ARRAY:
		json_array_foreach(v, i, x) sum += heap_of(x);
		return sum + chunk(ARRAY) + chunk(sizeof(void *) * room(json_array_size(v)));
	case JSON_STRING:
		return chunk(STRING) + chunk(json_string_length(v) + 1);
	case JSON_INTEGER:
	case JSON_REAL:
		return chunk(NUMBER);
	default:
		return 0; /* null, true and false are shared */
	}
}

double dlb_doc_heap_bytes(const struct dlb_doc *d, const char *const *sections)
{
	double sum = 0;

	for (int i = 0; sections[i]; i++)
		sum += dlb_doc_section(d, sections[i]) ? heap_of(dlb_doc_section(d, sections[i])) : 0;
	return sum;
}
