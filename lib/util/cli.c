/* Parses options and prints the messages of a tool: see cli.h. The table is searched in order, the tool's own
 * rows first. --help prints the same rows, so parser, help and manual agree. */
#include "util/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "util/input.h"
#include "util/mem.h"

enum { N_STANDARD = 5, MAX_OPERANDS = 8 };

struct parse {
	struct dlb_cli *cli;
	bool help, version;
	int64_t max_document;
	struct dlb_opt standard[N_STANDARD];
};

static const struct dlb_opt *row(const struct parse *p, int i)
{
	return i < p->cli->n_opts ? &p->cli->opts[i] : &p->standard[i - p->cli->n_opts];
}

static int n_rows(const struct parse *p)
{
	return p->cli->n_opts + N_STANDARD;
}

static int help_width(const struct dlb_opt *o)
{
	return (int)strlen(o->name) + (o->arg ? 1 + (int)strlen(o->arg) : 0);
}

static void print_help(const struct parse *p)
{
	int width = 0;

	printf("usage: %s %s\n%s\n\n", p->cli->tool, p->cli->usage, p->cli->summary);
	for (int i = 0; i < n_rows(p); i++)
		if (help_width(row(p, i)) > width)
			width = help_width(row(p, i));
	for (int i = 0; i < n_rows(p); i++) {
		const struct dlb_opt *o = row(p, i);

		if (o->letter)
			printf("  -%c, ", o->letter);
		else
			printf("      ");
		printf("--%s%s%s%*s  %s\n", o->name, o->arg ? " " : "", o->arg ? o->arg : "",
		       width - help_width(o), "", o->help);
	}
}

static int usage(const struct dlb_cli *cli, const char *fmt, va_list ap)
{
	struct dlb_error err = { .status = 2 };

	vsnprintf(err.what, sizeof err.what, fmt, ap);
	dlb_hint(&err, "try '%s --help'", cli->tool);
	dlb_error_print(stderr, cli->tool, -1, &err);
	return 2;
}

int dlb_cli_usage(const struct dlb_cli *cli, const char *fmt, ...)
{
	va_list ap;
	int status;

	va_start(ap, fmt);
	status = usage(cli, fmt, ap);
	va_end(ap);
	return status;
}

/* "--name", or "-n" if there is no long name. */
static const char *shown(const struct dlb_opt *o, char buf[64])
{
	snprintf(buf, 64, "--%s", o->name);
	return buf;
}

bool dlb_cli_is_count(const char *text, int64_t most, int64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoll(text, &end, 10);
	return end != text && !*end && !errno && *n >= 1 && *n <= most;
}

static int set_int(const struct dlb_cli *cli, const struct dlb_opt *o, const char *text)
{
	char name[64], *end;
	long long v;

	errno = 0;
	v = strtoll(text, &end, 10);
	if (end == text || *end || errno)
		return dlb_cli_usage(cli, "%s wants an integer, not '%s'", shown(o, name), text);
	if ((o->min != 0 || o->max != 0) && ((double)v < o->min || (double)v > o->max))
		return dlb_cli_usage(cli, "%s must lie between %.15g and %.15g, not %lld", shown(o, name),
				     o->min, o->max, v);
	*(int64_t *)o->value = v;
	return 0;
}

static int set_real(const struct dlb_cli *cli, const struct dlb_opt *o, const char *text)
{
	char name[64], *end;
	double v = strtod(text, &end);

	if (end == text || *end || !isfinite(v))
		return dlb_cli_usage(cli, "%s wants a number, not '%s'", shown(o, name), text);
	if ((o->min != 0 || o->max != 0) && (v < o->min || v > o->max))
		return dlb_cli_usage(cli, "%s must lie between %.15g and %.15g, not %.15g", shown(o, name),
				     o->min, o->max, v);
	*(double *)o->value = v;
	return 0;
}

static int set_bytes(const struct dlb_cli *cli, const struct dlb_opt *o, const char *text)
{
	static const char units[] = "KMG";
	char name[64], *end;
	long long v;
	int shift;

	errno = 0;
	v = strtoll(text, &end, 10);
	const char *unit = end != text && *end ? strchr(units, *end) : NULL;
	shift = unit ? 10 * (int)(unit - units + 1) : 0;
	if (end == text || errno || v < 1 || v > INT64_MAX >> shift || end[unit != NULL])
		return dlb_cli_usage(cli, "%s wants a number of bytes such as 64K, 10M or 2G, not '%s'",
				     shown(o, name), text);
	*(int64_t *)o->value = v << shift;
	return 0;
}

