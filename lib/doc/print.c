/* Compact JSON, byte for byte as jansson's json_dumps(JSON_COMPACT | JSON_ENCODE_ANY |
 * JSON_REAL_PRECISION(17)), in a tenth of its time: jansson passes every token to a function and
 * prints every number by printf. */
#include "doc/print.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* MOST: bytes of a number */
enum { FLAGS = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17), MOST = 32 };
typedef unsigned __int128 wide;

static void put_out(struct dlb_printer *p, const char *s, size_t n)
{
	if (fwrite(s, 1, n, p->f) < n && !p->error)
		p->error = errno ? errno : EIO;
}

void dlb_print_flush(struct dlb_printer *p)
{
	put_out(p, p->text, p->n);
	p->n = 0;
}

/* Returns space for n more bytes. */
static char *room(struct dlb_printer *p, size_t n)
{
	if (sizeof p->text - p->n < n)
		dlb_print_flush(p);
	return p->text + p->n;
}

void dlb_print_text(struct dlb_printer *p, const char *s, size_t n)
{
	if (n > sizeof p->text) {
		dlb_print_flush(p);
		put_out(p, s, n);
		return;
	}
	memcpy(room(p, n), s, n);
	p->n += n;
}

static void put_char(struct dlb_printer *p, char c)
{
	*room(p, 1) = c;
	p->n++;
}

static void put_int(struct dlb_printer *p, int64_t i)
{
	char text[24], *at = text + sizeof text;
	uint64_t left = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;

	do
		*--at = (char)('0' + left % 10);
	while (left /= 10);
	if (i < 0)
		*--at = '-';
	dlb_print_text(p, at, (size_t)(text + sizeof text - at));
}

/* Prints a value by jansson: for values that the code here does not handle. */
static int put_odd(struct dlb_printer *p, const json_t *v)
{
	char *text = v ? json_dumps(v, FLAGS) : NULL;

	if (text)
		dlb_print_text(p, text, strlen(text));
	free(text);
	return text ? 0 : -1;
}

/* Prints a string that needs no escapes; passes others to jansson. */
int dlb_print_string(struct dlb_printer *p, const char *s, size_t n)
{
	bool plain = true;

	for (size_t i = 0; i < n; i++)
		plain &= s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' && s[i] != '\\';
	if (!plain) {
		json_t *v = json_stringn(s, n);
		int rc = put_odd(p, v);

		json_decref(v);
		return rc;
	}
	put_char(p, '"');
	dlb_print_text(p, s, n);
	put_char(p, '"');
	return 0;
}

/* ---- reals ---- */

static wide power_of_ten(int k)				/* 0 .. 38: below 2^127 */
{
	static const uint64_t few[] = {
		1,
		10,
		100,
		1000,
		10000,
		100000,
		1000000,
		10000000,
		100000000,
		1000000000,
		10000000000,
		100000000000,
		1000000000000,
		10000000000000,
		100000000000000,
		1000000000000000,
		10000000000000000,
		100000000000000000,
		1000000000000000000,
		10000000000000000000U,
	};

	return k < 20 ? few[k] : (wide)few[k - 19] * few[19];
}

/* Computes x * 10^k for x = m / 2^s with 1 <= s <= 126 and m < 2^53, result below 2^64, rounded down; *up:
 * rounding up is nearer (ties to even). Exact: the product has at most 180 bits. */
static uint64_t scale(uint64_t m, int s, int k, bool *up)
{
	wide ten = power_of_ten(k), low = (wide)m * (uint64_t)ten,
	     high = (wide)m * (uint64_t)(ten >> 64) + (low >> 64), rest, half;
	uint64_t q, last = (uint64_t)low;

	if (s >= 64) {
		q = (uint64_t)(high >> (s - 64));
		rest = (high - ((wide)q << (s - 64))) << 64 | last;
	} else {
		q = (uint64_t)((high << 64 | last) >> s);
		rest = last & (((wide)1 << s) - 1);
	}
	half = (wide)1 << (s - 1);
	*up = rest > half || (rest == half && q % 2);
	return q;
}

