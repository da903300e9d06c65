/* Checks against vectors of independent implementations (folder of the shared data: DLB_TEST_DATA, else
 * ../shared/data). n_checks counts the comparisons. */
#ifndef DLB_TESTS_VECTORS_H
#define DLB_TESTS_VECTORS_H
#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "util/mem.h"

static long n_checks;

/* A file of vectors; NULL: missing. */
static inline json_t *load(const char *file)
{
	const char *data = getenv("DLB_TEST_DATA");
	char *path = dlb_xprintf("%s/vectors/%s", data ? data : "../shared/data", file);
	json_t *root = json_load_file(path, 0, NULL);

	free(path);
	return root;
}

static inline const json_t *at(const json_t *a, int i) { return json_array_get(a, (size_t)i); }
static inline const json_t *of(const json_t *o, const char *name) { return json_object_get(o, name); }
static inline double number(const json_t *a, int i, int j) { return json_number_value(at(at(a, i), j)); }

static inline void near(double got, double want, double tolerance)
{
	if (!(fabs(got - want) <= tolerance * (1 + fabs(want)))) {
		fprintf(stderr, "got %.17g, want %.17g\n", got, want);
		assert(!"near");
	}
	n_checks++;
}
#endif