/* Stores text (NULL for a flag) in o's value. Returns 0 or the exit status. */
static int set(struct dlb_cli *cli, const struct dlb_opt *o, const char *text)
{
	if (!dlb_cli_given(cli, o->name) && cli->n_given < DLB_MOST_GIVEN)
		cli->given[cli->n_given++] = o->name;
	if (o->given)
		*o->given = true;
	switch (o->type) {
	case DLB_OPT_FLAG:
		*(bool *)o->value = true;
		return 0;
	case DLB_OPT_STR:
		*(const char **)o->value = text;
		return 0;
	case DLB_OPT_INT:
		return set_int(cli, o, text);
	case DLB_OPT_REAL:
		return set_real(cli, o, text);
	case DLB_OPT_BYTES:
		return set_bytes(cli, o, text);
	case DLB_OPT_LIST: {
		struct dlb_strlist *l = o->value;

		l->item = dlb_xrealloc(l->item, (size_t)l->n + 1, sizeof *l->item);
		l->item[l->n++] = text;
		return 0;
	}
	}
	dlb_bug("option '%s' has type %d", o->name, (int)o->type);
}

static int unknown_long(const struct parse *p, const char *word, size_t n)
{
	const char **names = dlb_xmalloc((size_t)n_rows(p) * sizeof *names), *near;
	char *name = dlb_xprintf("%.*s", (int)(n > 200 ? 200 : n), word);
	int status;

	for (int i = 0; i < n_rows(p); i++)
		names[i] = row(p, i)->name;
	near = dlb_nearest(name, names, n_rows(p));
	status = near ? dlb_cli_usage(p->cli, "unknown option '--%s', did you mean '--%s'?", name, near) :
			dlb_cli_usage(p->cli, "unknown option '--%s'", name);
	free(name);
	free(names);
	return status;
}

/* Parses "--name", "--name=value", "--name value". Advances *i past a value in the next word. */
static int parse_long(const struct parse *p, int argc, char **argv, int *i)
{
	const char *word = argv[*i] + 2, *value = strchr(word, '=');
	size_t n = value ? (size_t)(value++ - word) : strlen(word);

	for (int k = 0; k < n_rows(p); k++) {
		const struct dlb_opt *o = row(p, k);

		if (strlen(o->name) != n || strncmp(o->name, word, n))
			continue;
		if (o->type == DLB_OPT_FLAG)
			return value ? dlb_cli_usage(p->cli, "--%s takes no value", o->name) :
				       set(p->cli, o, NULL);
		if (!value && *i + 1 >= argc)
			return dlb_cli_usage(p->cli, "--%s wants %s", o->name, o->arg);
		return set(p->cli, o, value ? value : argv[++*i]);
	}
	return unknown_long(p, word, n);
}

/* Parses "-m8", "-m 8", "-qv". */
static int parse_short(const struct parse *p, int argc, char **argv, int *i)
{
	for (const char *c = argv[*i] + 1; *c; c++) {
		const struct dlb_opt *o = NULL;
		int status;

		for (int k = 0; k < n_rows(p) && !o; k++)
			if (row(p, k)->letter == *c)
				o = row(p, k);
		if (!o)
			return dlb_cli_usage(p->cli, "unknown option '-%c'", *c);
		if (o->type != DLB_OPT_FLAG) {
			if (!c[1] && *i + 1 >= argc)
				return dlb_cli_usage(p->cli, "-%c wants %s", o->letter, o->arg);
			return set(p->cli, o, c[1] ? c + 1 : argv[++*i]);
		}
		status = set(p->cli, o, NULL);
		if (status)
			return status;
	}
	return 0;
}

static int parse_words(struct parse *p, int argc, char **argv)
{
	struct dlb_cli *cli = p->cli;
	bool only_operands = false;

	for (int i = 1; i < argc; i++) {
		int status = 0;

		if (!only_operands && !strcmp(argv[i], "--")) {
			only_operands = true;
		} else if (!only_operands && argv[i][0] == '-' && argv[i][1] == '-') {
			status = parse_long(p, argc, argv, &i);
		} else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
			status = parse_short(p, argc, argv, &i);
		} else if (cli->n_operands >= cli->max_operands || cli->n_operands >= MAX_OPERANDS) {
			return dlb_cli_usage(cli, "one operand too many: '%s'", argv[i]);
		} else {
			cli->operands[cli->n_operands++] = argv[i];
		}
		if (status)
			return status;
		if (p->help || p->version)
			return 0;	/* later arguments have no effect */
	}
	return 0;
}

