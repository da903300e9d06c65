/* lib/data: IDX plain and gzip, hostile headers, digits, text, random data, transforms against values
 * computed by hand, random transforms, GPT-2's pattern, the order of an epoch, labels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "data/bpe.h"
#include "data/data.h"
#include "data/idx.h"
#include "data/npy.h"
#include "data/random.h"
#include "data/readers.h"
#include "data/source.h"
#include "data/tar.h"
#include "data/transform.h"
#include "data/unicode.h"
#include "util/rng.h"
#include "check.h"

/* A graph of inputs only: x (n, c, h, w) or (n, d), label (n) or (n, d). */
static void make_graph(struct dlb_graph *g, const int64_t *x, int n_dims, enum dlb_dtype dtype,
		       int label_dims, int64_t bound)
{
	int t;

	dlb_graph_init(g);
	g->input = dlb_arena_array(&g->arena, 2, sizeof *g->input);
	t = dlb_graph_add_tensor(g, "x", DLB_T_INPUT);
	g->tensor[t].dtype = dtype;
	g->tensor[t].bound = bound;
	g->tensor[t].n_dims = n_dims;
	g->tensor[t].dim[0] = (struct dlb_dim){ 1, 0 };
	for (int i = 1; i < n_dims; i++)
		g->tensor[t].dim[i] = (struct dlb_dim){ 0, x[i - 1] };
	g->input[g->n_inputs++] = t;
	t = dlb_graph_add_tensor(g, "label", DLB_T_LABEL);
	g->tensor[t].dtype = DLB_I64;
	g->tensor[t].bound = bound;
	g->tensor[t].n_dims = label_dims;
	g->tensor[t].dim[0] = (struct dlb_dim){ 1, 0 };
	if (label_dims > 1)
		g->tensor[t].dim[1] = (struct dlb_dim){ 0, x[0] };
	g->input[g->n_inputs++] = t;
	g->label = t;
	g->seed = -1;
}

static void test_idx(void)
{
	static const unsigned char good[] = { 0, 0, 0x0b, 2, 0,    0,    0, 2, 0, 0,
					      0, 2, 0,    1, 0xff, 0xfe, 1, 0, 0, 3 };
	unsigned char zip[256], bad[sizeof good];
	struct dlb_error err = { .what = "" };
	struct dlb_idx x;
	z_stream z = { 0 };

	assert(IS(dlb_idx_parse(good, sizeof good, "good", &x, &err), ==, 0));
	assert(IS(x.dtype, ==, DLB_I16) && IS(x.n_dims, ==, 2) && IS(x.dim[0], ==, 2) && IS(x.dim[1], ==, 2));
	assert(IS(dlb_value_int(x.data, x.dtype, 1), ==, -2) &&
	       IS(dlb_value_int(x.data, x.dtype, 2), ==, 256));
	dlb_idx_release(&x);

	assert(IS(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), ==, Z_OK));
	z.next_in = (unsigned char *)(uintptr_t)good;
	z.avail_in = sizeof good;
	z.next_out = zip;
	z.avail_out = sizeof zip;
	assert(IS(deflate(&z, Z_FINISH), ==, Z_STREAM_END));
	assert(IS(dlb_idx_parse(zip, z.total_out, "zip", &x, &err), ==, 0) &&
	       IS(dlb_value_int(x.data, x.dtype, 3), ==, 3));
	dlb_idx_release(&x);
	for (size_t n = 0; n < z.total_out - 8; n++)		/* the last 8 bytes are gzip's own check */
		assert(IS(dlb_idx_parse(zip, n, "zip", &x, &err), ==, -1) && err.what[0]);
	deflateEnd(&z);

	/* of no dimension, and of more than are read: both are otherwise complete */
	unsigned char dims[4 + 4 * (DLB_MAX_DIMS + 1) + 1] = { 0, 0, 8, DLB_MAX_DIMS + 1 };
	for (int i = 0; i <= DLB_MAX_DIMS; i++)
		dims[7 + 4 * i] = 1;
	assert(IS(dlb_idx_parse(dims, sizeof dims, "dims", &x, &err), ==, -1) && HAS(err.what, "byte 3"));
	dims[3] = 0;
	assert(IS(dlb_idx_parse(dims, 5, "dims", &x, &err), ==, -1) &&
	       HAS(err.what, "byte 3: IDX file of 0 dim"));
	dims[3] = DLB_MAX_DIMS;
	assert(IS(dlb_idx_parse(dims, sizeof dims - 4, "dims", &x, &err), ==, 0) &&
	       IS(x.n_dims, ==, DLB_MAX_DIMS));
	dlb_idx_release(&x);

	for (size_t n = 0; n < sizeof good; n++)
		assert(IS(dlb_idx_parse(good, n, "short", &x, &err), ==, -1));
	for (size_t i = 0; i < 12; i++) {
		memcpy(bad, good, sizeof good);
		bad[i] = 0xfb;
		assert(IS(dlb_idx_parse(bad, sizeof bad, "bad", &x, &err), ==, -1));
	}
}

