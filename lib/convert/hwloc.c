/* Imports hwloc's XML (lstopo FILE.xml): makes the cluster section, as dlb-profile --cluster --topology
 * does. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "convert/formats.h"

/* Checks that every PU and NUMANode has an os_index of at most six digits. hwloc stores sets as bitmaps; a
 * missing number, or one of ten digits, would take half a gigabyte. -1 with err. */
static int check_numbers(const char *text, size_t n, const char *name, struct dlb_error *err)
{
	static const char key[] = "os_index=\"", *const kinds[] = { "type=\"PU\"", "type=\"NUMANode\"" };
	for (const char *end = text + n, *tag = text, *close;
	     tag < end && (tag = memchr(tag, '<', (size_t)(end - tag))); tag = close) {
		char copy[4096];
		close = memchr(tag, '>', (size_t)(end - tag));
		close = close ? close : end;
		size_t length = (size_t)(close - tag) < sizeof copy - 1 ? (size_t)(close - tag) :
									  sizeof copy - 1;
		memcpy(copy, tag, length);
		copy[length] = '\0';
		const char *index = strstr(copy, key);
		bool counted = strstr(copy, kinds[0]) || strstr(copy, kinds[1]);
		size_t digits = index ? strspn(index + sizeof key - 1, "0123456789") : 0;
		if (counted && (digits < 1 || digits > 6))
			return dlb_hint((dlb_fail(err, name,
						  "a core or memory of the machine has no os_index of one to "
						  "six digits"),
					 err),
					"lstopo FILE.xml writes the topology of the machine it runs on");
	}
	return 0;
}

int dlb_import_hwloc(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
		     struct dlb_doc *d, struct dlb_error *err)
{
	struct dlb_cluster cl;
	char path[64];
	json_t *utf8 = json_stringn(text, n);
	json_decref(utf8);
	if (!utf8)
		return dlb_fail(err, name, "not UTF-8 text");
	if (check_numbers(text, n, name, err))
		return -1;
	FILE *f = tmpfile();			/* hwloc reads files only; the text may come from a pipe */
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
