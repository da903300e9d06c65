/* Hosts of a run: host files, the hosts of a plan's ranks with and without an allocation of Slurm, the command line and host file for
 * mpiexec; and the progress line of a run. Starts no rank; a shell script stands for scontrol. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "exec/hosts.h"
#include "exec/mpiexec.h"
#include "exec/status.h"
#include "check.h"

static char folder[] = "/tmp/test_hosts.XXXXXX";

static const char *path_of(const char *name)
{
	static char path[200];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	return path;
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(path_of(name), "w");

	assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static void get(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "r");

	assert(f);
	text[fread(text, 1, size - 1, f)] = '\0';
	fclose(f);
}

/* "name address user slots, ..." */
static const char *hosts_as_text(const struct dlb_cluster *c)
{
	static char text[1000];

	*text = '\0';
	for (int i = 0; i < c->n_hosts; i++)
		sprintf(text + strlen(text), "%s%s %s %s %d", i ? ", " : "", c->host[i].name,
			c->host[i].address, c->host[i].user ? c->host[i].user : "-", c->host[i].slots);
	return text;
}

static void host_files(void)
{
	static const struct {
		const char *text, *hosts, *where, *what;
	} cases[] = {
		{ "a\n", "a a - 1", NULL, NULL },
		{ "a slots=2 user=u\n\n# comment\n \t\nb\tuser=v\r\n10.0.0.1 # slots=3\n",
		  "a a u 2, b b v 1, 10.0.0.1 10.0.0.1 - 1", NULL, NULL },
		{ "a username=w slots=65536", "a a w 65536", NULL, NULL },
		{ "a slots=1 #x=y z", "a a - 1", NULL, NULL },
		{ "a\nb slots=65537\n", NULL, ":2", "'slots=65537' is not understood" },
		{ "a slots=0\n", NULL, ":1", "'slots=0' is not understood" },
		{ "a slots=2x\n", NULL, ":1", "'slots=2x' is not understood" },
		{ "a slots\n", NULL, ":1", "'slots' is not understood" },
		{ "a user\n", NULL, ":1", "'user' is not understood" },
		{ "\n\na more=2\n", NULL, ":3", "'more=2' is not understood" },
		{ "# nothing\n", NULL, "", "no host" },
		{ "", NULL, "", "no host" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dlb_cluster c = { .n_hosts = 0 };
		struct dlb_error err = { .what = "" };
		char where[300];
		int rc;

		put("hosts", cases[i].text);
		rc = dlb_hosts_read(path_of("hosts"), &c, &err);
		assert(IS(rc, ==, cases[i].hosts ? 0 : -1));
		if (cases[i].hosts) {
			assert(SAME(hosts_as_text(&c), cases[i].hosts));
		} else {
			snprintf(where, sizeof where, "%s%s", path_of("hosts"), cases[i].where);
			assert(SAME(err.where, where) && SAME(err.what, cases[i].what));
			assert(SAME(err.hint, "lines are ADDRESS [slots=N] [user=NAME]"));
		}
		dlb_cluster_release(&c);
	}
	struct dlb_cluster c = { .n_hosts = 0 };
	struct dlb_error err = { .what = "" };

	assert(IS(dlb_hosts_read(path_of("nothing"), &c, &err), ==, -1) && HAS(err.what, "nothing"));
	dlb_cluster_release(&c);
}

/* A document whose cluster has a node on each of these hosts (one letter each), and a list of hosts if `listed`. */
static void read_cluster(const char *hosts, bool listed, struct dlb_doc *doc)
{
	char text[4000] = "{\"dlb\": \"1.0\", \"cluster\": {\"kinds\": [{\"name\": \"cpu\"}], \"links\": "
			  "[{\"name\": \"l\", "
			  "\"class\": \"net\", \"latency_s\": 1e-5, \"bandwidth_Bps\": 1e9}], \"groups\": "
			  "[{\"name\": \"g\", \"class\": \"site\", "
			  "\"inside\": \"l\"}], \"nodes\": [";
	struct dlb_error err = { .what = "" };
	bool seen[128] = { false };
	int n = 0;

	for (const char *h = hosts; *h; h++)
		sprintf(text + strlen(text), "%s{\"kind\": \"cpu\", \"group\": \"g\", \"host\": \"%c\"}",
			n++ ? ", " : "", *h);
	strcat(text, "]");
	n = 0;
	if (listed)
		strcat(text, ", \"hosts\": [");
	for (const char *h = hosts; *h && listed; h++) {
		if (!seen[(int)*h])
			sprintf(text + strlen(text),
				"%s{\"name\": \"%c\", \"address\": \"addr-%c\", \"slots\": 2}",
				n++ ? ", " : "", *h, *h);
		seen[(int)*h] = true;
	}
	strcat(text, listed ? "]}}" : "}}");
	put("doc.json", text);
	assert(IS(dlb_doc_read(doc, path_of("doc.json"), &err), ==, 0));
}

/* The address of each rank's host, "" if all ranks are on this host. */
static const char *ranks_as_text(const struct dlb_hosts *h)
{
	static char text[1000];

	*text = '\0';
	for (int i = 0; h->rank && i < h->cluster.n_nodes; i++)
		sprintf(text + strlen(text), "%s%s", i ? " " : "", h->rank[i]->address);
	return text;
}

static void hosts_of_a_plan(void)
{
	static const struct {
		const char *nodes;
		bool listed;
		const char *allocated, *tasks, *ranks;
	} cases[] = {
		{ "ab", false, NULL, NULL, "" },
		{ "aab", true, NULL, NULL, "addr-a addr-a addr-b" },
		{ "bab", true, NULL, NULL, "addr-b addr-a addr-b" },
		/* one allocated host is none */
		{ "aab", true, "n1", "3", "addr-a addr-a addr-b" },
		{ "aab", false, "n1", "3", "" },
		{ "a", false, "n1 n2", "1(x2)", "" },
		/* hosts of the plan, by name or in order */
		{ "aabb", false, "b a", "2(x2)", "a a b b" },
		{ "aabb", false, "c b a", "2(x3)", "a a b b" },
		{ "aabb", false, "c a", "2(x2)", "c c a a" },
		{ "abcb", false, "x y z", "1(x3)", "x y z y" },
		/* a plan for one host, or for more than are allocated: by tasks */
		{ "aaaa", false, "x y", "2(x2)", "x x y y" },
		{ "aaaaaa", false, "x y z", "2(x2),1", "x x y y z z" },
		{ "aaaaa", false, "x y z", "1,3,1", "x y y y z" },
		{ "aaa", false, "x y z", "2(x2),1", "x x y" },
		{ "aaaaaaa", false, "x y", "1,2", "x x x y y y y" },
		{ "aaaaaaa", false, "x y z", "1(x3)", "x x y y z z z" },
		{ "abcd", false, "x y", "2(x2)", "x x y y" },
		{ "aaa", false, "x y z", NULL, "x y z" },
		{ "aaaaaa", false, "x y z", "2", "x x y y z z" },
		{ "aaaa", false, "w x y z", "0,2,1(x2)", "w x x y" },
	};

	put("scontrol", "#!/bin/sh\n[ \"$1 $2\" = 'show hostnames' ] && for h in $3; do echo $h; done\n");
	chmod(path_of("scontrol"), 0755);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_hosts h;
		struct dlb_doc doc;
		bool from_slurm;

		read_cluster(cases[i].nodes, cases[i].listed, &doc);
		unsetenv("SLURM_JOB_ID");
		unsetenv("SLURM_TASKS_PER_NODE");
		unsetenv("SLURM_JOB_NODELIST");
		if (cases[i].allocated) {
			setenv("SLURM_JOB_ID", "7", 1);
			setenv("SLURM_JOB_NODELIST", cases[i].allocated, 1);
		}
		if (cases[i].tasks)
			setenv("SLURM_TASKS_PER_NODE", cases[i].tasks, 1);
		from_slurm = cases[i].allocated && *cases[i].ranks && strncmp(cases[i].ranks, "addr", 4);
		if (dlb_hosts_of(&doc, &h, &err)) {
			assert(!dlb_comm_is_open_mpi() || SAME(err.what, ""));
			assert(HAS(err.what, "Open MPI starts ranks on other hosts"));
		} else {
			assert(SAME(ranks_as_text(&h), cases[i].ranks) && IS(h.allocated, ==, from_slurm));
			dlb_hosts_release(&h);
		}
		dlb_doc_release(&doc);
	}
	unsetenv("SLURM_JOB_ID"); /* without a job, the rest does not count */
	struct dlb_error err = { .what = "" };
	struct dlb_hosts h;
	struct dlb_doc doc;

	read_cluster("aa", false, &doc);
	setenv("SLURM_JOB_NODELIST", "x y", 1);
	assert(IS(dlb_hosts_of(&doc, &h, &err), ==, 0) && !h.rank && !h.allocated);
	dlb_hosts_release(&h);
	setenv("SLURM_JOB_ID", "7", 1); /* a list that would end the shell's quotation */
	setenv("SLURM_JOB_NODELIST", "x' y", 1);
	assert(IS(dlb_hosts_of(&doc, &h, &err), ==, 0) && !h.rank);
	dlb_hosts_release(&h);
	dlb_doc_release(&doc);
	unsetenv("SLURM_JOB_ID");
	unsetenv("SLURM_JOB_NODELIST");
	unsetenv("SLURM_TASKS_PER_NODE");
}