/* The dictionary of a .npy file is what numpy.lib.format allows; a mistake is refused with its offset. */
static void test_npy_headers(void)
{
#define DESCR "'descr': '<f4'"
#define ORDER "'fortran_order': False"
	static const struct {
		const char *head, *what; /* NULL: eight bytes of data */
	} rows[] = {
		{ "{" DESCR ", " ORDER ", 'shape': (2,), }", NULL },
		{ "{ 'shape' : ( 1 , 2 ) ,\n\"fortran_order\":False,\"descr\":\"=f4\"}  \n", NULL },
		{ "{'descr': '>u1', " ORDER ", 'shape': (8,)}", NULL },
		{ "{'descr': '|b1', " ORDER ", 'shape': (4, 2)}", NULL },
		{ "{'descr': '>i2', " ORDER ", 'shape': (4,)}", "byte 20: type '>i2' is big-endian" },
		{ "{xdescrx: '<f4', " ORDER ", 'shape': (2,)}", "byte 11: a quoted string is expected" },
		{ "{'descr' '<f4', " ORDER ", 'shape': (2,)}", "byte 19: ':' is expected" },
		{ "{" DESCR ", " DESCR ", " ORDER ", 'shape': (2,)}", "expected, once each" },
		{ "{" DESCR ", " ORDER ", 'size': 8, 'shape': (2,)}", "expected, once each" },
		{ "{" DESCR ", 'shape': (2,)}", "descr, fortran_order and shape are expected" },
		{ "{" DESCR " " ORDER ", 'shape': (2,)}", "byte 26: ',' or '}' is expected" },
		{ "{" DESCR ", " ORDER ", 'shape': 2}", "a shape in parentheses is expected" },
		{ "{" DESCR ", " ORDER ", 'shape': (1 2)}", "',' or ')' is expected" },
		{ "{" DESCR ", " ORDER ", 'shape': (-2,)}", "a dimension is expected" },
		{ "{" DESCR ", " ORDER ", 'shape': ()}", "a single number" },
		{ "{" DESCR ", " ORDER ", 'shape': (2, 0)}", "an array without elements" },
		{ "{" DESCR ", " ORDER ", 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2)}",
		  "more dimensions than are read" },
		{ "{" DESCR ", 'fortran_order': 0, 'shape': (2,)}", "True or False is expected" },
		{ "{" DESCR ", " ORDER ", 'shape': (2,)} 1", "something follows the dictionary" },
		{ "{'descr': [('a', '<f4')], " ORDER ", 'shape': (2,)}",
		  "byte 20: the elements are records" },
		{ "{'descr': '<c8', " ORDER ", 'shape': (1,)}",
		  "byte 20: elements of type '<c8' are not read" },
		{ "{'descr': '<f4", "a string without an end" },
		{ "{'descr': '<f\\x34'", "a plain short string is expected" },
		{ "{'descr'", "':' is expected" },
		{ "{", "a quoted string is expected" },
		{ "(", "the header is no dictionary" },
		{ "", "the header is no dictionary" },
	};
#undef DESCR
#undef ORDER
	unsigned char file[300];

	for (int i = 0; i < DLB_LEN(rows); i++)
		for (int version = 1; version <= 3; version++) {
			const size_t n = strlen(rows[i].head), head = version == 1 ? 10 : 12;
			struct dlb_error err = { .what = "" };
			struct dlb_npy x;

			memset(file, 0, sizeof file);
			memcpy(file, "\x93NUMPY", 6);
			file[6] = (unsigned char)version;
			file[8] = (unsigned char)n;
			memcpy(file + head, rows[i].head, n);
			const int rc = dlb_npy_parse(file, head + n + 8, head + n + 8, "f.npy", &x, &err);

			if (!rows[i].what) {
				assert(IS(rc, ==, 0) && IS(x.at, ==, head + n));
				continue;
			}
			assert(IS(rc, ==, -1) && SAME(err.where, "f.npy"));
			/* offsets of the rows are those of version 1 */
			assert(HAS(err.what, version > 1 && !strncmp(rows[i].what, "byte ", 5) ?
						     rows[i].what + 8 :
						     rows[i].what));
			assert(IS(dlb_npy_parse(file, head + n / 2, head + n + 8, "f.npy", &x, &err), ==,
				  -1));
		}
	/* another first byte, long enough or not */
	file[0] = 0x92;
	struct dlb_npy x;
	struct dlb_error err = { .what = "" };
	assert(IS(dlb_npy_parse(file, 100, 100, "f.npy", &x, &err), ==, -1) &&
	       HAS(err.what, "byte 0: not a .npy file"));
	assert(IS(dlb_npy_parse(file, 0, 0, "f.npy", &x, &err), ==, -1) &&
	       HAS(err.what, "byte 0: not a .npy file"));
}

static void test_transform(void)
{
	static const unsigned char pixel[4] = { 0, 255, 51, 102 };
	static const char *const bad[] = {
		"scale",      "scale=", "scale=x",     "scale=1/0",     "pad=-1",          "pad=1,",
		"channels=0", "blur=3", "normalise=1", "normalise=1/0", "normalise=1:2/1", "scale=1/255pad=1",
		",",          "=",      "flip=1.5",    "flip=-0.5",     "flip=nan"
	};
	const struct dlb_image image = {
		.bytes = true, .c = 1, .h = 2, .w = 2, .p = (void *)(uintptr_t)pixel
	};
	struct dlb_scratch scratch = { .cap = { 0 } };
	struct dlb_transform t;
	struct dlb_error err;
	float out[2 * 16];

	assert(IS(dlb_transform_parse("scale=1/255,pad=1,normalise=0.5/0.25,channels=2", &t, &err), ==, 0));
	assert(IS(dlb_transform_bind(&t, 1, 2, 2, &err), ==, 0));
	assert(IS(t.out_c, ==, 2) && IS(t.out_h, ==, 4) && IS(t.out_w, ==, 4));
	assert(IS(dlb_transform_apply(&t, &image, NULL, &scratch, out, &err), ==, 0));
	for (int c = 0; c < 2; c++) {
		/* padding, normalised */
		assert(IS(out[16 * c], ==, -2.0f) && IS(out[16 * c + 15], ==, -2.0f));
		/* 0 and 255 */
		assert(IS(out[16 * c + 5], ==, -2.0f) && IS(out[16 * c + 6], ==, 2.0f));
		assert(IS(out[16 * c + 9], ==, (51.0f / 255.0f - 0.5f) / 0.25f));
	}
	dlb_transform_release(&t);
	for (int i = 0; i < DLB_LEN(bad); i++)
		assert(IS(dlb_transform_parse(bad[i], &t, &err), ==, -1));
	assert(IS(dlb_transform_parse("channels=3", &t, &err), ==, 0) &&
	       IS(dlb_transform_bind(&t, 2, 2, 2, &err), ==, -1));
	dlb_transform_release(&t);
	dlb_scratch_release(&scratch);
}

