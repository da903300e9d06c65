/* safetensors: written and read again, hostile files, weights by name. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "model/safetensors.h"
#include "model/weights.h"
#include "util/mem.h"
#include "util/rng.h"
#include "check.h"

static struct dlb_error err;
static int n_checked, n_hostile;
static char dir[] = "/tmp/dlb-test-st-XXXXXX", path[300];

static void die(const char *what)
{
	dlb_error_print(stderr, what, -1, &err);
	abort();
}

/* Random tensors of every type and rank, names that need escaping, no elements, no dimensions. */
static void test_round_trip(uint64_t seed)
{
	struct dlb_rng rng;
	dlb_rng_init(&rng, seed);
	for (int round = 0; round < 50; round++) {
		struct dlb_st_tensor t[12];
		struct dlb_safetensors s;
		char names[12][40];
		const int n = (int)dlb_rng_below(&rng, 13);
		for (int i = 0; i < n; i++) {
			t[i].desc = (struct dlb_desc){ .dtype = (enum dlb_dtype)dlb_rng_below(&rng,
											      DLB_N_DTYPES),
						       .n_dims = (int)dlb_rng_below(&rng, 4) };
			for (int k = 0; k < t[i].desc.n_dims; k++)
				t[i].desc.dim[k] = (int64_t)dlb_rng_below(&rng, 5);
			snprintf(names[i], sizeof names[i], "%s.%d", i % 2 ? "w\"\\\n\xc3\xa4" : "layer/0",
				 i);
			t[i].name = names[i];
			uint8_t *p = dlb_xcalloc(dlb_desc_bytes(&t[i].desc) + 1, 1);
			for (size_t k = 0; k < dlb_desc_bytes(&t[i].desc); k++)
				p[k] = t[i].desc.dtype == DLB_BOOL ? (uint8_t)(k % 2) :
								     (uint8_t)dlb_rng_next(&rng);
			t[i].data = p;
		}
		const char *const meta[] = { "step", "12", "tool", "dlb", NULL };
		if (dlb_safetensors_write(path, t, n, round % 2 ? meta : NULL, &err) ||
		    dlb_safetensors_read(path, &s, &err))
			die("round trip");
		assert(IS(s.n, ==, n) &&
		       (round % 2 ? !strcmp(s.metadata, "{\"step\":\"12\",\"tool\":\"dlb\"}") : !s.metadata));
		for (int i = 0; i < n; i++) {
			const struct dlb_st_tensor *b = dlb_safetensors_find(&s, t[i].name);
			assert(b && IS(b->desc.dtype, ==, t[i].desc.dtype) &&
			       dlb_desc_same_shape(&b->desc, &t[i].desc));
			assert(!memcmp(b->data, t[i].data, dlb_desc_bytes(&b->desc)));
			assert(IS((uintptr_t)b->data % dlb_dtype_bytes(b->desc.dtype), ==, 0));
			free((void *)t[i].data);
		}
		assert(!dlb_safetensors_find(&s, "no such"));
		dlb_safetensors_release(&s);
		n_checked++;
	}
}

/* A file with this header and this number of bytes of data. */
static size_t make(uint8_t *file, const char *header, size_t n_data)
{
	const size_t n = strlen(header);
	for (int i = 0; i < 8; i++)
		file[i] = (uint8_t)(n >> 8 * i);
	memcpy(file + 8, header, n);
	memset(file + 8 + n, 1, n_data);
	return 8 + n + n_data;
}