static const char *words_as_text(const struct dlb_mpiexec *m)
{
	static char text[1000];

	*text = '\0';
	for (int i = 0; i < m->n; i++)
		sprintf(text + strlen(text), "%s%s", i ? " " : "", m->word[i]);
	return text;
}

static void command_lines_of_mpiexec(void)
{
	const struct dlb_host a = { "a", "addr-a", NULL, 2 }, b = { "b", "addr-b", "u", 1 },
			      a2 = { "x", "addr-a", "v", 1 };
	const struct dlb_host *const two[] = { &a, &b, &a }, *const one[] = { &a2, &a, &a };
	struct dlb_mpiexec m = { .tool = "t" };
	struct dlb_error err = { .what = "" };
	char text[300], *path;

	setenv("DLB_TEST_HOSTS", "1", 1);
	dlb_mpiexec_add_hosts(&m, two, 3, "FILE", false);
	assert(!strncmp(words_as_text(&m), "-n 3 --hostfile FILE --map-by seq --bind-to none", 48));
	assert(HAS(words_as_text(&m), " -x DLB_TEST_HOSTS") && !strstr(words_as_text(&m), "oversubscribe") &&
	       !strstr(words_as_text(&m), " PATH"));
	dlb_mpiexec_release(&m);
	m = (struct dlb_mpiexec){ .tool = "t" };
	dlb_mpiexec_add_hosts(&m, one, 3, "FILE", true);
	assert(!strncmp(words_as_text(&m),
			"-n 3 --hostfile FILE --map-by slot --bind-to none --oversubscribe", 65));
	dlb_mpiexec_release(&m);
	path = dlb_mpiexec_write_hosts(folder, two, 3, &err);
	get(path, text, sizeof text);
	assert(SAME(text, "addr-a\naddr-b username=u\naddr-a\n"));
	unlink(path);
	free(path);
	path = dlb_mpiexec_write_hosts(folder, one, 3, &err);
	get(path, text, sizeof text);
	assert(SAME(text, "addr-a username=v slots=3\n"));
	unlink(path);
	free(path);
	assert(!dlb_mpiexec_write_hosts(path_of("no/folder"), two, 3, &err) &&
	       HAS(err.what, "cannot write '") && HAS(err.what, "No such file"));
}

