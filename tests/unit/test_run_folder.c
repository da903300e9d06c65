/* The folder of a run and what a dead run leaves: its folder, the files of mpiexec, shared memory,
 * processes, and copies of state. What belongs to somebody else stays. Files are in a folder of this test;
 * segments of shared memory have the number of a job that no other process has. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exec/copies.h"
#include "exec/host_probe.h"
#include "exec/run_folder.h"
#include "util/clock.h"
#include "util/mem.h"
#include "check.h"

static char folder[] = "/tmp/test_run_folder.XXXXXX", host[80];
static unsigned long job;

/* ---- the system's answers, where a test gives its own ---- */

static bool no_locks;
static struct statfs *memory; /* NULL: there is no file system in memory */

int flock(int fd, int operation)
{
	if (no_locks) {
		errno = ENOLCK;
		return -1;
	}
	return (int)syscall(SYS_flock, fd, operation);
}

int statfs(const char *path, struct statfs *fs)
{
	if (!memory || strcmp(path, "/dev/shm")) {
		errno = ENOENT;
		return -1;
	}
	*fs = *memory;
	return 0;
}

/* Time passes only while one sleeps. */
static double clock_s;

double dlb_clock_s(void) { return clock_s; }
double dlb_clock_thread_cpu_s(void) { return clock_s; }

void dlb_sleep_s(double s)
{
	usleep((useconds_t)(s * 1e6));
	clock_s += s;
}

/* ---- files ---- */