static void test_hostile(void)
{
	static const struct { const char *header; size_t data; const char *says;
	} cases[] = {
		{ "{}", 0, NULL },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   ", 8, NULL },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[1,5]},\"b\":{\"dtype\":\"U8\","
		  "\"shape\":[1],\"data_offsets\":[0,1]}}",
		  5, NULL },
		{ "[]", 0, "no object" },
		{ "{", 0, "header: " },
		{ "{\"a\":1}", 0, "no dtype" },
		{ "{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype" },
		{ "{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "natural" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "natural" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,8]}}", 8,
		  "do not fit" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
		  "do not fit" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
		  "too many" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]}}", 7, "do not fit" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "no data_offsets" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "no data_offsets" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8,
		  "no data_offsets" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "no data_offsets" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "past the end" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "1 bytes after" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "a hole" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\","
		  "\"shape\":[1],\"data_offsets\":[2,6]}}",
		  6, "overlap" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\","
		  "\"shape\":[1],\"data_offsets\":[4,8]}}",
		  8, "duplicate" },
		{ "{\"__metadata__\":{\"a\":1}}", 0, "no text" },
		{ "{\"__metadata__\":[]}", 0, "no object" },
	};
	for (int i = 0; i < DLB_LEN(cases); i++) {
		uint8_t file[1000];
		struct dlb_safetensors s;
		const size_t n = make(file, cases[i].header, cases[i].data);
		uint8_t *exact = dlb_xmalloc(n);	/* so that sanitizers see reads past the end */
		memcpy(exact, file, n);
		err = (struct dlb_error){ .what = "" };
		const int rc = dlb_safetensors_parse(exact, n, "t.safetensors", &s, &err);
		if ((rc != 0) != (cases[i].says != NULL) || (rc && !strstr(err.what, cases[i].says))) {
			fprintf(stderr, "file %d: %d\n", i, rc);
			die("hostile");
		}
		dlb_safetensors_release(&s);
		/* a good file truncated at any byte is refused; a bad one causes no crash */
		for (size_t k = 0; k < n; k++) {
			uint8_t *cut = dlb_xmalloc(k ? k : 1);
			memcpy(cut, exact, k);
			const int cut_rc = dlb_safetensors_parse(cut, k, "t.safetensors", &s, &err);
			assert(cut_rc == -1 || cases[i].says);
			dlb_safetensors_release(&s);
			free(cut);
		}
		free(exact);
		n_hostile++;
	}
	static const uint8_t huge[16] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct dlb_safetensors s;
	assert(IS(dlb_safetensors_parse(huge, 16, "huge", &s, &err), ==, -1) && HAS(err.what, "header of"));
	assert(IS(dlb_safetensors_read("/nonexistent/x", &s, &err), ==, -1) && HAS(err.what, "cannot open"));

	/* a truth value is 0 or 1; a header ends within the file */
	static const char header[] = "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}";
	uint8_t file[100], *last;
	const size_t n = make(file, header, 3);
	last = &file[n - 1];
	for (int v = 0; v < 4; v++) {
		*last = (uint8_t)v;
		assert(IS(dlb_safetensors_parse(file, n, "b", &s, &err), ==, v < 2 ? 0 : -1));
		assert(v < 2 || SAME(err.what, "tensor 'a': a truth value is neither 0 nor 1"));
		dlb_safetensors_release(&s);
	}
	for (size_t more = 0; more < 20; more++) {
		char want[100];
		file[0] = (uint8_t)(n - 8 + 1 + more);
		snprintf(want, sizeof want, "header of %zu bytes in a file of %zu", n - 8 + 1 + more, n);
		assert(IS(dlb_safetensors_parse(file, n, "b", &s, &err), ==, -1) && SAME(err.what, want));
	}
}

/* If writing fails, no new file remains and the old file is intact. */
static void test_aside(void)
{
	const float v[] = { 1, 2 };
	const struct dlb_st_tensor t[] = { { "a", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, v },
					   { "a", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, v } };
	struct dlb_safetensors s;
	char command[400];
	assert(IS(dlb_safetensors_write(path, t, 1, NULL, &err), ==, 0));
	assert(IS(dlb_safetensors_write(path, t, 2, NULL, &err), ==, -1) && HAS(err.what, "in use"));
	assert(IS(dlb_safetensors_write("/nonexistent/x", t, 1, NULL, &err), ==, -1) &&
	       HAS(err.what, "cannot write"));
	assert(IS(dlb_safetensors_read(path, &s, &err), ==, 0) && IS(s.n, ==, 1));
	dlb_safetensors_release(&s);
	snprintf(command, sizeof command, "test \"$(ls %s | wc -l)\" = 1", dir);
	assert(IS(system(command), ==, 0));
	n_checked++;
}

static void test_weights(void)
{
	const float w[] = { 1, 2, 3, 4 };
	const struct dlb_st_tensor t[] = { { "w", { .dtype = DLB_F32, .n_dims = 2, .dim = { 2, 2 } }, w } };
	struct dlb_graph g;
	dlb_graph_init(&g);
	const int id = dlb_graph_add_tensor(&g, "w", DLB_T_WEIGHT);
	g.tensor[id].n_dims = 2;
	g.tensor[id].dim[0].add = g.tensor[id].dim[1].add = 2;
	g.tensor[id].dtype = DLB_F64;
	assert(IS(dlb_safetensors_write(path, t, 1, NULL, &err), ==, 0));
	if (dlb_graph_load_weights(&g, path, &err))
		die("weights");
	assert(IS(((const double *)g.tensor[id].data)[3], ==, 4));
	dlb_graph_add_tensor(&g, "more", DLB_T_BUFFER);
	assert(IS(dlb_graph_load_weights(&g, path, &err), ==, -1) && HAS(err.what, "no tensor 'more'"));
	dlb_graph_release(&g);
	n_checked++;
}

int main(int argc, char **argv)
{
	const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	char command[400];
	printf("seed %" PRIu64 "\n", seed);
	assert(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/t.safetensors", dir);
	test_round_trip(seed);
	test_hostile();
	test_aside();
	test_weights();
	snprintf(command, sizeof command, "rm -r %s", dir);
	assert(IS(system(command), ==, 0));
	printf("test_safetensors: %d checks, %d hostile files, each cut short everywhere too\n", n_checked,
	       n_hostile);
	return 0;
}
