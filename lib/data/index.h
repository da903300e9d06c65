/* The images of a folder or tar file. */
#ifndef DLB_DATA_INDEX_H
#define DLB_DATA_INDEX_H
#include <stdbool.h>
#include <stdint.h>
#include "data/file.h"
#include "util/mem.h"

/* index.c: the images of a folder or tar file, sorted by class and name. */
struct dlb_index_entry { char *name; uint64_t at, size; int label; };	/* at, size: in the tar file */
struct dlb_index {
	struct dlb_arena arena;
	struct dlb_index_entry *entry; int64_t n, cap;
	char **class; int n_classes;		/* sorted names; none if labels are numbers */
	bool is_tar;
	struct dlb_data_file tar;
	char *root;
};
/* Builds the index in x, which must be zeroed. labels: file of lines "NAME LABEL"; NULL: folders are the
 * classes, if `classes` is set. like: use its classes, or NULL. */
int dlb_index_read(struct dlb_index *x, const char *path, const char *labels, bool classes,
		   const struct dlb_index *like, struct dlb_error *err);
void dlb_index_release(struct dlb_index *x);
#endif
