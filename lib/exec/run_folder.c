/* The folder of a run, and the removal of folders of killed runs. See run_folder.h. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "exec/run_folder.h"
#include "util/mem.h"
#include "util/process.h"

#define TMPFS 0x01021994		/* statfs(2): a file system in memory */
#define MEMORY_ROOM 1e9	/* bytes: far more than documents take, and less than a container has */
#define MEMORY "/dev/shm"
#define LOCK "lock"
#define JOBS "jobs"
#define LAUNCHER "launcher"
enum { RANDOM = 6, DEEPEST = 32 };	/* random letters of mkdtemp; depth of nested folders */

/* Prefers memory: mpiexec deletes a dozen files, 8 MB, before it ends, and a busy disk may take a second for
 * each (ext4 mounted "discard" without a journal waits for the disk at every one). */
const char *dlb_run_folder_parent(void)
{
	const char *tmp = getenv("TMPDIR");
	struct statfs fs;

	if (tmp && *tmp)
		return tmp;
	if (statfs(MEMORY, &fs) == 0 && fs.f_type == TMPFS &&
	    (double)fs.f_bavail * (double)fs.f_bsize >= MEMORY_ROOM && access(MEMORY, W_OK | X_OK) == 0)
		return MEMORY;
	return "/tmp";
}

/* ---- removing ---- */

static void host_name(char *name, size_t bytes)
{
	memset(name, 0, bytes);
	if (gethostname(name, bytes - 1))
		name[0] = '\0';
}

static bool is_own(int folder)
{
	struct stat st;

	return fstat(folder, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022);
}

/* Removes the contents of a folder; follows no link. Closes fd. */
static void empty(int fd, int depth)
{
	DIR *dir = fdopendir(fd);

	if (!dir) {
		close(fd);
		return;
	}
	for (struct dirent *d; (d = readdir(dir));) {
		int inner;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (unlinkat(fd, d->d_name, 0) == 0 || depth == DEEPEST)
			continue;
		inner = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (inner < 0)
			continue;
		empty(inner, depth + 1);
		unlinkat(fd, d->d_name, AT_REMOVEDIR);
	}
	closedir(dir);
}

/* Whether the name is Open MPI 4's vader_segment.HOST.UID.JOB.RANK of that job (hexadecimal). */
static bool is_segment(const char *name, unsigned long job)
{
	static const char first[] = "vader_segment.";
	char middle[64];
	const char *p;

	if (strncmp(name, first, sizeof first - 1))
		return false;
	snprintf(middle, sizeof middle, ".%u.%lx.", (unsigned)geteuid(), job);
	p = strstr(name + sizeof first - 1, middle);
	if (!p)
		return false;
	p += strlen(middle);
	return isdigit((unsigned char)*p) && p[strspn(p, "0123456789")] == '\0';
}

static void remove_segments(unsigned long job)
{
	DIR *dir = opendir(MEMORY);
	struct stat st;

	for (struct dirent *d; dir && (d = readdir(dir));)
		if (is_segment(d->d_name, job) &&
		    fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
		    st.st_uid == geteuid())
			unlinkat(dirfd(dir), d->d_name, 0);
	if (dir)
		closedir(dir);
}

