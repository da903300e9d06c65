/* Conditions for assert() that print both sides when they do not hold:
 *
 *   assert(IS(g.n_ops, ==, 4));		test_graph.c:12: g.n_ops == 4 does not hold: 5, 4
 *   assert(SAME(err.what, "no op 'x'"));	two strings are equal
 *   assert(HAS(err.what, "no op"));		the first string contains the second
 *
 * Each is an expression, of value true or false, so that && and || work as usual; each side is evaluated
 * once. Numbers are compared by their value: -1 is less than any unsigned number. Pointers are compared by
 * their address. */
#ifndef DLB_TEST_CHECK_H
#define DLB_TEST_CHECK_H
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check_value {
	enum { CHECK_INT, CHECK_NATURAL, CHECK_REAL, CHECK_POINTER } is;
	long long i;
	unsigned long long n;
	double r;
	const void *p;
};

static inline struct check_value check_int(long long i)
{
	return (struct check_value){ .is = CHECK_INT, .i = i, .r = (double)i };
}

static inline struct check_value check_natural(unsigned long long n)
{
	return (struct check_value){ .is = CHECK_NATURAL, .n = n, .r = (double)n };
}

static inline struct check_value check_real(double r)
{
	return (struct check_value){ .is = CHECK_REAL, .r = r };
}

static inline struct check_value check_pointer(const void *p)
{
	return (struct check_value){ .is = CHECK_POINTER, .p = p };
}

/* -1, 0, 1: a less than, equal to, greater than b; 2: neither, as of a NaN */
static inline int check_order(const struct check_value *a, const struct check_value *b)
{
	if (a->is == CHECK_POINTER || b->is == CHECK_POINTER) {
		const uintptr_t p = (uintptr_t)a->p, q = (uintptr_t)b->p;
		return (p > q) - (p < q);
	}
	if (a->is == CHECK_REAL || b->is == CHECK_REAL)
		return a->r < b->r ? -1 : a->r > b->r ? 1 : a->r == b->r ? 0 : 2;
	if (a->is == CHECK_INT && b->is == CHECK_INT)
		return (a->i > b->i) - (a->i < b->i);
	if (a->is == CHECK_INT && a->i < 0)
		return -1;
	if (b->is == CHECK_INT && b->i < 0)
		return 1;
	const unsigned long long m = a->is == CHECK_INT ? (unsigned long long)a->i : a->n;
	const unsigned long long n = b->is == CHECK_INT ? (unsigned long long)b->i : b->n;
	return (m > n) - (m < n);
}

static inline void check_print(const struct check_value *v)
{
	switch (v->is) {
	case CHECK_INT: fprintf(stderr, "%lld", v->i); break;
	case CHECK_NATURAL: fprintf(stderr, "%llu", v->n); break;
	case CHECK_REAL: fprintf(stderr, "%.17g", v->r); break;
	case CHECK_POINTER: fprintf(stderr, "%p", v->p); break;
	}
}

static inline bool check_is(const char *file, int line, const char *text, const char *how,
			    struct check_value a, struct check_value b)
{
	const int order = check_order(&a, &b);
	const bool yes = !strcmp(how, "==") ? order == 0 :
			 !strcmp(how, "!=") ? order != 0 :
			 !strcmp(how, "<")  ? order == -1 :
			 !strcmp(how, "<=") ? order == -1 || order == 0 :
			 !strcmp(how, ">")  ? order == 1 :
					      order == 1 || order == 0;

	if (!yes) {
		fprintf(stderr, "%s:%d: %s does not hold: ", file, line, text);
		check_print(&a);
		fprintf(stderr, ", ");
		check_print(&b);
		fprintf(stderr, "\n");
	}
	return yes;
}

static inline bool check_text(const char *file, int line, const char *text, bool within, const char *a,
			      const char *b)
{
	const bool yes = a && b && (within ? strstr(a, b) != NULL : !strcmp(a, b));

	if (!yes)
		fprintf(stderr, "%s:%d: %s does not hold: '%s', '%s'\n", file, line, text, a ? a : "NULL",
			b ? b : "NULL");
	return yes;
}

/* Whether all cases are to be tried, as with tests/run -l, or a part. */
static inline bool check_long(void)
{
	const char *set = getenv("DLB_TEST_LONG");

	return set && *set;
}

/* Number of random cases to try: all of them or a quarter. */
static inline int check_cases(int all) { return check_long() ? all : (all + 3) / 4; }

/* An enumeration has the type of an int; what is no number is a pointer. */
#define CHECK_VALUE(x) _Generic((x), bool: check_natural, char: check_int, signed char: check_int, unsigned char: check_natural, \
	short: check_int, unsigned short: check_natural, int: check_int, unsigned: check_natural, long: check_int, \
	unsigned long: check_natural, long long: check_int, unsigned long long: check_natural, float: check_real, \
	double: check_real, default: check_pointer)(x)

#define IS(a, how, b) check_is(__FILE__, __LINE__, #a " " #how " " #b, #how, CHECK_VALUE(a), CHECK_VALUE(b))
#define SAME(a, b) check_text(__FILE__, __LINE__, "SAME(" #a ", " #b ")", false, a, b)
#define HAS(a, b) check_text(__FILE__, __LINE__, "HAS(" #a ", " #b ")", true, a, b)
#endif