/* Red, green and blue become grey with the weights of ITU-R 601: floats as they are, bytes rounded. */
static void test_grey(void)
{
	static const unsigned char pixel[3][2] = { { 255, 0 }, { 0, 255 }, { 0, 51 } };
	const struct dlb_image image = {
		.bytes = true, .c = 3, .h = 1, .w = 2, .p = (void *)(uintptr_t)pixel
	};
	struct dlb_scratch scratch = { .cap = { 0 } };
	struct dlb_transform t;
	struct dlb_error err;
	float out[2];

	assert(IS(dlb_transform_parse("scale=1/255,channels=1", &t, &err), ==, 0) &&
	       IS(dlb_transform_bind(&t, 3, 1, 2, &err), ==, 0) && IS(t.out_c, ==, 1));
	assert(IS(dlb_transform_apply(&t, &image, NULL, &scratch, out, &err), ==, 0));
	assert(IS(fabsf(out[0] - 0.299f), <, 1e-6f) && IS(fabsf(out[1] - (0.587f + 0.0228f)), <, 1e-6f));
	dlb_transform_release(&t);
	assert(IS(dlb_transform_parse("channels=1", &t, &err), ==, 0) &&
	       IS(dlb_transform_bind(&t, 3, 1, 2, &err), ==, 0));
	assert(IS(dlb_transform_apply(&t, &image, NULL, &scratch, out, &err), ==, 0));
	assert(IS(out[0], ==, 76.0f) && IS(out[1], ==, 156.0f)); /* 76.2 and 155.5 */
	dlb_transform_release(&t);
	dlb_scratch_release(&scratch);
}

/* Resizing by hand: from four to two, each result is three pixels weighted 3:3:1 and 1:3:3; and random
 * transforms. */
