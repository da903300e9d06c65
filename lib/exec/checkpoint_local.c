/* State that each replica keeps for itself: residuals of compression, K-FAC. See checkpoint_files.h. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "exec/checkpoint_files.h"
#include "model/safetensors.h"

/* "error/R/NAME" of replica R; "basis/NAME", equal on all replicas. */
static const char *local_name(struct dlb_arena *a, const struct dlb_local_tensor *s, int replica)
{
	return s->summed ? dlb_arena_printf(a, "%s/%d/%s", s->what, replica, s->name) :
			   dlb_arena_printf(a, "%s/%s", s->what, s->name);
}

/* Tensor i of the state: first those of compression, then those of K-FAC. *first_kfac: 0 before the first
 * call. false: no more tensors. */
static bool local_tensor(const struct dlb_local_state *k, int i, int *first_kfac, struct dlb_local_tensor *s)
{
	if (*first_kfac == i && k->compress && dlb_compress_state_tensor(k->compress, i, s))
		*first_kfac = i + 1;
	else
		return dlb_kfac_state(k->kfac, i - *first_kfac, s);
	return true;
}

int dlb_checkpoint_local_tensors(const struct dlb_local_state *local, struct dlb_arena *a,
				 struct dlb_st_tensor **out)
{
	struct dlb_st_tensor *st = NULL;
	struct dlb_local_tensor s;
	int n = 0, cap = 0;

	for (int i = 0, k = 0; local && local_tensor(local, i, &k, &s); i++) {
		DLB_GROW(st, n, cap);
		st[n++] = (struct dlb_st_tensor){ .name = local_name(a, &s, local->replica),
						  .data = s.p,
						  .desc = { .dtype = s.dtype, .n_dims = 1, .dim = { s.n } } };
	}
	*out = st;
	return n;
}

int dlb_checkpoint_write_local(const char *dir, int rank, const struct dlb_local_state *local,
			       char sha256[65], struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	struct dlb_st_tensor *st;
	const int n = dlb_checkpoint_local_tensors(local, &a, &st);
	int rc = 0;

	sha256[0] = 0;
	if (n) {
		char *path = dlb_xprintf("%s/kept-%d.safetensors", dir, rank);

		rc = dlb_safetensors_write_summed(path, st, n, NULL, sha256, err);
		free(path);
	}
	free(st);
	dlb_arena_release(&a);
	return rc;
}

/* Opens all kept-RANK.safetensors of a checkpoint. */
static int open_files(const char *dir, struct dlb_safetensors **st, int *n, struct dlb_error *err)
{
	DIR *d = opendir(dir);
	int rc = 0, cap = 0;

	for (struct dirent *e; d && !rc && (e = readdir(d));) {
		char *path;

		if (strncmp(e->d_name, "kept-", 5))
			continue;
		path = dlb_xprintf("%s/%s", dir, e->d_name);
		DLB_GROW(*st, *n, cap);
		rc = dlb_safetensors_read(path, &(*st)[*n], err);
		*n += !rc;
		free(path);
	}
	if (d)
		closedir(d);
	return rc;
}

static const struct dlb_st_tensor *find_tensor(const struct dlb_safetensors *st, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (dlb_safetensors_find(&st[i], name))
			return dlb_safetensors_find(&st[i], name);
	return NULL;
}

/* Loads this replica's tensor or, if the number of replicas has changed, the sum of all replicas' tensors
 * divided by the present number. */
static int load_tensor(const struct dlb_safetensors *st, int n, const char *dir, struct dlb_local_tensor *s,
		       int replica, int n_replicas, struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	const struct dlb_st_tensor *t;
	int before = 0, rc = 0;

	if (s->needed && !find_tensor(st, n, local_name(&a, s, 0)))
		rc = dlb_fail(err, dir, "the checkpoint has no tensor '%s'", local_name(&a, s, 0));
	while (s->summed && find_tensor(st, n, local_name(&a, s, before)))
		before++;
	for (int r = 0; r < (s->summed ? before : 1) && !rc; r++) {
		const bool shared_out = s->summed && before != n_replicas;

		t = find_tensor(st, n, local_name(&a, s, r));
		if (!t || (s->summed && before == n_replicas && r != replica))
			continue;
		if (t->desc.dtype != s->dtype || dlb_desc_count(&t->desc) != s->n) {
			rc = dlb_fail(err, dir, "tensor '%s' has %lld elements in the checkpoint, %lld here",
				      t->name, (long long)dlb_desc_count(&t->desc), (long long)s->n);
			dlb_hint(err, "go on with the --compress and --dtype that the checkpoint was made "
				      "with, or another --checkpoint folder");
		}
		for (int64_t i = 0; i < s->n && !rc; i++) {
			double x = dlb_value_real(t->data, s->dtype, i);

			dlb_value_set(s->p, s->dtype, i,
				      shared_out ?
					      (r ? dlb_value_real(s->p, s->dtype, i) : 0) + x / n_replicas :
					      x);
		}
	}
	dlb_arena_release(&a);
	return rc;
}

int dlb_checkpoint_load_local(const char *folder, int64_t step, const struct dlb_local_state *local,
			      struct dlb_error *err)
{
	struct dlb_safetensors *st = NULL;
	struct dlb_local_tensor s;
	char *dir;
	int n = 0, rc;

	dir = dlb_xprintf("%s/step-%lld", folder, (long long)step);
	rc = open_files(dir, &st, &n, err);
	for (int i = 0, k = 0; !rc && local_tensor(local, i, &k, &s); i++)
		rc = load_tensor(st, n, dir, &s, local->replica, local->n_replicas, err);
	for (int i = 0; i < n; i++)
		dlb_safetensors_release(&st[i]);
	free(st);
	free(dir);
	return rc;
}
