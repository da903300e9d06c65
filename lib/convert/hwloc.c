/* hwloc's XML (lstopo FILE.xml) to a document with the cluster alone: what dlb-profile --cluster --topology makes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "convert/formats.h"

int dlb_import_hwloc(const char *text, size_t n, const char *name, const struct dlb_convert_options *o, struct dlb_doc *d,
		     struct dlb_error *err)
{
	struct dlb_cluster cl;
	char path[64];
	json_t *utf8 = json_stringn(text, n);
	json_decref(utf8);
	if (!utf8)
		return dlb_fail(err, name, "not UTF-8 text");
	FILE *f = tmpfile();			/* the text may have come by a pipe; hwloc reads files */
	if (!f)
		return dlb_fail(err, name, "no temporary file: %s", strerror(errno));
	if (fwrite(text, 1, n, f) != n || fflush(f)) {
		fclose(f);
		return dlb_fail(err, name, "no temporary file: %s", strerror(errno));
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
	int rc = dlb_cluster_discover(&cl, path, (int)o->threads, err);
	fclose(f);
	if (rc) {
		if (err)
			snprintf(err->where, sizeof err->where, "%.200s", name);
		return -1;
	}
	dlb_doc_set(d, "cluster", dlb_cluster_write(&cl));
	dlb_cluster_release(&cl);
	return 0;
}