static void test_moving_pixels(void)
{
	static const unsigned char row[4] = { 0, 100, 200, 40 }, square[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	const struct dlb_image line = { .bytes = true, .c = 1, .h = 1, .w = 4, .p = (void *)(uintptr_t)row };
	const struct dlb_image image = {
		.bytes = true, .c = 1, .h = 3, .w = 3, .p = (void *)(uintptr_t)square
	};
	struct dlb_scratch scratch = { .cap = { 0 } };
	struct dlb_transform t;
	struct dlb_error err;
	float out[9], again[9];
	int first[10] = { 0 }, flipped = 0;

	assert(IS(dlb_transform_parse("resize=1x2", &t, &err), ==, 0) &&
	       IS(dlb_transform_bind(&t, 1, 1, 4, &err), ==, 0));
	assert(IS(dlb_transform_apply(&t, &line, NULL, &scratch, out, &err), ==, 0) &&
	       IS(out[0], ==, 71.0f) && IS(out[1], ==, 117.0f));
	dlb_transform_release(&t);
	assert(IS(dlb_transform_parse("scale=1,resize=1x2", &t, &err), ==, 0) &&
	       IS(dlb_transform_bind(&t, 1, 1, 4, &err), ==, 0));
	assert(IS(dlb_transform_apply(&t, &line, NULL, &scratch, out, &err), ==, 0));
	assert(IS(fabsf(out[0] - 125.0f / 1.75f), <, 1e-4f) && IS(fabsf(out[1] - 205.0f / 1.75f), <, 1e-4f));
	dlb_transform_release(&t);

	/* A part of 2x2 begins at 1, 2, 4 or 5; about half are flipped; the same draw for the same sample. */
	assert(IS(dlb_transform_parse("random-crop=2,flip,scale=10", &t, &err), ==, 0) &&
	       IS(dlb_transform_bind(&t, 1, 3, 3, &err), ==, 0));
	for (int i = 0; i < 400; i++) {
		const struct dlb_sample_seed seed = { .seed = 3, .epoch = i / 100, .sample = i % 100 };
		int lower;

		assert(IS(dlb_transform_apply(&t, &image, &seed, &scratch, out, &err), ==, 0));
		assert(IS(dlb_transform_apply(&t, &image, &seed, &scratch, again, &err), ==, 0) &&
		       !memcmp(out, again, 4 * sizeof *out));
		lower = (int)(out[0] < out[1] ? out[0] : out[1]) / 10;
		flipped += out[0] > out[1];
		first[lower]++;
		assert(IS(fabsf(out[0] - out[1]), ==, 10.0f) && IS(out[2], ==, out[0] + 30.0f));
	}
	assert(IS(first[1] + first[2] + first[4] + first[5], ==, 400) && IS(flipped, >, 150) &&
	       IS(flipped, <, 250));
	for (int i = 1; i < 6; i++)
		assert(i == 3 || first[i] > 60);
	assert(IS(dlb_transform_apply(&t, &image, NULL, &scratch, out, &err), ==, 0) &&
	       IS(out[0], ==, 10.0f) && IS(out[3], ==, 50.0f));
	dlb_transform_release(&t);
	dlb_scratch_release(&scratch);
}

static void test_pieces(void)
{
	static const char *const pieces[] = { "Don",
					      "'t",
					      " stop",
					      " ",
					      " now",
					      "'",
					      "\n ",
					      " 12\xc2\xbd",
					      " h\xc3\xa9llo",
					      "'ll",
					      ",",
					      "\n",
					      " '",
					      "\xe6\x97\xa5\xe6\x9c\xac",
					      "\xf0\x9f\x99\x82!",
					      " \n " };
	char text[256] = "";
	size_t at = 0;

	for (int i = 0; i < DLB_LEN(pieces); i++)
		strcat(text, pieces[i]);
	for (int i = 0; i < DLB_LEN(pieces); i++) {
		size_t n = dlb_bpe_piece((const unsigned char *)text + at, strlen(text) - at);

		if (n != strlen(pieces[i]) || memcmp(text + at, pieces[i], n)) {
			printf("piece %d: '%.*s' in place of '%s'\n", i, (int)n, text + at, pieces[i]);
			assert(0);
		}
		at += n;
	}
	assert(!text[at]);
	/* Letters and numbers of other scripts; characters that only iswalpha calls letters. */
	assert(dlb_unicode_letter(0xe9) && dlb_unicode_letter(0x4e2d) && dlb_unicode_letter(0x2b0) &&
	       !dlb_unicode_letter(0x663));
	assert(dlb_unicode_number(0x663) && dlb_unicode_number(0xbd) && dlb_unicode_number(0x2167) &&
	       !dlb_unicode_number('a'));
	assert(dlb_unicode_space(0x3000) && dlb_unicode_space(0x85) && !dlb_unicode_space(0x200b) &&
	       !dlb_unicode_letter(0x301));
}

static void test_digits(void)
{
	struct dlb_graph g;
	struct dlb_data *d, *e;
	struct dlb_error err = { .what = "" };
	float *x = malloc(1797 * 64 * sizeof *x), half[2 * 64];
	int64_t label[1797], counts[10] = { 0 };
	double sum = 0;

	make_graph(&g, (int64_t[]){ 1, 8, 8 }, 4, DLB_F32, 1, 10);
	assert(dlb_data_open(&d,
			     &(struct dlb_data_choice){
				     .spec = "digits", .transform = "scale=1/16", .seed = 1 },
			     &g, &err) == 0);
	assert(IS(dlb_data_count(d), ==, 1797));
	assert(IS(dlb_data_fill(d, 0, 0, 0, 1797, x, &err), ==, 0));
	assert(IS(dlb_data_fill(d, 1, 0, 0, 1797, label, &err), ==, 0));
	for (int i = 0; i < 1797; i++)
		counts[label[i]]++;
	for (int i = 0; i < 10; i++)
		assert(IS(counts[i], >=, 174) &&
		       IS(counts[i], <=, 183)); /* as the data set's description says */
	for (int i = 0; i < 1797 * 64; i++)
		sum += x[i];
	assert(IS(fabs(sum * 16 - 561718), <, 0.5) && IS(x[2], ==, 5.0f / 16.0f) && IS(label[0], ==, 0) &&
	       IS(label[1], ==, 1));
	assert(IS(dlb_data_counted(d, -1, 0, 5, 7), ==, 7));

	/* Shuffled: every sample once per epoch, another order in the next epoch, the same order for the same
	 * epoch. */
	assert(dlb_data_open(&e,
			     &(struct dlb_data_choice){ .spec = "digits:test", .shuffled = true, .seed = 7 },
			     &g, &err) == 0 &&
	       IS(dlb_data_count(e), ==, 360));
	assert(IS(dlb_data_fill(e, 1, 3, 0, 360, label, &err), ==, 0));
	memset(counts, 0, sizeof counts);
	for (int i = 0; i < 360; i++)
		counts[label[i]]++;
	for (int i = 0; i < 10; i++)
		assert(IS(counts[i], >, 25) && IS(counts[i], <, 45));
	int64_t again[360], other[360];
	assert(IS(dlb_data_fill(e, 1, 4, 0, 360, other, &err), ==, 0));
	assert(IS(dlb_data_fill(e, 1, 5, 0, 1, again, &err), ==, 0));
	assert(IS(dlb_data_fill(e, 1, 3, 100, 260, again + 100, &err), ==, 0));
	assert(!memcmp(again + 100, label + 100, 260 * sizeof *label) && memcmp(other, label, sizeof other));
	assert(IS(dlb_data_fill(e, 0, 3, 10, 2, half, &err), ==, 0));
	assert(IS(half[0], >=, 0) && IS(half[0], <=, 16));
	dlb_data_close(d);
	dlb_data_close(e);
	dlb_graph_release(&g);
	free(x);

	/* Data that do not fit the model are refused, with a cure if there is one. */
	make_graph(&g, (int64_t[]){ 1, 12, 12 }, 4, DLB_F32, 1, 10);
	assert(dlb_data_open(&d, &(struct dlb_data_choice){ .spec = "digits", .seed = 1 }, &g, &err) == -1 &&
	       HAS(err.hint, "pad=2"));
	dlb_graph_release(&g);
	make_graph(&g, (int64_t[]){ 64 }, 2, DLB_F64, 1, 10);
	assert(dlb_data_open(&d, &(struct dlb_data_choice){ .spec = "digits", .seed = 1 }, &g, &err) == 0);
	double wide[64];
	assert(IS(dlb_data_fill(d, 0, 0, 0, 1, wide, &err), ==, 0));
	assert(IS(wide[2], ==, 5.0));
	dlb_data_close(d);
	dlb_graph_release(&g);
	make_graph(&g, (int64_t[]){ 64 }, 2, DLB_F32, 1, 9);
	assert(dlb_data_open(&d, &(struct dlb_data_choice){ .spec = "digits", .seed = 1 }, &g, &err) == -1 &&
	       HAS(err.what, "label 9"));
	assert(dlb_data_open(&d, &(struct dlb_data_choice){ .spec = "digit", .seed = 1 }, &g, &err) == -1 &&
	       HAS(err.hint, "digits"));
	dlb_graph_release(&g);
}

static void test_tokens(void)
{
	char path[] = "/tmp/dlb-test-XXXXXX";
	int fd = mkstemp(path);
	struct dlb_graph g;
	struct dlb_data *d;
	struct dlb_error err = { .what = "" };
	char spec[64];
	int64_t x[6], y[6];

	assert(IS(fd, >=, 0) && IS(write(fd, "cabbac\nd", 8), ==, 8));
	close(fd);
	snprintf(spec, sizeof spec, "tokens:%s", path);
	make_graph(&g, (int64_t[]){ 3 }, 2, DLB_I64, 2, 5);
	assert(dlb_data_open(&d, &(struct dlb_data_choice){ .spec = spec, .seed = 1 }, &g, &err) == 0 &&
	       IS(dlb_data_count(d), ==, 2));
	assert(IS(dlb_data_fill(d, 0, 0, 0, 2, x, &err), ==, 0));
	assert(IS(dlb_data_fill(d, 1, 0, 0, 2, y, &err), ==, 0));
	/* sorted: \n a b c d = 0..4; sample i starts at 3 i */
	static const int64_t want_x[] = { 3, 1, 2, 2, 1, 3 }, want_y[] = { 1, 2, 2, 1, 3, 0 };
	assert(!memcmp(x, want_x, sizeof x) && !memcmp(y, want_y, sizeof y));
	assert(IS(dlb_data_counted(d, dlb_data_label(d, 0), 0, 0, 2), ==, 6));
	dlb_data_close(d);
	g.tensor[0].bound = 4;
	assert(dlb_data_open(&d, &(struct dlb_data_choice){ .spec = spec, .seed = 1 }, &g, &err) == -1);
	dlb_graph_release(&g);
	unlink(path);
}

static void test_random(void)
{
	struct dlb_graph g;
	struct dlb_data *d;
	struct dlb_error err;
	float *x = malloc(5000 * sizeof *x), part[50];
	int64_t y[1000];
	double sum = 0, square = 0;
	int seen[7] = { 0 };

	make_graph(&g, (int64_t[]){ 5 }, 2, DLB_F32, 1, 7);
	g.tensor[0].bound = 0;
	assert(dlb_data_open(&d, &(struct dlb_data_choice){ .spec = "random", .shuffled = true, .seed = 3 },
			     &g, &err) == 0 &&
	       IS(dlb_data_count(d), ==, DLB_DATA_ENDLESS));
	assert(IS(dlb_data_fill(d, 0, 0, 0, 1000, x, &err), ==, 0));
	assert(IS(dlb_data_fill(d, 0, 0, 100, 10, part, &err), ==, 0));
	assert(!memcmp(part, x + 500, sizeof part));		/* by index alone */
	for (int i = 0; i < 5000; i++) {
		sum += x[i];
		square += (double)x[i] * x[i];
	}
	assert(IS(fabs(sum / 5000), <, 0.06) && IS(fabs(square / 5000 - 1), <, 0.1));
	assert(IS(dlb_data_fill(d, 1, 0, 0, 1000, y, &err), ==, 0));
	for (int i = 0; i < 1000; i++) {
		assert(IS(y[i], >=, 0) && IS(y[i], <, 7));
		seen[y[i]]++;
	}
	for (int i = 0; i < 7; i++)
		assert(IS(seen[i], >, 90));
	dlb_data_close(d);
	dlb_graph_release(&g);
	free(x);
}

/* int64 or float64 rows of n as a .npy file at `path`. */
static void write_npy(const char *path, const char *type, int rows, int n, const void *data)
{
	FILE *f = fopen(path, "wb");
	char head[119] = "";

	assert(f);
	snprintf(head, sizeof head, "{'descr': '<%s', 'fortran_order': False, 'shape': (%d, %d), }", type,
		 rows, n);
	fprintf(f, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, head);
	assert(IS(fwrite(data, 8, (size_t)(rows * n), f), ==, (size_t)(rows * n)) && !fclose(f));
}

/* Labels of several positions are classes of the logits' axis, for any number of positions; floats are
 * probabilities. */
static void test_labels(void)
{
	static const int64_t x[6] = { 0, 1, 2, 3, 4, 0 }, good[6] = { 47, 0, -100, 99, 3, 4 },
			     bad[6] = { 0, 1, 2, 3, 100, 5 };
	static const double shares[6] = { 0, 1, 0.25, 0.5, 1, 0 }, wrong[6] = { 0, 1, 0.25, 1.5, 1, 0 };
	char dir[] = "/tmp/dlb-test-XXXXXX", spec[200], path[2][40];
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	struct dlb_data *d;

	assert(mkdtemp(dir));
	for (int i = 0; i < 2; i++)
		snprintf(path[i], sizeof path[i], "%s/%d.npy", dir, i);
	snprintf(spec, sizeof spec, "npy:%s,%s", path[0], path[1]);
	make_graph(&g, (int64_t[]){ 3 }, 2, DLB_I64, 2, 5);
	g.tensor[1].bound = 100;
	const struct dlb_data_choice choice = { .spec = spec, .seed = 1 };
	write_npy(path[0], "i8", 2, 3, x);
	write_npy(path[1], "i8", 2, 3, good);
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, -1) &&
	       HAS(err.what, "label -100 of sample 0 is outside the model's 0 to 99"));
	const int scores = dlb_graph_add_tensor(&g, "scores", DLB_T_ACTIVATION),
		  loss = dlb_graph_add_tensor(&g, "loss", DLB_T_ACTIVATION);
	g.tensor[scores].dtype = DLB_F32;
	g.tensor[scores].n_dims = 3;
	g.tensor[scores].dim[0] = (struct dlb_dim){ 1, 0 };
	g.tensor[scores].dim[1].add = 100;
	g.tensor[scores].dim[2].add = 3;
	g.tensor[loss].n_dims = 0;
	const struct dlb_attr ignore = { .name = "ignore_index", .type = DLB_ATTR_INT, .i = -100 };
	dlb_graph_add_op(&g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "loss", .type = "SoftmaxCrossEntropyLoss",
						DLB_OPERANDS(scores, 1), .out = &loss, .n_out = 1,
						.attr = &ignore, .n_attr = 1 });
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, 0));
	assert(IS(dlb_data_counted(d, 1, 0, 0, 1), ==, 2) && IS(dlb_data_counted(d, 1, 0, 0, 2), ==, 5) &&
	       IS(dlb_data_counted(d, -1, 0, 0, 2), ==, 2));
	dlb_data_close(d);
	write_npy(path[1], "i8", 2, 3, bad);
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, -1) &&
	       HAS(err.what, "label 100 of sample 1 is outside the model's 0 to 99"));
	assert(HAS(err.where, "1.npy: byte 160"));
	dlb_graph_release(&g);

	make_graph(&g, (int64_t[]){ 3 }, 2, DLB_I64, 2, 5);
	g.tensor[1].dtype = DLB_F32;
	g.tensor[1].bound = 2;
	write_npy(path[1], "f8", 2, 3, shares);
	float filled[6];
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, 0) &&
	       IS(dlb_data_fill(d, 1, 0, 0, 2, filled, &err), ==, 0) && IS(filled[2], ==, 0.25f));
	dlb_data_close(d);
	write_npy(path[1], "f8", 2, 3, wrong);
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, -1) &&
	       HAS(err.what, "label 1.5 of sample 1 is outside"));
	dlb_graph_release(&g);
	for (int i = 0; i < 2; i++)
		unlink(path[i]);
	rmdir(dir);
}