/* Returns the 17 digits of x > 0 as an integer in [10^16, 10^17), and the exponent of the first digit; false:
 * x is too large or too small for this arithmetic. */
static bool digits_of(double x, uint64_t *digits, int *exponent)
{
	const uint64_t least = UINT64_C(10000000000000000);
	int two, ten;
	bool up;
	uint64_t m, q;

	if (!(x >= 1e-21 && x < 1e15))
		return false;
	m = (uint64_t)(frexp(x, &two) * 0x1p53);
	/* floor(log10(2^(two - 1))): the exponent, or one less */
	ten = ((two - 1) * 78913) >> 18;
	while ((q = scale(m, 53 - two, 16 - ten, &up)) >= 10 * least)
		ten++;
	if (q < least)
		return false;
	if (q + up == 10 * least) {
		q = least;
		up = false;
		ten++;
	}
	*digits = q + up;
	*exponent = ten;
	return true;
}

/* Prints as "%.17g", without zeros and plus in the exponent, and with ".0" if it would look like an
 * integer. */
static int put_real(struct dlb_printer *p, const json_t *v)
{
	double x = json_real_value(v);
	char digit[17], *text, *at;
	uint64_t d;
	int e, n = 17;

	if (x == floor(x) && fabs(x) < 1e15 && (x != 0 || !signbit(x))) {
		put_int(p, (int64_t)x);
		dlb_print_text(p, ".0", 2);
		return 0;
	}
	if (!digits_of(fabs(x), &d, &e))
		return put_odd(p, v);
	for (int i = n; i-- > 0; d /= 10)
		digit[i] = (char)('0' + d % 10);
	while (digit[n - 1] == '0')
		n--;
	text = at = room(p, MOST);
	if (x < 0)
		*at++ = '-';
	if (e < -4) {
		*at++ = digit[0];
		if (n > 1)
			*at++ = '.';
		memcpy(at, digit + 1, (size_t)n - 1);
		at += n - 1;
		*at++ = 'e';
		*at++ = '-';
		if (e <= -10)
			*at++ = (char)('0' - e / 10);
		*at++ = (char)('0' - e % 10);
	} else if (e < 0) {
		memcpy(at, "0.000", 5);
		at += 1 - e;
		memcpy(at, digit, (size_t)n);
		at += n;
	} else {
		/* below 10^15 and not an integer: has digits after the point */
		memcpy(at, digit, (size_t)e + 1);
		at[e + 1] = '.';
		memcpy(at + e + 2, digit + e + 1, (size_t)(n - e - 1));
		at += n + 1;
	}
	p->n += (size_t)(at - text);
	return 0;
}

/* ---- values ---- */

int dlb_print_compact(struct dlb_printer *p, const json_t *v)
{
	json_t *o = (json_t *)v;
	int rc = 0;

	switch (json_typeof(v)) {
	case JSON_OBJECT:
		put_char(p, '{');
		for (void *at = json_object_iter(o), *first = at; at; at = json_object_iter_next(o, at)) {
			const char *key = json_object_iter_key(at);

			if (at != first)
				put_char(p, ',');
			rc |= dlb_print_string(p, key, strlen(key));
			put_char(p, ':');
			rc |= dlb_print_compact(p, json_object_iter_value(at));
		}
		put_char(p, '}');
		return rc;
	case JSON_ARRAY:
		put_char(p, '[');
		for (size_t i = 0, n = json_array_size(v); i < n; i++) {
			if (i)
				put_char(p, ',');
			rc |= dlb_print_compact(p, json_array_get(v, i));
		}
		put_char(p, ']');
		return rc;
	case JSON_STRING:
		return dlb_print_string(p, json_string_value(v), json_string_length(v));
	case JSON_INTEGER:
		put_int(p, json_integer_value(v));
		return 0;
	case JSON_REAL:
		return put_real(p, v);
	case JSON_TRUE:
		dlb_print_text(p, "true", 4);
		return 0;
	case JSON_FALSE:
		dlb_print_text(p, "false", 5);
		return 0;
	case JSON_NULL:
		dlb_print_text(p, "null", 4);
		return 0;
	}
	return -1;
}
