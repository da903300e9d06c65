/* Writes JSON for a page's script element: see page_json.h. */
#include "view/page_json.h"
#include <math.h>
#include <string.h>

/* U+2028 and U+2029 end a line in older JavaScript. */
static bool line_separator(const unsigned char *s)
{
	return s[0] == 0xe2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9);
}

static void quoted(FILE *f, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', f);
	for (; *s; s++) {
		if (line_separator(s)) {
			fprintf(f, "\\u20%02x", s[2] - 0x80);
			s += 2;
		} else if (*s < ' ' || *s == 0x7f || strchr("<>&\"\\'", *s)) {
			fprintf(f, "\\u%04x", *s);
		} else {
			fputc(*s, f);
		}
	}
	fputc('"', f);
}

static void begin(struct dlb_emit *e, const char *key)
{
	if (e->comma)
		fputc(',', e->f);
	if (key) {
		quoted(e->f, key);
		fputc(':', e->f);
	}
	e->comma = true;
}

void dlb_emit_open(struct dlb_emit *e, const char *key, char bracket)
{
	begin(e, key);
	fputc(bracket, e->f);
	e->comma = false;
}

void dlb_emit_close(struct dlb_emit *e, char bracket)
{
	fputc(bracket, e->f);
	e->comma = true;
}

void dlb_emit_int(struct dlb_emit *e, const char *key, int64_t x)
{
	begin(e, key);
	fprintf(e->f, "%lld", (long long)x);
}

void dlb_emit_real(struct dlb_emit *e, const char *key, double x)
{
	begin(e, key);
	if (!isfinite(x))
		fputs("null", e->f);
	else
		fprintf(e->f, "%.7g", x);
}

void dlb_emit_bool(struct dlb_emit *e, const char *key, bool x)
{
	begin(e, key);
	fputs(x ? "true" : "false", e->f);
}

void dlb_emit_str(struct dlb_emit *e, const char *key, const char *s)
{
	begin(e, key);
	if (s)
		quoted(e->f, s);
	else
		fputs("null", e->f);
}
