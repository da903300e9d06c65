/* Kept results of a unit program: a line for each case, in a header that `PROGRAM --write FILE` writes.
 * Doubles are printed to five digits. After an intended change of a result: write the header again, and
 * read which numbers have changed, and why.
 *
 *   kept_line("pins heft", "%.5g", s);	the next line: "pins heft: 1.5"
 *   kept_add(x, n)			ints, part of the next line's checksum; kept_text for a string
 *   return kept_end(argc, argv, lines, DLB_LEN(lines)); */
#ifndef DLB_TESTS_KEPT_H
#define DLB_TESTS_KEPT_H
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_MOST = 4000, KEPT_WIDTH = 96 };
static char *kept_line_at[KEPT_MOST];
static int n_kept;
static uint64_t kept_sum = 14695981039346656037u;

static inline void kept_text(const char *text)
{
	for (; *text; text++)
		kept_sum = (kept_sum ^ (unsigned char)*text) * 1099511628211u;
	kept_sum = (kept_sum ^ 10) * 1099511628211u;
}

static inline void kept_add(const int *x, int n)
{
	for (int i = 0; i < n; i++)
		kept_sum = (kept_sum ^ (uint64_t)(uint32_t)x[i]) * 1099511628211u;
}

/* Without the sign of a NaN, and without what rounding leaves of 0. */
static inline double kept_tidy(double x) { return isnan(x) ? (double)NAN : fabs(x) < 1e-13 ? 0 : x; }

static inline void kept_real(double x)
{
	char text[32];

	snprintf(text, sizeof text, "%.5g", kept_tidy(x));
	kept_text(text);
}

/* Ends a line: its name, what the format says, and the checksum of all that was added since the last line. */
__attribute__((format(printf, 2, 3))) static inline void kept_line(const char *name, const char *format, ...)
{
	char text[4096];
	va_list more;
	int n = snprintf(text, sizeof text, "%s: ", name);

	va_start(more, format);
	n += vsnprintf(text + n, sizeof text - (size_t)n, format, more);
	va_end(more);
	for (int i = 0; i < n && i < (int)sizeof text; i++) /* a line of C, whatever a message quotes */
		if (strchr("\"\\\n", text[i]))
			text[i] = text[i] == '\n' ? '|' : '\'';
	if (n > KEPT_WIDTH - 13) { /* a long text becomes part of the checksum */
		kept_text(text);
		text[KEPT_WIDTH - 13] = 0;
	}
	n = (int)strlen(text);
	snprintf(text + n, sizeof text - (size_t)n, " %08" PRIx32, (uint32_t)(kept_sum ^ kept_sum >> 32));
	kept_sum = 14695981039346656037u;
	if (n_kept == KEPT_MOST)
		abort();
	kept_line_at[n_kept++] = strdup(text);
}

/* A line piece by piece: kept_part for each, then kept_parts with its name. */
static char kept_pieces[3800];

__attribute__((format(printf, 1, 2))) static inline void kept_part(const char *format, ...)
{
	const size_t n = strlen(kept_pieces);
	va_list more;

	va_start(more, format);
	vsnprintf(kept_pieces + n, sizeof kept_pieces - n, format, more);
	va_end(more);
	kept_sum = (kept_sum ^ 3) * 1099511628211u;
}

static inline void kept_parts(const char *name)
{
	kept_line(name, "%s", kept_pieces);
	kept_pieces[0] = '\0';
}

static inline int kept_end(int argc, char **argv, const char *const *line, int n)
{
	int unlike = n != n_kept;

	if (argc == 3 && !strcmp(argv[1], "--write")) {
		FILE *f = fopen(argv[2], "w");

		if (!f)
			return 2;
		for (int i = 0; i < n_kept; i++)
			fprintf(f, "\"%s\",\n", kept_line_at[i]);
		return fclose(f) ? 2 : 0;
	}
	if (n != n_kept)
		fprintf(stderr, "%d lines are kept, %d are made\n", n, n_kept);
	for (int i = 0; i < n && i < n_kept; i++)
		if (strcmp(line[i], kept_line_at[i]) && unlike++ < 10)
			fprintf(stderr, "kept: %s\nmade: %s\n", line[i], kept_line_at[i]);
	for (int i = 0; i < n_kept; i++)
		free(kept_line_at[i]);
	if (!unlike)
		printf("%d kept results\n", n);
	return unlike > 0;
}

/* All members and elements of a value, numbers to five digits, become part of the next line's checksum. */
#ifdef JANSSON_VERSION
static inline void kept_json(const json_t *x)
{
	const char *key;
	json_t *v;
	size_t i;

	if (json_is_object(x))
		json_object_foreach((json_t *)x, key, v)
		{
			kept_text(key);
			kept_json(v);
		}
	else if (json_is_array(x))
		json_array_foreach(x, i, v) kept_json(v);
	else if (json_is_string(x))
		kept_text(json_string_value(x));
	else if (json_is_real(x))
		kept_real(json_real_value(x));
	else
		kept_add((const int[]){ json_typeof(x), (int)json_integer_value(x) }, 2);
	kept_add((const int[]){ -7 }, 1);
}
#endif
#endif
