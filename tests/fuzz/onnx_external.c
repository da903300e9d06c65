/* Fuzzer of ONNX models on disk: data in other files of the model's folder (there are weights.bin,
 * sub/weights.bin and a link that leads out), and saving. What is read is saved with other values, and
 * read again with those.
 *     build/tests/test_onnx CORPUS && make fuzz && build/fuzz/onnx_external -max_total_time=600 CORPUS */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "graph/graph.h"
#include "model/onnx.h"

enum { MAX_WEIGHTS = 8 };

static char dir[] = "/dev/shm/dlb-fuzz-XXXXXX";

static void put(const char *name, const void *data, size_t n)
{
	char path[300];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f))
		dlb_bug("cannot write '%s'", path);
}

static void clean(void)
{
	static const char *const names[] = {
		"model.onnx", "saved.onnx", "weights.bin", "sub/weights.bin", "sub", "link", ""
	};
	char path[300];

	for (int i = 0; i < DLB_LEN(names); i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		remove(path);
	}
}

static void make_folder(void)
{
	char bytes[256], path[300];

	if (!mkdtemp(dir))
		dlb_bug("no folder");
	for (int i = 0; i < 256; i++)
		bytes[i] = (char)i;
	put("weights.bin", bytes, sizeof bytes);
	snprintf(path, sizeof path, "%s/sub", dir);
	if (mkdir(path, 0777))
		dlb_bug("no folder '%s'", path);
	put("sub/weights.bin", bytes, sizeof bytes);
	snprintf(path, sizeof path, "%s/link", dir);
	if (symlink("/etc/hostname", path))
		dlb_bug("no link");
	atexit(clean);
}

static int tensor_named(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_tensors; i++)
		if (!strcmp(g->tensor[i].name, name))
			return i;
	return -1;
}

/* Saving may say no, but what it saved has the values. */
static void save(const struct dlb_graph *g, const char *source)
{
	struct dlb_named saved[MAX_WEIGHTS];
	struct dlb_error err = { .what = "" };
	struct dlb_graph back;
	char path[300];
	int n = 0;

	for (int i = 0; i < g->n_tensors && n < MAX_WEIGHTS; i++) {
		const struct dlb_tensor *t = &g->tensor[i];
		const struct dlb_desc d = t->data ? dlb_tensor_desc(t, 1) : (struct dlb_desc){ .n_dims = 0 };
		if (!t->data || t->dtype != DLB_F32 || dlb_desc_count(&d) > 4096)
			continue;
		float *v = calloc((size_t)dlb_desc_count(&d) + 1, sizeof *v);
		for (int64_t k = 0; k < dlb_desc_count(&d); k++)
			v[k] = (float)(i + k);
		saved[n++] = (struct dlb_named){ t->name, d, v };
	}
	snprintf(path, sizeof path, "%s/saved.onnx", dir);
	if (dlb_onnx_save(source, path, saved, n, &err)) {
		if (!err.what[0])
			dlb_bug("not saved, without a word");
	} else if (dlb_onnx_read(path, &back, &err)) {
		dlb_bug("saved, but not read: %s", err.what);
	} else {
		for (int i = 0; i < n; i++) {
			const int t = tensor_named(&back, saved[i].name);
			if (t < 0 || memcmp(back.tensor[t].data, saved[i].data,
					    (size_t)dlb_desc_count(&saved[i].desc) * sizeof(float)))
				dlb_bug("saved, but other values: %s", saved[i].name);
		}
		dlb_graph_release(&back);
	}
	for (int i = 0; i < n; i++)
		free((void *)saved[i].data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	char path[300];

	if (dir[strlen(dir) - 1] == 'X')
		make_folder();
	put("model.onnx", data, size);
	snprintf(path, sizeof path, "%s/model.onnx", dir);
	if (dlb_onnx_read(path, &g, &err)) {
		if (!err.what[0])
			dlb_bug("refused without a word");
		return 0;
	}
	save(&g, path);
	dlb_graph_release(&g);
	return 0;
}