/* A model with a fixed batch of two gets two samples of the files per step, with their labels. */
static void test_fixed_batch(void)
{
	static const int64_t x[12] = { 0, 1, 2, 3, 4, 0, 1, 1, 1, 2, 2, 2 },
			     y[12] = { 5, 6, 7, -100, 9, 9, 8, 8, 8, 7, 7, 7 };
	char dir[] = "/tmp/dlb-test-XXXXXX", spec[200], path[2][40];
	struct dlb_error err = { .what = "" };
	int64_t got[6];
	struct dlb_graph g;
	struct dlb_data *d;

	assert(mkdtemp(dir));
	for (int i = 0; i < 2; i++)
		snprintf(path[i], sizeof path[i], "%s/%d.npy", dir, i);
	snprintf(spec, sizeof spec, "npy:%s,%s", path[0], path[1]);
	write_npy(path[0], "i8", 4, 3, x);
	write_npy(path[1], "i8", 4, 3, y);
	make_graph(&g, (int64_t[]){ 3 }, 2, DLB_I64, 2, 0);
	g.fixed_batch = true;
	g.batch = 2;
	g.tensor[0].dim[0] = g.tensor[1].dim[0] = (struct dlb_dim){ 0, 2 };
	const int scores = dlb_graph_add_tensor(&g, "scores", DLB_T_ACTIVATION),
		  loss = dlb_graph_add_tensor(&g, "loss", DLB_T_ACTIVATION);
	g.tensor[scores].dtype = DLB_F32;
	g.tensor[scores].n_dims = 3;
	g.tensor[scores].dim[0].add = 2;
	g.tensor[scores].dim[1].add = 10;
	g.tensor[scores].dim[2].add = 3;
	g.tensor[loss].n_dims = 0;
	const struct dlb_attr ignore = { .name = "ignore_index", .type = DLB_ATTR_INT, .i = -100 };
	dlb_graph_add_op(&g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "loss", .type = "SoftmaxCrossEntropyLoss",
						DLB_OPERANDS(scores, 1), .out = &loss, .n_out = 1,
						.attr = &ignore, .n_attr = 1 });
	if (dlb_data_open(&d, &(struct dlb_data_choice){ .spec = spec, .seed = 1 }, &g, &err)) {
		printf("%s\n", err.what);
		assert(false);
	}
	assert(IS(dlb_data_count(d), ==, 4) && !dlb_data_fill(d, 0, 0, 2, 2, got, &err) &&
	       !memcmp(got, x + 6, sizeof got));
	assert(!dlb_data_fill(d, 1, 0, 0, 2, got, &err) && !memcmp(got, y, sizeof got));
	assert(IS(dlb_data_counted(d, 1, 0, 0, 2), ==, 5) && IS(dlb_data_counted(d, 1, 0, 2, 2), ==, 6));
	dlb_data_close(d);
	dlb_graph_release(&g);
	for (int i = 0; i < 2; i++)
		unlink(path[i]);
	rmdir(dir);
}