int dlb_cli_parse(struct dlb_cli *cli, int argc, char **argv)
{
	struct parse p = { .cli = cli, .max_document = DLB_INPUT_MAX_TEXT };
	const struct dlb_opt standard[N_STANDARD] = {
		{ .letter = 'q',
		  .name = "quiet",
		  .type = DLB_OPT_FLAG,
		  .value = &cli->quiet,
		  .help = "no warnings, no progress" },
		{ .letter = 'v',
		  .name = "verbose",
		  .type = DLB_OPT_FLAG,
		  .value = &cli->verbose,
		  .help = "say on standard error what is done" },
		{ .name = "max-document",
		  .type = DLB_OPT_BYTES,
		  .value = &p.max_document,
		  .arg = "BYTES",
		  .help = "refuse a document longer than that (default 1G)" },
		{ .name = "help", .type = DLB_OPT_FLAG, .value = &p.help, .help = "show this text" },
		{ .name = "version", .type = DLB_OPT_FLAG, .value = &p.version, .help = "show the version" },
	};

	memcpy(p.standard, standard, sizeof standard);
	cli->n_operands = cli->n_given = 0;
	cli->status = parse_words(&p, argc, argv);
	if (cli->status)
		return -1;
	dlb_input_set_max_text((uint64_t)p.max_document);
	if (p.help)
		print_help(&p);
	else if (p.version)
		printf("%s %s\n", cli->tool, DLB_VERSION);
	else
		return 0;
	cli->status = dlb_cli_close_stdout(cli);
	return 1;
}

int dlb_cli_die(const struct dlb_cli *cli, const struct dlb_error *err)
{
	dlb_error_print(stderr, cli->tool, -1, err);
	return err->status == 1 ? 1 : 2;
}

static void line(const struct dlb_cli *cli, const char *fmt, va_list ap)
{
	struct dlb_error err = { .status = 0 };

	vsnprintf(err.what, sizeof err.what, fmt, ap);
	dlb_error_print(stderr, cli->tool, -1, &err);
}

void dlb_cli_warn(const struct dlb_cli *cli, const char *fmt, ...)
{
	va_list ap;

	if (cli->quiet)
		return;
	va_start(ap, fmt);
	line(cli, fmt, ap);
	va_end(ap);
}

void dlb_cli_say(const struct dlb_cli *cli, const char *fmt, ...)
{
	va_list ap;

	if (!cli->verbose)
		return;
	va_start(ap, fmt);
	line(cli, fmt, ap);
	va_end(ap);
}

bool dlb_cli_given(const struct dlb_cli *cli, const char *option)
{
	for (int i = 0; i < cli->n_given; i++)
		if (!strcmp(cli->given[i], option))
			return true;
	return false;
}

void dlb_cli_warn_unused(const struct dlb_cli *cli, const struct dlb_unused *row)
{
	for (int i = 0; row[i].option; i++) {
		bool said = !row[i].unused || !dlb_cli_given(cli, row[i].option);
		for (int k = 0; k < i && !said; k++)
			said = row[k].unused && !strcmp(row[k].option, row[i].option);
		if (!said)
			dlb_cli_warn(cli, "--%s has no effect: %s", row[i].option, row[i].why);
	}
}

int dlb_cli_close_stdout(const struct dlb_cli *cli)
{
	struct dlb_error err = { .status = 2 };
	bool failed = ferror(stdout);

	errno = 0;
	if (!fclose(stdout) && !failed)
		return 0;
	dlb_fail(&err, NULL, "cannot write standard output: %s", strerror(errno ? errno : EIO));
	return dlb_cli_die(cli, &err);
}

/* Frees the values of LIST options. */
void dlb_cli_release(struct dlb_cli *cli)
{
	for (int i = 0; i < cli->n_opts; i++) {
		if (cli->opts[i].type == DLB_OPT_LIST) {
			struct dlb_strlist *l = cli->opts[i].value;

			free(l->item);
			*l = (struct dlb_strlist){ 0 };
		}
	}
}