static FILE *open_note(int folder, const char *name)
{
	int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* Removes the shared memory of the jobs that the folder notes. Every rank has noted its job, mostly the same
 * number. */
static void remove_shared_memory(int folder)
{
	FILE *f = open_note(folder, JOBS);
	unsigned long job, last = ULONG_MAX;

	while (f && fscanf(f, "%lu", &job) == 1) {
		if (job != last)
			remove_segments(job);
		last = job;
	}
	if (f)
		fclose(f);
}

/* Removes ompi.HOST.UID/NAME in `place`, the files of one of mpiexec's processes on this host. host, name: as
 * mpiexec calls them. */
static void remove_files(int place, const char *host, const char *name)
{
	char *of_user;
	int user, run;

	of_user = dlb_xprintf("ompi.%s.%u", host, (unsigned)geteuid());
	user = openat(place, of_user, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	run = user < 0 ? -1 : openat(user, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (run >= 0 && is_own(run)) {
		empty(run, 0);
		unlinkat(user, name, AT_REMOVEDIR);
	} else if (run >= 0) {
		close(run);
	}
	if (user >= 0) {
		/* fails if another run has files there; an mpiexec that is killed while it cleans up leaves
		 * an empty folder */
		unlinkat(place, of_user, AT_REMOVEDIR);
		close(user);
	}
	free(of_user);
}

/* Removes pid.NUMBER in `place`, unless a process other than a zombie has that number now. */
static void remove_session(int place, long long number)
{
	char host[256], *name;

	if (number <= 1 || (dlb_process_state((pid_t)number) && dlb_process_state((pid_t)number) != 'Z'))
		return;
	name = dlb_xprintf("pid.%lld", number);
	host_name(host, sizeof host);
	remove_files(place, host, name);
	free(name);
}

static void remove_files_of_launcher(int place, int folder)
{
	FILE *f = open_note(folder, LAUNCHER);
	long long number;

	while (f && fscanf(f, "%lld", &number) == 1)
		remove_session(place, number);
	if (f)
		fclose(f);
}

/* Removes a folder with the files and the shared memory that it notes. Closes fd, the folder's descriptor. */
static void remove_folder(int place, const char *name, int fd)
{
	remove_shared_memory(fd);
	remove_files_of_launcher(place, fd);
	empty(fd, 0);
	unlinkat(place, name, AT_REMOVEDIR);
}

void dlb_run_folder_remove_job(unsigned long job)
{
	const char *tmp = getenv("TMPDIR"), *slurm = getenv("SLURMD_NODENAME");
	const int place = open(tmp && *tmp ? tmp : "/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *name = dlb_xprintf("jf.%lu", job >> 16), host[256];

	remove_segments(job);
	host_name(host, sizeof host);
	if (place >= 0) {
		remove_files(place, slurm ? slurm : host, name);
		close(place);
	}
	free(name);
}

/* ---- remains of dead runs ---- */

/* Takes the lock of a folder of this user; -1: it is held, or the folder is not this user's. */
static int take_lock(int folder)
{
	char here[256], there[256] = "";
	struct stat st;
	int lock;

	if (!is_own(folder))
		return -1;
	lock = openat(folder, LOCK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (lock < 0)
		return -1;
	host_name(here, sizeof here);
	if (fstat(lock, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    read(lock, there, sizeof there - 1) >= 0 && !strcmp(here, there) &&
	    flock(lock, LOCK_EX | LOCK_NB) == 0)
		return lock;
	close(lock);
	return -1;
}

static void sweep(const char *place, const char *tool)
{
	const size_t n = strlen(tool);
	DIR *dir = opendir(place);

	for (struct dirent *d; dir && (d = readdir(dir));) {
		int folder, lock;

		if (strncmp(d->d_name, tool, n) || d->d_name[n] != '.' || strlen(d->d_name) != n + 1 + RANDOM)
			continue;
		folder = openat(dirfd(dir), d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (folder < 0)
			continue;
		lock = take_lock(folder);
		if (lock >= 0) {
			remove_folder(dirfd(dir), d->d_name, folder);
			close(lock);
		} else {
			close(folder);
		}
	}
	if (dir)
		closedir(dir);
}

/* ---- this run's folder ---- */

/* Locks the file before it gets its name, so no process sees it unlocked. */
static int make_lock(const char *folder)
{
	char *early = dlb_xprintf("%s/.%s", folder, LOCK), *path = dlb_xprintf("%s/%s", folder, LOCK),
	     host[256];
	int fd = open(early, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);

	host_name(host, sizeof host);
	if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) ||
			write(fd, host, strlen(host)) != (ssize_t)strlen(host) || rename(early, path))) {
		close(fd);
		fd = -1;
	}
	free(early);
	free(path);
	return fd;
}

char *dlb_run_folder_new(const char *tool, int *lock, struct dlb_error *err)
{
	const char *place = dlb_run_folder_parent();
	char *folder = dlb_xprintf("%s/%s.XXXXXX", place, tool);

	sweep(place, tool);
	if (mkdtemp(folder)) {
		*lock = make_lock(folder);
		if (*lock >= 0)
			return folder;
		dlb_fail(err, NULL, "cannot write in '%s': %s", folder, strerror(errno));
		dlb_run_folder_free(folder, -1);
		return NULL;
	}
	dlb_fail(err, NULL, "cannot make a folder like '%s': %s", folder, strerror(errno));
	free(folder);
	return NULL;
}

void dlb_run_folder_free(char *folder, int lock)
{
	char *name = strrchr(folder, '/') + 1;
	int place, fd;

	name[-1] = '\0';
	place = open(folder[0] ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = place < 0 ? -1 : openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		remove_folder(place, name, fd);
	if (place >= 0)
		close(place);
	if (lock >= 0)
		close(lock);
	free(folder);
}

static void note(const char *folder, const char *name, const char *line)
{
	char *path = dlb_xprintf("%s/%s", folder, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0) {
		ssize_t ignored = write(fd, line, strlen(line));

		(void)ignored;		/* a full disk: the files of a killed run then remain */
		close(fd);
	}
	free(path);
}

void dlb_run_folder_record_launcher(const char *folder)
{
	char line[24];

	snprintf(line, sizeof line, "%lld\n", (long long)getpid());
	note(folder, LAUNCHER, line);
}

/* Open MPI 4 uses the job's number as PMIx's name of the job. */
unsigned long dlb_run_folder_job(void)
{
	const char *job = getenv("PMIX_NAMESPACE");

	return job && *job && !job[strspn(job, "0123456789")] ? strtoul(job, NULL, 10) : 0;
}

void dlb_run_folder_record_job(const char *folder)
{
	char line[24];

	if (!dlb_run_folder_job())
		return;
	snprintf(line, sizeof line, "%lu\n", dlb_run_folder_job());
	note(folder, JOBS, line);
}