static void progress_lines(void)
{
	const struct dlb_status none = { 3, 0, NAN, 0, 0, 0, NAN, -1, -1, 0, NULL };
	const struct dlb_status all = {
		12, 40, 0.34214, 99.94, 0.0349, 0.0331, 134.4, 1, 0, 12.1e-6, "checkpoint 'a\tb'"
	};
	char text[DLB_STATUS_BYTES], buf[32];
	struct dlb_status s = all;

	dlb_status_text(&none, false, text);
	assert(SAME(text, "step 3"));
	dlb_status_text(&all, false, text);
	assert(SAME(
		text,
		"step 12 of 40, loss 0.3421, 99.9 samples/s, 34.9 ms a step (predicted 33.1 ms), 2:14 left, "
		"node 1 waits 12.1 us for node 0; checkpoint 'a\\tb'"));
	dlb_status_text(&all, true, text);
	assert(SAME(text, "step 12 of 40, loss 0.3421, 2:14 left; checkpoint 'a\\tb'"));
	s.samples_per_s = 100.0;
	s.predicted_s = 0.0;
	s.waits = 0;
	s.waited_for = 2;
	s.wait_s = 1.0;
	s.event = "";
	s.left_s = 0.0;
	dlb_status_text(&s, false, text);
	assert(SAME(text, "step 12 of 40, loss 0.3421, 100 samples/s, 34.9 ms a step, 0:00 left, node 0 "
			  "waits 1 s for node 2"));
	static const struct {
		double s;
		const char *left;
	} times[] = {
		{ 7.4, ", 0:07 left" },
		{ 59.6, ", 1:00 left" },
		{ 3599.4, ", 59:59 left" },
		{ 3599.5, ", 1:00:00 left" },
		{ 3723, ", 1:02:03 left" },
		{ 86399, ", 23:59:59 left" },
		{ 86400, ", 1 d 0:00:00 left" },
		{ 273906, ", 3 d 4:05:06 left" },
		{ -1, "" },
		{ 1e12, ", 11574074 d 1:46:40 left" },
		{ 1.1e12, "" },
	};

	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		s = none;
		s.left_s = times[i].s;
		dlb_status_text(&s, true, text);
		assert(SAME(text + strlen("step 3"), times[i].left));
	}
	assert(SAME(dlb_status_seconds(0.00099, buf), "990 us") &&
	       SAME(dlb_status_seconds(0.001, buf), "1 ms") && SAME(dlb_status_seconds(0.9, buf), "900 ms") &&
	       SAME(dlb_status_seconds(1.0, buf), "1 s"));
}