/* The tar file of one empty member: its header has these bytes at 0, 257 and 345. */
static void write_tar(const char *path, const char *name, const char *magic, const char *prefix)
{
	char blocks[3 * 512] = "";
	unsigned sum = 0;
	FILE *f = fopen(path, "wb");

	strncpy(blocks, name, 100);
	memcpy(blocks + 124, "00000000000", 11); /* size */
	memcpy(blocks + 148, "        ", 8); /* the checksum counts as blanks */
	blocks[156] = '0';
	memcpy(blocks + 257, magic, 8);
	strncpy(blocks + 345, prefix, 155);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)blocks[i];
	snprintf(blocks + 148, 8, "%06o", sum);
	assert(f && IS(fwrite(blocks, 1, sizeof blocks, f), ==, sizeof blocks) && !fclose(f));
}

static int note_name(void *ctx, const struct dlb_tar_member *m, struct dlb_error *err)
{
	(void)err;
	assert(IS(m->header, ==, 0) && IS(m->at, ==, 512) && IS(m->size, ==, 0) && !m->link);
	snprintf(ctx, 300, "%s", m->name);
	return 0;
}

/* POSIX's ustar splits a long path into prefix and name, which may fill their fields; GNU keeps times where
 * the prefix is. */
static void test_tar_names(void)
{
	char path[] = "/tmp/dlb-test-XXXXXX", full_name[101] = "", full_prefix[156] = "", both[300], got[300];
	const int fd = mkstemp(path);

	assert(IS(fd, >=, 0));
	close(fd);
	memset(full_name, 'n', 100);
	memset(full_prefix, 'p', 155);
	snprintf(both, sizeof both, "%s/%s", full_prefix, full_name);
	const char posix[] = "ustar\00000", gnu[] = "ustar  ";
	const struct {
		const char *name, *magic, *prefix, *want;
	} rows[] = {
		{ "b/1.jpg", posix, "", "b/1.jpg" },
		{ "b/1.jpg", posix, "images/a", "images/a/b/1.jpg" },
		{ full_name, posix, full_prefix, both },
		{ full_name, posix, "", full_name },
		{ "b/1.jpg", gnu, "14712345670", "b/1.jpg" },
	};
	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_data_file f;
		struct dlb_error err;

		write_tar(path, rows[i].name, rows[i].magic, rows[i].prefix);
		got[0] = '\0';
		assert(IS(dlb_data_file_open(&f, path, &err), ==, 0) &&
		       IS(dlb_tar_walk(&f, note_name, got, &err), ==, 0));
		assert(SAME(got, rows[i].want));
		dlb_data_file_close(&f);
	}
	unlink(path);
}

