/* Models in half precision: which tensors become f32, the counts in the graph, values, and the file's types
 * on saving. */
#include <unistd.h>
#include "check.h"
#include "graph_equal.h"
#include "onnx_model.h"
#include "graph/graph_json.h"
#include "graph/passes.h"

enum { F32 = 1, I64 = 7, F16 = 10, BF16 = 16 };

static const uint16_t halves[] = { 0x3e00, 0xc000 };		/* 1.5 and -2 in f16 */
static const uint16_t brains[] = { 0x3fc0, 0xc000 };		/* and in bf16 */

/* y = Cast(Cast(x, f16) + w, f32) + Cast(v, f32), w f16, v bf16 */
static void start_half(struct model *m)
{
	start(m);
	m->g.n_node = 0;
	m->init[0]->data_type = F16;
	raw(m->init[0], halves, sizeof halves);
	raw(initializer(m, "v", BF16, 2), brains, sizeof brains);
	attribute(m, vertex(m, "Cast", "x", NULL, "a"), "to", 2)->i = F16;
	vertex(m, "Add", "a", "w", "b");
	attribute(m, vertex(m, "Cast", "b", NULL, "c"), "to", 2)->i = F32;
	attribute(m, vertex(m, "Cast", "v", NULL, "d"), "to", 2)->i = F32;
	vertex(m, "Add", "c", "d", "y");
	for (size_t i = 0; i < m->g.n_node; i++)
		if (m->node[i]->n_attribute)
			m->node[i]->attribute[0]->has_i = 1;
}

static void test_upcast(void)
{
	struct model m;
	struct dlb_graph g, back;
	struct dlb_doc d;

	start_half(&m);
	if (parse(&m, &g))
		die("half");
	dlb_graph_upcast(&g);
	assert(IS(g.upcast[DLB_UPCAST_F16].initializers, ==, 1) &&
	       IS(g.upcast[DLB_UPCAST_F16].others, ==, 0));
	assert(IS(g.upcast[DLB_UPCAST_BF16].initializers, ==, 1) && IS(g.n_notes, ==, 2) &&
	       HAS(g.note[0], "1 f16 initializer and 0 other"));
	for (const char *const *name = (const char *const[]){ "w", "v", NULL }; *name; name++) {
		const struct dlb_tensor *t = &g.tensor[tensor_named(&g, *name)];
		assert(IS(t->dtype, ==, DLB_F32) && !memcmp(t->data, two, sizeof two));
	}
	for (int i = 0; i < g.n_ops; i++)
		assert(IS(dlb_attr_int(g.op[i].attr, g.op[i].n_attr, "to", F32), ==, F32));
	g.batch = 4;
	dlb_doc_init(&d, "test");
	dlb_doc_set(&d, "graph", dlb_graph_write(&g));
	if (dlb_graph_read(&d, &back, &err))
		die("document");
	assert(!memcmp(g.upcast, back.upcast, sizeof g.upcast));
	dlb_doc_release(&d);
	dlb_graph_release(&g);
	dlb_graph_release(&back);
	n_checked++;
}

/* Folding leaves no Cast, since all types are f32. */
static void test_casts_go(void)
{
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	struct dlb_backend be;
	struct model m;
	struct dlb_graph g;

	start_half(&m);
	if (parse(&m, &g) || ops->open(0, 1, &be, &err))
		die("half");
	dlb_graph_upcast(&g);
	if (dlb_graph_fold(&g, 4, &be, &err))
		die("fold");
	assert(IS(g.n_ops, ==, 2) && SAME(g.op[0].type, "Add") && SAME(g.op[1].type, "Add"));
	be.ops->close(&be);
	dlb_graph_release(&g);
	n_checked++;
}

/* Trained in f32, saved in the file's types, rounded to even. */
static void test_save(void)
{
	static const float w[] = { 1 + 0x1p-11f, 3 }, v[] = { 1 + 0x1p-8f, 1 + 0x1.8p-7f };
	static const uint16_t want_w[] = { 0x3c00, 0x4200 }, want_v[] = { 0x3f80, 0x3f82 };
	const struct dlb_named trained[] = { { "w", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, w },
					     { "v", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, v } };
	struct model m;
	struct dlb_graph g;
	char path[300], saved[300];
	size_t n;

	start_half(&m);
	uint8_t *p = pack(&m, &n);
	write_file("half.onnx", p, n);
	free(p);
	dlb_arena_release(&m.a);
	snprintf(path, sizeof path, "%s/half.onnx", dir);
	snprintf(saved, sizeof saved, "%s/saved.onnx", dir);
	if (dlb_onnx_save(path, saved, trained, 2, &err) || dlb_onnx_read(saved, &g, &err))
		die("save");
	const struct dlb_tensor *f16 = &g.tensor[tensor_named(&g, "w")],
				*bf16 = &g.tensor[tensor_named(&g, "v")];
	assert(IS(f16->dtype, ==, DLB_F16) && !memcmp(f16->data, want_w, sizeof want_w));
	assert(IS(bf16->dtype, ==, DLB_BF16) && !memcmp(bf16->data, want_v, sizeof want_v));
	dlb_graph_release(&g);
	n_checked++;
}

/* An argument: the folder for the models as seeds of fuzzers. */
int main(int argc, char **argv)
{
	char command[100];

	seeds = argc > 1 ? argv[1] : NULL;
	assert(mkdtemp(dir));
	test_upcast();
	test_casts_go();
	test_save();
	snprintf(command, sizeof command, "rm -r %s", dir);
	assert(IS(system(command), ==, 0));
	printf("test_upcast: %d checks\n", n_checked);
	return 0;
}