/* What a line writes, as its terminal or log. */
static const char *shown(struct dlb_status_line *l, bool permanent, int64_t done, int64_t total,
			 const char *text)
{
	static char out[400];
	const long before = ftell(l->f);

	dlb_status_line_show(l, &(struct dlb_status_told){ done, total, permanent, text });
	fflush(l->f);
	fseek(l->f, before, SEEK_SET);
	out[fread(out, 1, sizeof out - 1, l->f)] = '\0';
	fseek(l->f, 0, SEEK_END);
	return out;
}

static void progress_is_shown(void)
{
	struct dlb_status_line l;
	FILE *f = tmpfile();

	dlb_status_line_open(&l, f, "tool", false, false); /* neither a terminal nor -v */
	assert(l.off && SAME(shown(&l, true, 1, 2, "x"), ""));
	dlb_status_line_open(&l, f, "tool", true, true);
	assert(l.off);
	dlb_status_line_open(&l, f, "tool", false, true);
	assert(!l.off && SAME(shown(&l, false, 1, 2, "x"), "tool: x\n") &&
	       SAME(shown(&l, false, 1, 2, "y"), "") && SAME(shown(&l, true, 1, 2, "z"), "tool: z\n"));
	l.last_s -= 100;
	assert(SAME(shown(&l, false, 1, 2, "later"), "tool: later\n"));
	/* as on a terminal, whose width is not known */
	l.terminal = true;
	assert(SAME(shown(&l, false, 2, 5, "text"), "\r[########............]  40 % text\033[K") && l.shown);
	assert(SAME(shown(&l, true, 2, 5, "kept"), "\r\033[Ktool: kept\n") && !l.shown);
	assert(SAME(shown(&l, false, 5, 5, "text"), "\r[####################] 100 % text\033[K"));
	assert(SAME(shown(&l, false, 0, 0, "text"), "\rtext\033[K"));
	assert(SAME(shown(&l, false, 6, 0,
			  "0123456789012345678901234567890123456789012345678901234567890123456789"
			  "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"),
		    "\r0123456789012345678901234567890123456789012345678901234567890123456789"
		    "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\033[K"));
	l.verbose = false; /* a terminal without -v: not at once, and no lines of a log */
	dlb_status_line_clear(&l);
	l.start_s = l.start_s + 1000;
	assert(SAME(shown(&l, false, 1, 2, "x"), "") && SAME(shown(&l, true, 1, 2, "x"), ""));
	l.start_s -= 100000;
	assert(SAME(shown(&l, false, 1, 0, "x"), "\rx\033[K"));
	fclose(f);
}

int main(void)
{
	char path[5000];

	assert(mkdtemp(folder));
	snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	setenv("PATH", path, 1);
	host_files();
	hosts_of_a_plan();
	command_lines_of_mpiexec();
	progress_lines();
	progress_is_shown();
	unlink(path_of("hosts"));
	unlink(path_of("doc.json"));
	unlink(path_of("scontrol"));
	rmdir(folder);
	return 0;
}