/* An input may have several elements of one dimension per sample, but the batch in one dimension only, and in
 * proportion. */
static void test_batch_dimension(void)
{
	static const struct {
		struct dlb_dim dim[2];
		int per_sample;
	} rows[] = {
		{ { { 1, 0 }, { 0, 5 } }, 5 },  { { { 0, 5 }, { 1, 0 } }, 5 },
		{ { { 2, 0 }, { 0, 5 } }, 10 }, { { { 1, 0 }, { 1, 0 } }, -1 },
		{ { { 1, 1 }, { 0, 5 } }, -1 }, { { { 0, 5 }, { 2, 1 } }, -1 },
	};
	const struct dlb_data_choice choice = { .spec = "random", .seed = 1 };

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_graph g;
		struct dlb_data *d;
		float x[3 * 10 + 1];

		make_graph(&g, (int64_t[]){ 5 }, 2, DLB_F32, 1, 7);
		g.tensor[0].bound = 0;
		memcpy(g.tensor[0].dim, rows[i].dim, sizeof rows[i].dim);
		if (rows[i].per_sample < 0) {
			assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, -1) &&
			       HAS(err.what, "input 'x' depends on the batch size in several dimensions, or "
					     "not in proportion"));
		} else {
			const int n = 3 * rows[i].per_sample;

			for (int k = 0; k <= n; k++)
				x[k] = 99;
			assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, 0) &&
			       IS(dlb_data_fill(d, 0, 0, 0, 3, x, &err), ==, 0));
			for (int k = 0; k < n; k++)
				assert(IS(x[k], <, 99));
			assert(IS(x[n], ==, 99));
			dlb_data_close(d);
		}
		dlb_graph_release(&g);
	}
}

/* x and label with the samples in their first or last dimension. */
static void make_table(struct dlb_graph *g, bool last, int64_t n_x, enum dlb_dtype x, int64_t n_label,
		       enum dlb_dtype label, int64_t bound)
{
	make_graph(g, &n_x, 2, x, 2, bound);
	for (int t = 0; t < 2; t++) {
		g->tensor[t].dtype = t ? label : x;
		g->tensor[t].dim[!last] = (struct dlb_dim){ 0, t ? n_label : n_x };
		g->tensor[t].dim[last] = (struct dlb_dim){ 1, 0 };
	}
}

/* Samples in the first dimension or in the last one: a sample is a row or a column. */
static void test_tables(bool last)
{
	static const int64_t rows[6] = { 0, 1, 2, 3, 4, 0 }, classes[2] = { 1, 0 };
	char path[2][40] = { "/tmp/dlb-test-XXXXXX", "/tmp/dlb-test-XXXXXX" }, spec[120];
	struct dlb_error err = { .what = "" };
	struct dlb_data_choice choice = { .spec = spec, .seed = 1 };
	struct dlb_graph g;
	struct dlb_data *d;
	int64_t x[6], y[6];
	float one_hot[50];

	for (int i = 0; i < 2; i++) {
		const int fd = mkstemp(path[i]);

		assert(IS(fd, >=, 0) && IS(write(fd, "cabbac\nd", 8), ==, 8) && !close(fd));
	}
	snprintf(spec, sizeof spec, "tokens:%s", path[0]);
	make_table(&g, last, 3, DLB_I64, 3, DLB_I64, 5);
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, 0) && IS(dlb_data_count(d), ==, 2));
	assert(IS(dlb_data_fill(d, 0, 0, 0, 2, x, &err), ==, 0) &&
	       IS(dlb_data_fill(d, 1, 0, 0, 2, y, &err), ==, 0));
	static const int64_t token[7] = { 3, 1, 2, 2, 1, 3, 0 };
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 3; j++)
			assert(IS(x[last ? 2 * j + i : 3 * i + j], ==, token[3 * i + j]) &&
			       IS(y[last ? 2 * j + i : 3 * i + j], ==, token[3 * i + j + 1]));
	assert(IS(dlb_data_counted(d, 1, 0, 0, 2), ==, 6));
	dlb_data_close(d);
	dlb_graph_release(&g);

	snprintf(spec, sizeof spec, "digits");
	make_table(&g, last, 64, DLB_F32, 10, DLB_F32, 10);
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, 0) &&
	       IS(dlb_data_fill(d, 1, 0, 0, 5, one_hot, &err), ==, 0));
	for (int i = 0; i < 5; i++) /* the first digits are 0, 1, 2, 3, 4 */
		for (int j = 0; j < 10; j++)
			assert(IS(one_hot[last ? 5 * j + i : 10 * i + j], ==, i == j));
	dlb_data_close(d);
	dlb_graph_release(&g);
	make_table(&g, last, 60, DLB_F32, 10, DLB_F32, 10);
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, -1) &&
	       SAME(err.what, "input 'x' wants 60 values a sample, the data give 1x8x8"));
	dlb_graph_release(&g);

	snprintf(spec, sizeof spec, "npy:%s,%s", path[0], path[1]);
	write_npy(path[0], "i8", 2, 3, rows);
	write_npy(path[1], "i8", 2, 1, classes);
	make_table(&g, last, 3, DLB_I64, 4, DLB_I64, 5);
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, -1));
	assert(SAME(err.what, "label 'label' wants 4 values a sample, the data give one"));
	dlb_graph_release(&g);
	for (int i = 0; i < 2; i++)
		unlink(path[i]);
}

