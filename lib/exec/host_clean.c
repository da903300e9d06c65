/* Removes the processes and files that earlier jobs have left on this host. See host_probe.h.
 *
 * A host that was cut off may still have Open MPI's daemon and ranks when it answers again. Both are found in
 * /proc: a rank has the number of its job in PMIX_NAMESPACE. The daemon has the number of its family of jobs,
 * the job's number without its lower 16 bits, on its command line. */
#define _XOPEN_SOURCE 700
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/copies.h"
#include "exec/host_probe.h"
#include "exec/run_folder.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/process.h"

enum { FAMILY = 0xffff };		/* the bits that number a job within its family */
#define END_S 3.0			/* time for killed processes to end */
#define POLL_S 0.02

/* Reads /proc/PID/FILE, which has words that end with NUL. *n: bytes. Returns new text; NULL: no such
 * file. */
static char *read_words(const char *pid, const char *file, size_t *n)
{
	char *path = dlb_xprintf("/proc/%s/%s", pid, file), *text = NULL;
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t cap = 0;
	ssize_t got = 1;

	*n = 0;
	free(path);
	while (fd >= 0 && got > 0) {
		if (cap - *n < 4096)
			text = dlb_xrealloc(text, cap = 2 * cap + 8192, 1);
		got = read(fd, text + *n, cap - *n - 1);
		*n += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		close(fd);
	if (text)
		text[*n] = '\0';
	return text;
}

static bool has_word(const char *pid, const char *file, const char *word)
{
	size_t n;
	char *text = read_words(pid, file, &n);
	bool found = false;

	for (size_t i = 0; i < n && !found; i += strlen(text + i) + 1)
		found = !strcmp(text + i, word);
	free(text);
	return found;
}

/* Kills the job's remaining processes; returns their number. */
static int kill_job(unsigned long job)
{
	char rank[64], family[32];
	DIR *dir = opendir("/proc");
	int n = 0;

	snprintf(rank, sizeof rank, "PMIX_NAMESPACE=%lu", job);
	snprintf(family, sizeof family, "%lu", job & ~(unsigned long)FAMILY);
	for (struct dirent *d; dir && (d = readdir(dir));) {
		const char *pid = d->d_name;

		if (!isdigit((unsigned char)*pid) || atoi(pid) == getpid() ||
		    dlb_process_state(atoi(pid)) == 'Z')
			continue;
		if (has_word(pid, "environ", rank) ||
		    (has_word(pid, "cmdline", "ess_base_jobid") && has_word(pid, "cmdline", family)))
			n += kill(atoi(pid), SIGKILL) == 0;
	}
	if (dir)
		closedir(dir);
	return n;
}

void dlb_host_clean(const char *jobs)
{
	const char *copies = strstr(jobs, DLB_HOST_COPIES);
	char *end;

	for (const char *p = jobs; isdigit((unsigned char)*p); p = *end == ',' ? end + 1 : end) {
		const unsigned long job = strtoul(p, &end, 10);
		const double start_s = dlb_clock_s();

		while (kill_job(job) && dlb_clock_s() - start_s < END_S)
			dlb_sleep_s(POLL_S);
		dlb_run_folder_remove_job(job);
	}
	if (copies)
		dlb_copies_remove(copies + strlen(DLB_HOST_COPIES), NULL);
}