/* A path in the test's folder; valid until the fourth next call. */
static const char *at(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *at(const char *format, ...)
{
	static char text[4][600];
	static int next;
	char *to = text[next++ % 4];
	va_list args;

	va_start(args, format);
	vsnprintf(to + snprintf(to, 100, "%s/", folder), 400, format, args);
	va_end(args);
	return to;
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static const char *get(const char *path)
{
	static char text[400];
	FILE *f = fopen(path, "r");

	assert(f);
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static void make(const char *path) { assert(!mkdir(path, 0700)); }

/* A number of no process. */
static pid_t dead_process(void)
{
	const pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

/* ---- the place ---- */

static void places(void)
{
	struct statfs fs = { .f_type = 0x01021994, .f_bsize = 1000, .f_bavail = 1000000 };

	setenv("TMPDIR", "/somewhere", 1);
	memory = &fs;
	assert(SAME(dlb_run_folder_parent(), "/somewhere"));
	setenv("TMPDIR", "", 1);
	if (!access("/dev/shm", W_OK | X_OK))
		assert(SAME(dlb_run_folder_parent(), "/dev/shm"));
	unsetenv("TMPDIR");
	if (!access("/dev/shm", W_OK | X_OK))
		assert(SAME(dlb_run_folder_parent(), "/dev/shm"));
	fs.f_bavail--; /* less than a gigabyte */
	assert(SAME(dlb_run_folder_parent(), "/tmp"));
	fs = (struct statfs){ .f_type = 0xef53, .f_bsize = 1000, .f_bavail = 10000000 };
	assert(SAME(dlb_run_folder_parent(), "/tmp"));
	memory = NULL;
	assert(SAME(dlb_run_folder_parent(), "/tmp"));
	setenv("TMPDIR", folder, 1);
}

/* ---- a run's own folder ---- */

static void made_and_removed(void)
{
	struct dlb_error err = { .what = "" };
	int lock, again;
	char *run = dlb_run_folder_new("tool", &lock, &err), name[600];

	assert(run && IS(lock, >=, 0) && !strncmp(run, at("tool."), strlen(at("tool."))));
	assert(IS(strlen(run), ==, strlen(at("tool.")) + 6));
	snprintf(name, sizeof name, "%s/lock", run);
	assert(SAME(get(name), host));
	again = open(name, O_RDONLY);
	assert(IS(flock(again, LOCK_EX | LOCK_NB), ==, -1));
	close(again);
	/* files of any depth, and links, which are not followed */
	make(at("%s/a", strrchr(run, '/') + 1));
	make(at("%s/a/b", strrchr(run, '/') + 1));
	put(at("%s/a/b/file", strrchr(run, '/') + 1), "x");
	put(at("%s/a/file", strrchr(run, '/') + 1), "x");
	make(at("outside"));
	put(at("outside/file"), "x");
	assert(!symlink(at("outside"), at("%s/link", strrchr(run, '/') + 1)));
	snprintf(name, sizeof name, "%s", run);
	dlb_run_folder_free(run, lock);
	assert(!is_there(name) && is_there(at("outside/file")) && fcntl(lock, F_GETFD) < 0);
	unlink(at("outside/file"));
	rmdir(at("outside"));
}

static int entries(const char *of)
{
	DIR *dir = opendir(of);
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static void not_made(void)
{
	struct dlb_error err = { .what = "" };
	int lock;

	no_locks = true;
	assert(!dlb_run_folder_new("tool", &lock, &err));
	no_locks = false;
	assert(!strncmp(err.what, "cannot write in '", 17) && HAS(err.what, at("tool.")));
	assert(HAS(err.what, strerror(ENOLCK)) && IS(entries(folder), ==, 0));
	setenv("TMPDIR", at("none"), 1);
	assert(!dlb_run_folder_new("tool", &lock, &err));
	assert(!strncmp(err.what, "cannot make a folder like '", 27) && HAS(err.what, at("none/tool.")));
	assert(HAS(err.what, "No such file"));
	setenv("TMPDIR", folder, 1);
}

static void notes(void)
{
	static const struct {
		const char *text;
		unsigned long job;
	} cases[] = { { "123", 123 }, { "4294901761", 4294901761 }, { "12x", 0 }, { "", 0 }, { NULL, 0 } };
	char text[100];

	for (int i = 0; i < DLB_LEN(cases); i++) {
		if (cases[i].text)
			setenv("PMIX_NAMESPACE", cases[i].text, 1);
		else
			unsetenv("PMIX_NAMESPACE");
		assert(IS(dlb_run_folder_job(), ==, cases[i].job));
		dlb_run_folder_record_job(folder);
	}
	unsetenv("PMIX_NAMESPACE");
	assert(SAME(get(at("jobs")), "123\n4294901761\n"));
	dlb_run_folder_record_launcher(folder);
	dlb_run_folder_record_launcher(folder);
	snprintf(text, sizeof text, "%ld\n%ld\n", (long)getpid(), (long)getpid());
	assert(SAME(get(at("launcher")), text));
	unlink(at("jobs"));
	unlink(at("launcher"));
}

/* ---- folders of dead runs ---- */

/* Makes the folder of a run with a lock that says `where`. */
static void leave(const char *name, const char *where)
{
	make(at("%s", name));
	put(at("%s/file", name), "x");
	if (where)
		put(at("%s/lock", name), where);
}

/* A new run removes what is there. */
static void run_once(void)
{
	struct dlb_error err;
	int lock;
	char *run = dlb_run_folder_new("tool", &lock, &err);

	assert(run);
	dlb_run_folder_free(run, lock);
}

static void dead_runs(void)
{
	static const char *const kept[] = { "tool.other0",  "tool.none00",  "tool.nolock", "tool.abcde",
					    "tool.abcdefg", "tools.abcdef", "tool-abcdef", "tool.locked",
					    "tool.shared",  "tool.linked" };
	int lock;

	leave("tool.dead00", host);
	leave("tool.dead01", host);
	for (int i = 0; i < DLB_LEN(kept); i++)
		leave(kept[i], i == 0 ? "another" : i == 1 ? "" : i == 2 ? NULL : host);
	lock = open(at("tool.locked/lock"), O_RDONLY);
	assert(!flock(lock, LOCK_EX | LOCK_NB));
	assert(!chmod(at("tool.shared"), 0770));
	assert(!rename(at("tool.linked/lock"), at("tool.linked/real")) &&
	       !symlink("real", at("tool.linked/lock")));
	put(at("tool.afile0"), "x");
	run_once();
	assert(!is_there(at("tool.dead00")) && !is_there(at("tool.dead01")) && is_there(at("tool.afile0")));
	for (int i = 0; i < DLB_LEN(kept); i++)
		assert(is_there(at("%s/file", kept[i])));
	close(lock);
	assert(!chmod(at("tool.shared"), 0700));
	run_once();
	assert(!is_there(at("tool.locked")) && !is_there(at("tool.shared")) && is_there(at("tool.linked")));
	unlink(at("tool.afile0"));
	for (int i = 0; i < DLB_LEN(kept); i++) {
		static const char *const files[] = { "file", "lock", "real" };

		for (int k = 0; k < 3; k++)
			unlink(at("%s/%s", kept[i], files[k]));
		rmdir(at("%s", kept[i]));
	}
}

/* Makes mpiexec's files of a process or daemon: ompi.HOST.UID/NAME. */
static const char *session(const char *of, const char *name)
{
	const char *path = at("ompi.%s.%u/%s", of, (unsigned)geteuid(), name);

	mkdir(at("ompi.%s.%u", of, (unsigned)geteuid()), 0700);
	make(path);
	put(at("ompi.%s.%u/%s/file", of, (unsigned)geteuid(), name), "x");
	return path;
}

static void files_of_launchers(void)
{
	const pid_t dead = dead_process(), zombie = fork();
	const unsigned uid = (unsigned)geteuid();
	char text[200], own[40];

	if (!zombie)
		_exit(0);
	waitid(P_PID, (id_t)zombie, NULL, WEXITED | WNOWAIT);
	snprintf(own, sizeof own, "pid.%ld", (long)getpid());
	snprintf(text, sizeof text, "%ld\n%ld\n%ld\n1\n", (long)dead, (long)zombie, (long)getpid());
	leave("tool.dead00", host);
	put(at("tool.dead00/launcher"), text);
	snprintf(text, sizeof text, "pid.%ld", (long)dead);
	session(host, text);
	snprintf(text, sizeof text, "pid.%ld", (long)zombie);
	session(host, text);
	session(host, own);
	session(host, "pid.1");
	run_once();
	assert(!is_there(at("ompi.%s.%u/pid.%ld", host, uid, (long)dead)));
	assert(!is_there(at("ompi.%s.%u/pid.%ld", host, uid, (long)zombie)));
	assert(is_there(at("ompi.%s.%u/%s/file", host, uid, own)));
	assert(is_there(at("ompi.%s.%u/pid.1/file", host, uid)));
	waitpid(zombie, NULL, 0);
	/* the user's folder goes with the last one in it */
	unlink(at("ompi.%s.%u/pid.1/file", host, uid));
	rmdir(at("ompi.%s.%u/pid.1", host, uid));
	unlink(at("ompi.%s.%u/%s/file", host, uid, own));
	rmdir(at("ompi.%s.%u/%s", host, uid, own));
	leave("tool.dead00", host);
	snprintf(text, sizeof text, "%ld\n", (long)dead);
	put(at("tool.dead00/launcher"), text);
	run_once();
	assert(!is_there(at("ompi.%s.%u", host, uid)));
}

/* ---- jobs ---- */

static const char *segment(char name[200], const char *first, unsigned uid, unsigned long number,
			   const char *last)
{
	snprintf(name, 200, "/dev/shm/%s.%s.%u.%lx.%s", first, host, uid, number, last);
	return name;
}

static void shared_memory(void)
{
	const unsigned uid = (unsigned)geteuid();
	char gone[3][200], kept[6][200], text[100];

	if (access("/dev/shm", W_OK | X_OK))
		return;
	put(segment(gone[0], "vader_segment", uid, job, "0"), "");
	put(segment(gone[1], "vader_segment", uid, job, "12"), "");
	put(segment(gone[2], "vader_segment", uid, job + 1, "3"), "");
	put(segment(kept[0], "vader_segment", uid, job + 2, "0"), "");
	put(segment(kept[1], "vader_segment", uid + 1, job, "0"), "");
	put(segment(kept[2], "vader_segment", uid, job, "0x"), "");
	put(segment(kept[3], "vader_segment", uid, job, ""), "");
	put(segment(kept[4], "other_segment", uid, job, "0"), "");
	make(segment(kept[5], "vader_segment", uid, job, "7"));
	leave("tool.dead00", host);
	snprintf(text, sizeof text, "%lu\n%lu\n%lu\n", job, job, job + 1);
	put(at("tool.dead00/jobs"), text);
	run_once();
	for (int i = 0; i < 3; i++)
		assert(!is_there(gone[i]));
	for (int i = 0; i < 6; i++)
		assert(is_there(kept[i]));
	put(gone[0], "");
	put(gone[2], "");
	dlb_run_folder_remove_job(job);
	assert(!is_there(gone[0]) && is_there(gone[2]));
	dlb_run_folder_remove_job(job + 1);
	assert(!is_there(gone[2]));
	for (int i = 0; i < 6; i++)
		assert(IS(remove(kept[i]), ==, 0));
}

static void files_of_daemons(void)
{
	char family[40], next[40];
	const unsigned uid = (unsigned)geteuid();

	snprintf(family, sizeof family, "jf.%lu", job >> 16);
	snprintf(next, sizeof next, "jf.%lu", (job >> 16) + 1);
	session(host, family);
	session(host, next);
	session("n1", family);
	dlb_run_folder_remove_job(job);
	assert(!is_there(at("ompi.%s.%u/%s", host, uid, family)) &&
	       is_there(at("ompi.%s.%u/%s", host, uid, next)));
	assert(is_there(at("ompi.n1.%u/%s", uid, family)));
	setenv("SLURMD_NODENAME", "n1", 1);
	dlb_run_folder_remove_job(job);
	assert(!is_there(at("ompi.n1.%u", uid)));
	unsetenv("SLURMD_NODENAME");
	dlb_run_folder_remove_job(job + (1 << 16));
	assert(!is_there(at("ompi.%s.%u", host, uid)));
}

/* ---- copies ---- */

static void copies(void)
{
	struct dlb_error err = { .what = "" };
	char name[4][DLB_COPIES_NAME], path[4][DLB_COPIES_PATH], other[200];
	const struct timespec now = { .tv_nsec = UTIME_OMIT };
	int fd[4];

	for (int i = 0; i < 4; i++) {
		assert(!dlb_copies_name(name[i], &err) && IS(strlen(name[i]), ==, 11 + 16));
		dlb_copies_path(name[i], path[i]);
		assert(SAME(path[i], at("%s.%s", name[i], host)) && (!i || strcmp(name[i], name[i - 1])));
		fd[i] = dlb_copies_open(name[i], i < 2, &err);
		assert(IS(fd[i], >=, 0) && is_there(path[i]));
	}
	snprintf(other, sizeof other, "%s", at("%s.elsewhere", name[0]));
	make(other);
	put(at("%s.elsewhere/lock", name[0]), "parent\n");
	/* 0: a parent that has died; 1: one that lives; 2, 3: ranks that have ended, 3 long ago */
	assert(SAME(get(at("%s.%s/lock", name[0], host)), "parent\n"));
	assert(SAME(get(at("%s.%s/lock", name[2], host)), ""));
	close(fd[0]);
	close(fd[2]);
	close(fd[3]);
	for (int i = 2; i < 4; i++) {
		const struct timespec times[2] = { now, { .tv_sec = time(NULL) - (i == 2 ? 590 : 610) } };

		assert(!utimensat(AT_FDCWD, at("%s.%s/lock", name[i], host), times, 0));
	}
	fd[0] = dlb_copies_open(name[1], false, &err); /* a rank removes nothing */
	assert(is_there(path[0]) && is_there(path[3]));
	close(fd[0]);
	fd[0] = dlb_copies_open(name[1], true, &err);
	assert(!is_there(path[0]) && is_there(path[1]) && is_there(path[2]) && !is_there(path[3]) &&
	       is_there(other));
	close(fd[0]);
	close(fd[1]);
	put(at("%s.%s/1-0.head", name[1], host), "x");
	put(at("%s.%s/2-0.head", name[1], host), "x");
	make(at("%s.%s/step-3", name[1], host));
	put(at("%s.%s/step-3/file", name[1], host), "x");
	dlb_copies_remove(name[1], "2-");
	assert(!is_there(at("%s.%s/1-0.head", name[1], host)) &&
	       !is_there(at("%s.%s/step-3", name[1], host)));
	assert(is_there(at("%s.%s/2-0.head", name[1], host)) && is_there(at("%s.%s/lock", name[1], host)));
	dlb_copies_remove(name[1], NULL);
	dlb_copies_remove(name[2], NULL);
	assert(!is_there(path[1]) && !is_there(path[2]));
	unlink(at("%s.elsewhere/lock", name[0]));
	rmdir(other);
	snprintf(other, sizeof other, "%s", at("none"));
	setenv("TMPDIR", other, 1);
	assert(IS(dlb_copies_open(name[1], false, &err), ==, -1) && HAS(err.what, "cannot make folder '"));
	setenv("TMPDIR", folder, 1);
}

/* ---- processes ---- */

static int held[2]; /* a pipe that nobody writes to */

/* A process of these environment and arguments that waits. */
static pid_t waiting(const char *variable, const char *first, const char *second)
{
	const char *const argv[] = { "sh", "-c", "read x", "sh", first, second, NULL };
	const char *const env[] = { "A=1", variable, "Z=2", NULL };
	const pid_t pid = fork();

	if (pid)
		return pid;
	dup2(held[0], 0);
	execve("/bin/sh", (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
	_exit(127);
}

static void until_started(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%ld/cmdline", (long)pid);
	while (strncmp(get(path), "sh", 3))
		usleep(1000);
}

static bool was_killed(pid_t pid)
{
	int status;
	const bool ended = waitpid(pid, &status, WNOHANG) == pid;

	if (!ended) {
		kill(pid, SIGTERM);
		waitpid(pid, &status, 0);
	}
	return ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* This program, as a process of the job itself, cleans the host. */
static void clean(const char *self, const char *jobs)
{
	char variable[64], tmp[200];
	const char *const argv[] = { self, jobs, NULL }, *const env[] = { variable, tmp, NULL };
	int status;
	pid_t pid;

	snprintf(variable, sizeof variable, "PMIX_NAMESPACE=%lu", job);
	snprintf(tmp, sizeof tmp, "TMPDIR=%s", folder);
	pid = fork();
	if (!pid) {
		execve(self, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
		_exit(127);
	}
	assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && IS(WEXITSTATUS(status), ==, 0));
}

enum { PROCESSES = 7 };

static void start(pid_t pid[PROCESSES])
{
	const unsigned long family = job & ~0xfffful;
	char rank[64], next[64], longer[64], jobs[2][32], other[32];

	snprintf(rank, sizeof rank, "PMIX_NAMESPACE=%lu", job);
	snprintf(next, sizeof next, "PMIX_NAMESPACE=%lu", job + 1);
	snprintf(longer, sizeof longer, "PMIX_NAMESPACE=%lu1", job);
	snprintf(jobs[0], sizeof jobs[0], "%lu", family);
	snprintf(jobs[1], sizeof jobs[1], "%lu", job);
	snprintf(other, sizeof other, "%lu", family + (1 << 16));
	pid[0] = waiting(rank, "a", "b");
	pid[1] = waiting(next, "a", "b");
	pid[2] = waiting("B=2", "ess_base_jobid", jobs[0]);
	pid[3] = waiting(longer, "a", "b");
	pid[4] = waiting("B=2", "ess_base_jobid", other);
	pid[5] = waiting("B=2", "ess_base", jobs[0]);
	pid[6] = waiting("B=2", "ess_base_jobid", jobs[1]);
	for (int i = 0; i < PROCESSES; i++)
		until_started(pid[i]);
}

static void remains_of_jobs(const char *self)
{
	struct dlb_error err;
	char name[DLB_COPIES_NAME], path[DLB_COPIES_PATH], jobs[200], family[40];
	pid_t pid[PROCESSES];

	assert(!dlb_copies_name(name, &err));
	dlb_copies_path(name, path);
	snprintf(family, sizeof family, "jf.%lu", job >> 16);
	start(pid);
	make(path);
	snprintf(jobs, sizeof jobs, "-+%s", name);
	clean(self, jobs);
	assert(!is_there(path));
	make(path);
	session(host, family);
	snprintf(jobs, sizeof jobs, "%lu", job);
	clean(self, jobs);
	assert(is_there(path) && !is_there(at("ompi.%s.%u", host, (unsigned)geteuid())));
	for (int i = 0; i < PROCESSES; i++)
		assert(IS(was_killed(pid[i]), ==, i == 0 || i == 2));
	start(pid);
	snprintf(jobs, sizeof jobs, "%lu,%lu+%s", job + 1, job, name);
	clean(self, jobs);
	assert(!is_there(path));
	for (int i = 0; i < PROCESSES; i++)
		assert(IS(was_killed(pid[i]), ==, i < 3));
}

int main(int argc, char **argv)
{
	if (argc > 1) { /* it does not wait for what has ended */
		dlb_host_clean(argv[1]);
		return clock_s < 2.9 ? 0 : 1;
	}
	int open_files;

	alarm(60);
	assert(mkdtemp(folder) && !pipe2(held, O_CLOEXEC) && !gethostname(host, sizeof host - 1));
	job = ((unsigned long)getpid() << 16) + 7;
	open_files = entries("/proc/self/fd");
	places();
	made_and_removed();
	not_made();
	notes();
	dead_runs();
	files_of_launchers();
	shared_memory();
	files_of_daemons();
	copies();
	remains_of_jobs("/proc/self/exe");
	assert(IS(entries("/proc/self/fd"), ==, open_files));
	return rmdir(folder); /* each test has left it empty */
}