/* Random data are numbers of one stream, whatever type holds them: element e is number e % 4 of draw e / 4. */
static void test_normals(void)
{
	enum { N = 301 };
	static const enum dlb_dtype types[] = { DLB_F32, DLB_F64, DLB_F16 };
	static double got[2 * N];
	float z[4];

	for (int k = 0; k < DLB_LEN(types); k++)
		for (int64_t sample = 0; sample < 5; sample++) {
			const size_t bytes = N * dlb_dtype_bytes(types[k]);

			memset(got, 0x5a, sizeof got);
			dlb_random_fill(3, 4, sample, N, types[k], 0, got);
			for (size_t i = bytes; i < sizeof got; i++)
				assert(IS(((unsigned char *)got)[i], ==, 0x5a));
			for (int64_t i = 0; i < N; i++) {
				const uint64_t e = (uint64_t)(sample * N + i);
				double want;

				dlb_philox_normals(3, 4, e / 4, 1, z);
				dlb_value_set(&want, types[k], 0, (double)z[e % 4]);
				assert(IS(dlb_value_real(got, types[k], i), ==,
					  dlb_value_real(&want, types[k], 0)));
			}
		}
}

/* Data with one array of labels do not fit a model of two. */
static void test_two_labels(void)
{
	const struct dlb_data_choice choice = { .spec = "digits", .seed = 1 };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	struct dlb_data *d;

	make_graph(&g, (int64_t[]){ 64 }, 2, DLB_F32, 1, 10);
	g.input = dlb_arena_array(&g.arena, 3, sizeof *g.input);
	g.input[1] = 1;
	g.input[2] = dlb_graph_add_tensor(&g, "other", DLB_T_LABEL);
	g.input[0] = 0;
	g.n_inputs = 3;
	g.tensor[2].dtype = DLB_I64;
	g.tensor[2].n_dims = 1;
	g.tensor[2].dim[0] = (struct dlb_dim){ 1, 0 };
	assert(IS(dlb_data_open(&d, &choice, &g, &err), ==, -1) &&
	       HAS(err.what, "bring one array of labels, but the losses want 'other' too") &&
	       HAS(err.hint, "npy:"));
	dlb_graph_release(&g);
}

/* Paths of files are made absolute, also those of options; words are kept. */
static void test_absolute(void)
{
	static const char *const rows[][2] = {
		{ "random", "random" },
		{ "digits:test", "digits:test" },
		{ "npy:a,b,b", "npy:%s/a,%s/b,%s/b" },
		{ "idx:./a,x/../b", "idx:%s/a,%s/b" },
		{ "text:a,vocab=b,merges=a", "text:%s/a,vocab=%s/b,merges=%s/a" },
		{ "tokens:b,type=u16", "tokens:%s/b,type=u16" },
	};
	char dir[] = "/tmp/dlb-test-XXXXXX", *was = getcwd(NULL, 0), *here, *got, want[600];
	struct dlb_error err = { .what = "" };

	assert(was && mkdtemp(dir) && !chdir(dir) && !mkdir("x", 0700));
	here = getcwd(NULL, 0);
	for (int i = 0; i < 2; i++)
		assert(!fclose(fopen(i ? "a" : "b", "w")));
	for (int i = 0; i < DLB_LEN(rows); i++) {
		snprintf(want, sizeof want, rows[i][1], here, here, here);
		assert(IS(dlb_data_absolute(rows[i][0], &got, &err), ==, 0) && SAME(got, want));
		free(got);
	}
	assert(IS(dlb_data_absolute("npy:a,none", &got, &err), ==, -1) &&
	       HAS(err.what, "cannot open 'none'"));
	assert(IS(dlb_data_absolute("npy:a,", &got, &err), ==, -1) &&
	       HAS(err.what, "a file's name is missing"));
	assert(IS(dlb_data_absolute("text:a,vocab=none,merges=b", &got, &err), ==, -1) &&
	       HAS(err.what, "cannot open 'none'"));
	unlink("a"), unlink("b"), rmdir("x");
	assert(!chdir(was) && !rmdir(dir));
	free(was), free(here);
}

int main(void)
{
	test_idx();
	test_npy_headers();
	test_transform();
	test_grey();
	test_moving_pixels();
	test_pieces();
	test_digits();
	test_tokens();
	test_labels();
	test_fixed_batch();
	test_random();
	test_tar_names();
	test_batch_dimension();
	test_tables(false);
	test_tables(true);
	test_normals();
	test_two_labels();
	test_absolute();
	puts("data: IDX, transforms, seed, pieces, digits, text, random, orders, tar names, batch "
	     "dimensions");
	return 0;
}
