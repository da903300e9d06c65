/* Kept results of folding small graphs: exports at a fixed batch, whose batch is found in views and in
 * constant operands, and sequences of tensors. A graph made to follow the batch gives the exported graph's
 * values at the exported batch, and samples together give what they give alone. kept.h says how lines are
 * replaced. */
#include <math.h>
#include "exec/agree.h"
#include "graph/passes.h"
#include "check.h"
#include "run_graph.h"
#include "kept.h"
#include "text_graph.h"

static const char *const kept[] = {
#include "folded_kept.inc"
};

static struct dlb_backend be;
static const uint64_t seed = 20261202;
static int n_compared;

/* x (4, 3, 6), exported at a batch of 4, or of 1 */
static const char *const fixed[] = {
	"x[4,3,6] | y = Reshape(x, #4/18)",
	"x[4,3,6] | y = Reshape(x, #12/6)",
	"x[4,3,6] | y = Reshape(x, #4/-1)",
	"x[4,3,6] | y = Reshape(x, #-1/6)",
	"x[4,3,6] | y = Reshape(x, #0/18)",
	"x[4,3,6] | y = Reshape(x, #-1/18)",
	"x[4,3,6] | y = Reshape(x, #0/0/2/3)",
	"x[4,3,6] | y = Reshape{allowzero=1}(x, #4/3/-1)",
	"x[4,3,6] | y = Reshape(x, #4/3/2/3)",
	"x[4,3,6] | y = Reshape(x, #1/4/3/6)",
	"x[4,3,6] | y = Reshape(x, #4/1/18)",
	"x[4,3,6] | y = Reshape(x, #2/2/3/6)",
	"x[4,3,6] | y = Reshape(x, #3/24)",
	"x[4,3,6] | y = Reshape(x, #72)",
	"x[4,3,6] | y = Reshape(x, #-1)",
	"x[4,3,6] | y = Reshape(x, #8/9)",
	"x[4,3,6] | y = Reshape(x, #6/12)",
	"x[4,3,6] | y = Reshape(x, #5/18)",
	"x[4,3,6] | y = Reshape(x, #4/17)",
	"x[4,3,6] | y = Flatten{axis=1}(x)",
	"x[4,3,6] | y = Flatten{axis=2}(x)",
	"x[4,3,6] | y = Flatten{axis=0}(x)",
	"x[4,3,6] | u = Unsqueeze(x, #0/2); y = Squeeze(u, #0)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #12/6); z = Relu(y)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #12/6); z = Reshape(y, #3/4/6)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #12/6); z = Reshape(y, #4/3/6)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #3/24)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #3/-1/2)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #0/4/6)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #0/0/3/2)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #3/0/-1)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #-1/4/6)",
	"x[4,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #1/0/4/6)",
	"x[4,3,6] | t = Transpose{perm=2,1,0}(x); y = Reshape(t, #18/4)",
	"x[4,3,6] | t = Transpose(x); y = Reshape(t, #6/3/0)",
	"x[4,3,6] | t = Transpose(x); y = Reshape(t, #6/12); z = Reshape(y, #6/3/4)",
	"x[4,4,4] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #4/4/2/2); z = Reshape(y, #16/4); q = "
	"Reshape(z, #4/4/4)",
	"x[4,4,4] | t = Transpose{perm=1,2,0}(x); y = Reshape(t, #16/4); z = Reshape(y, #4/16)",
	"x[4,4,4] | y = Reshape(x, #16/4); z = Reshape(y, #4/4/4); t = Transpose{perm=1,0,2}(z); q = "
	"Reshape(t, #4/16)",
	"x[4,2,3] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #8/3); z = Reshape(y, #2/4/3); q = "
	"Softmax{axis=0}(z)",
	"x[1,3,6] | y = Reshape(x, #1/18)",
	"x[1,3,6] | y = Reshape(x, #3/6)",
	"x[1,3,6] | y = Reshape(x, #1/3/1/6)",
	"x[1,3,6] | y = Reshape(x, #3/1/6)",
	"x[1,3,6] | y = Reshape(x, #3/2/3/1)",
	"x[1,3,6] | y = Reshape(x, #18/1)",
	"x[1,3,6] | y = Reshape(x, #18)",
	"x[1,3,6] | y = Reshape(x, #1/1/18)",
	"x[1,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #3/6)",
	"x[1,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #3/6/1)",
	"x[1,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #3/2/3)",
	"x[1,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #6/3)",
	"x[1,3,6] | t = Transpose{perm=1,0,2}(x); y = Reshape(t, #3/1/1/6)",
	"x[1,1,6] | y = Reshape(x, #1/6); z = Reshape(y, #2/3)",
	"x[4,3] | c = Concat{axis=0}(x, x); y = Reshape(c, #2/4/3)",
	"x[4,3] | c = Concat{axis=0}(x, x); y = Reshape(c, #4/2/3)",
	"x[4,3] | c = Concat{axis=0}(x, x); y = Reshape(c, #8/3)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #0, #4, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #4, #8, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #8, #12, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #8, #9999, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #-4, #9999, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #-8, #-4, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #0, #12, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #2, #6, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #0, #6, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #-12, #4, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); y = Slice(c, #0, #12, #0, #3)",
	"x[4,3] | c = Concat{axis=0}(x, x); y = Slice(c, #0/1, #4/3)",
	"x[4,3] | c = Concat{axis=0}(x, x); y = Slice(c, #4/0, #8/2, #-2/-1, #1/1)",
	"x[4,3] | c = Concat{axis=0}(x, x); y = Slice(c, #4/0, #8/2, #0/1, #1/2)",
	"x[4,3] | t = Transpose(x); c = Concat{axis=1}(t, t); y = Slice(c, #4, #8, #1)",
	"x[4,3] | y = Slice(x, #0, #4, #0)",
	"x[4,3] | y = Slice(x, #0, #2, #0)",
	"x[4,3] | y = Slice(x, #1, #4, #0)",
	"x[4,3] | y = Slice(x, #0, #3, #1)",
	"x[4,3] | y = Slice(x, #0/0, #4/2)",
	"x[4,3] | y = Slice(x, #0/0, #4/2, #-2/-1)",
	"x[4,3] | c = Concat{axis=0}(x, x); a,b = Split{axis=0}(c, #4/4); y = Sub(a, b)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); a,b = Split{axis=0}(c, #4/8); y = Relu(b)",
	"x[4,3] | c = Concat{axis=0}(x, x, x); a,b = Split{axis=-2}(c, #8/4); y = Relu(b)",
	"x[4,3] | c = Concat{axis=0}(x, x); a,b = Split{axis=0}(c, #2/6); y = Relu(a)",
	"x[4,3] | c = Concat{axis=0}(x, x); y = Split{axis=0}(c, #8)",
	"x[4,3] | a,b = Split{axis=1}(x, #1/2); y = Relu(b)",
	"x[4,3] | a,b = Split{axis=0}(x, #2/2); y = Sub(a, b)",
	"x[4,3] | t = Tile(x, #2/1); y = Slice(t, #4, #8, #0)",
	"x[4,3] | t = Tile(x, #1/2); y = Reshape(t, #4/2/3)",
	"x[4,3] | t = Tile(x, #3/1); y = Reshape(t, #3/4/3)",
	"x[4,3] | c = Concat{axis=0}(x, x); d = Concat{axis=0}(c, x); y = Reshape(d, #3/4/3)",
	"x[4,3] | c = Concat{axis=0}(x, x); d = Concat{axis=0}(x, c); y = Slice(d, #4, #8, #0)",
	"x[4,3] | c = Concat{axis=0}(x, x); d = Concat{axis=0}(c, c); y = Reshape(d, #2/8/3)",
	"x[4,3] | c = Concat{axis=0}(x, x); d = Concat{axis=0}(c, c); y = Reshape(d, #4/4/3)",
	"x[4,3] | t = Transpose(x); r = Reshape(t, #12); c = Concat{axis=0}(r, r); y = Reshape(c, #6/4)",
	"x[4,3] | c = Concat{axis=0}(x, w[2,3]); y = Relu(c)",
	"x[4,3] | u = Unsqueeze(x, #1); y = Expand(u, #4/5/3)",
	"x[4,3] | u = Unsqueeze(x, #1); y = Expand(u, #1/5/3)",
	"x[4,3] | u = Unsqueeze(x, #0); y = Expand(u, #5/4/3)",
	"x[4,3] | y = Expand(x, #2/4/3)",
	"x[4,3] | e = Expand(w[1,3], #4/3); y = Add(x, e)",
	"x[4,3] | e = Expand(w[3], #4/3); y = Mul(x, e)",
	"x[1,3] | e = Expand(x, #1/3); y = Expand(e, #2/1/3)",
	"x[4,2,3,3] | y = Resize{mode=nearest}(x, -, -, #4/2/6/6)",
	"x[4,2,3,3] | y = Resize{mode=nearest axes=2,3}(x, -, -, #6/6)",
	"x[4,2,3,3] | y = Resize{mode=nearest axes=0,3}(x, -, -, #4/6)",
	"x[4,2,3,3] | y = Resize{mode=nearest axes=-4,-1}(x, -, -, #4/6)",
	"x[4,2,3,3] | y = Resize{mode=nearest}(x, -, -, #4/4/6/6)",
	"x[4,3] | y = Add(x, w[4,3]~same)",
	"x[4,3] | y = Add(x, w[4,3])",
	"x[4,3] | y = Add(x, w[4,1]~ones)",
	"x[4,3] | y = Concat{axis=1}(x, w[4,2]~same)",
	"x[4,2,3] | m = Mul(w[4,1,3]~same, v[3]); y = Add(x, m)",
	"x[4,2,3] | m = Mul(w[4,2,3]~ones, v[4,2,3]~zeros); y = Add(x, m)",
	"x[4,2,3] | m = Mul(w[4,2,3]~ones, v[4,2,3]); y = Add(x, m)",
	"x[4,2,3] | m = Relu(w[4,1,3]~ones); y = Concat{axis=1}(m, x)",
	"x[4,2,3] | m = Relu(w[4,1,3]~same); n = Tanh(m); y = Concat{axis=1}(n, x)",
	"x[4,2,3] | r = Reshape(w[8,3]~ones, #4/2/3); y = Add(x, r)",
	"x[4,2,3] | r = Reshape(w[4,6]~ones, #4/2/3); y = Concat{axis=1}(x, r)",
	"x[4,2,3] | r = Reshape(w[4,6]~same, #4/2/3); y = Concat{axis=1}(x, r)",
	"x[4,2,3] | r = Reshape(w[2,12]~ones, #4/2/3); y = Concat{axis=1}(x, r)",
	"x[4,2,3] | u = Unsqueeze(w[4,3]~same, #1); y = Concat{axis=1}(x, u)",
	"x[4,3] | s = Squeeze(w[4,1,3]~same, #1); y = Concat{axis=1}(x, s)",
	"x[4,3] | f = Flatten{axis=1}(w[4,2,3]~same); y = Concat{axis=1}(x, f)",
	"x[4,2,3] | t = Transpose{perm=1,0,2}(w[2,4,3]~same); y = Add(x, t)",
	"x[4,2,3] | t = Transpose{perm=1,0,2}(w[2,4,3]~same); y = Concat{axis=1}(x, t)",
	"x[4,2,3] | e = Expand(w[1,1,3], #4/2/3); y = Concat{axis=1}(x, e)",
	"x[4,2,3] | e = Expand(w[4,1,3]~same, #4/2/3); y = Concat{axis=1}(x, e)",
	"x[4,2,3] | e = Expand(w[4,1,3], #4/2/3); y = Concat{axis=1}(x, e)",
	"x[4,2,3] | e = Expand(w[3], #4/2/3); y = Concat{axis=1}(x, e)",
	"x[4,2,3] | g = MatMul(w[4,2,5]~same, v[5,3]); y = Add(x, g)",
	"x[4,2,3] | g = MatMul(w[4,2,5]~same, v[5,3]); y = Concat{axis=1}(x, g)",
	"x[4,2,3] | c = Concat{axis=1}(w[4,1,3]~same, v[4,1,3]~ones); y = Add(x, c)",
	"x[4,2,3] | c = Concat{axis=1}(w[4,1,3]~same, v[4,1,3]~ones); y = Concat{axis=2}(x, c)",
	"x[4,2,3] | c = Concat{axis=1}(w[4,1,3]~same, v[4,1,3]); y = Add(x, c)",
	"x[4,2,3] | c = Concat{axis=0}(w[2,2,3]~same, v[2,2,3]~same); y = Add(x, c)",
	"x[4,2,3] | s = Slice(w[4,5,3]~same, #0, #2, #1); y = Add(x, s)",
	"x[4,2,3] | a = Add(w[4,1,3]~same, v[1,2,1]); y = Concat{axis=2}(x, a)",
	"x[4,2,3] | a = Add(w[4,1,3]~same, v[2,1]); y = Concat{axis=2}(x, a)",
	"x[4,2,3] | g = ReduceMean{axes=1,}(w[4,5,3]~same); y = Concat{axis=1}(x, g)",
	"x[4,2,3] | g = ReduceMean{axes=1, keepdims=0}(w[4,5,3]~same); u = Unsqueeze(g, #1); y = "
	"Concat{axis=1}(x, u)",
	"x[4,4,4] | m = Mul(w[4,4,4]~same, v[4]); y = Add(x, m)",
	"x[4,4] | t = Transpose(x); y = Add(t, w[4,4])",
	"x[4,4] | t = Transpose(x); y = Add(t, w[4,1])",
	"x[4,4] | t = Transpose(x); y = Add(t, w[1,4]~ones)",
	"x[4,2] | c = Concat{axis=0}(x, x); y = Add(c, w[8,2]~same)",
	"x[4,2] | c = Concat{axis=0}(x, x); y = Concat{axis=1}(c, w[8,2]~same)",
	"x[4,2] | r = Reshape(x, #8); y = Add(r, w[8]~signs)",
	"x[4,2] | r = Reshape(x, #8); y = Add(r, w[8]~steps)",
	"x[4,2] | r = Reshape(x, #8/1); y = Concat{axis=1}(r, w[8,1]~signs)",
	"x[4,5,3] | r = Reshape(x, #20/3); y = Gather(r, #0/5/10/15)",
	"x[4,5,3] | r = Reshape(x, #20/3); y = Gather(r, #1/6/11/16)",
	"x[4,5,3] | r = Reshape(x, #20/3); y = Gather(r, #4/9/14/19)",
	"x[4,5,3] | r = Reshape(x, #20/3); y = Gather(r, #1/6/11/17)",
	"x[4,5,3] | r = Reshape(x, #20/3); y = Gather(r, #5/10/15/20)",
	"x[4,5,3] | r = Reshape(x, #20/3); y = Gather(r, #15/10/5/0)",
	"x[4,5,3] | r = Reshape(x, #20/3); g = Gather(r, #0/1/5/6/10/11/15/16); y = Reshape(g, #4/2/3)",
	"x[4,5,3] | r = Reshape(x, #20/3); g = Gather(r, #0/1/5/6/10/11); y = Relu(g)",
	"x[1,5,3] | r = Reshape(x, #5/3); y = Gather(r, #0/2)",
	"x[1,5,3] | r = Reshape(x, #5/3); y = Gather(r, #0/4)",
	"x[1,5,3] | t = Transpose{perm=1,0,2}(x); y = Gather(t, #0/4)",
	"x[4,3] | n = Reshape(#0/1/2/3, #4/1); y = GatherND(x, n)",
	"x[4,3] | n = Reshape(#0/2/1/0/2/1/3/1, #4/2); y = GatherND(x, n)",
	"x[4,3] | n = Reshape(#0/2/1/2/2/2/3/2, #4/2); y = GatherND(x, n)",
	"x[4,3] | n = Reshape(#0/1/2/3, #4/1); y = ScatterND(w[4,3]~zeros, n, x)",
	"x[4,3] | n = Reshape(#0/1/2/3, #4/1); y = ScatterND(w[4,3], n, x)",
	"x[4,3] | n = Reshape(#3/2/1/0, #4/1); y = ScatterND(w[4,3]~zeros, n, x)",
	"x[4,3] | n = Reshape(#0/2/4/6, #4/1); y = ScatterND(w[8,3]~zeros, n, x)",
	"x[4,3] | n = Reshape(#1/3/5/7, #4/1); y = ScatterND(w[8,3]~same, n, x)",
	"x[1,3] | n = Reshape(#0, #1/1); y = ScatterND(w[2,3]~zeros, n, x)",
	"i[4,2]:i64 | p = Reshape(#0/1/0/1/0/1/0/1, #4/2); s = Add(i, p); y = Gather(w[9,3], s)",
	"i[4,2]:i64 | p = Reshape(#0/0/1/1/2/2/3/3, #4/2); s = Add(i, p); y = Gather(w[9,3], s)",
	"i[4,2]:i64 | p = Reshape(#0/1/0/1/0/1/1/1, #4/2); s = Add(i, p); y = Gather(w[9,3], s)",
	"i[4,2]:i64 | p = Reshape(#0/1/0/1/0/1/0/1, #4/2); s = Concat{axis=1}(i, p); y = Gather(w[9,3], s)",
	"i[4,2]:i64 | p = Reshape(#0/0/1/1/2/2/3/3, #4/2); s = Concat{axis=1}(i, p); y = Gather(w[9,3], s)",
	"i[4,2]:i64 | p = Reshape(#0/1/2/1/2/3/2/3/4/3/4/5, #4/3); s = Concat{axis=1}(i, p); y = "
	"Gather(w[9,3], s)",
	"x[4,2] z[4,2] | c = Less(w[4,1]~ones, %2.0); y = Where(c, x, z)",
	"x[4,2] | c = Less(w[4,2]~same, %0.0); y = Where(c, x, v[4,2]~same)",
	"x[4,3,6] | m = MatMul(x, w[6,4]); y = Reshape(m, #4/12)",
	"x[4,3,6] | m = MatMul(x, w[6,4]); r = Reshape(m, #12/4); y = Reshape(r, #4/3/4)",
	"x[4,3,6] | m = ReduceMean{axes=1, keepdims=0}(x); y = Reshape(m, #4/2/3)",
	"x[4,3,6] | m = ReduceMean{axes=0,}(x); y = Reshape(m, #3/6)",
	"x[4,3,6] | g = Gather{axis=1}(x, #2/0); y = Reshape(g, #4/12)",
	"x[4,3,6] | g = Gather{axis=0}(x, #0/1/2/3); y = Reshape(g, #4/18)",
	"x[4,3,4] | t = Transpose{perm=0,2,1}(x); m = MatMul(x, t); y = Softmax{axis=-1}(m)",
	"x[4,4] | t = Transpose(x); m = MatMul(x, t); y = Softmax{axis=-1}(m)",
	"x[4,3] i[4]:i64 | e = Gather(w[5,3], i); y = Add(x, e)",
	"i[4,2]:i64 | e = Gather(w[5,3], i); r = Reshape(e, #8/3); m = MatMul(r, v[3,2]); y = Reshape(m, "
	"#4/2/2)",
	"x[4,3] z[4,3] | y = Add(x, z)",
	"x[4,3] z[5,3] | t = MatMul(x, w[3,2]); y = MatMul(z, w)",
	"x[N,3,4] | y = Reshape(x, #-1/12)",
	"x[N,3,4] | y = Reshape(x, #0/12)",
	"x[N,3,4] | t = Transpose{perm=1,0,2}(x); r = Reshape(t, #3/-1); y = Reshape(r, #3/-1/4)",
	"x[N,3,4] | r = Reshape(x, #-1/4); m = MatMul(r, w[4,2]); y = Reshape(m, #-1/3/2)",
	"x[N,3,4] | t = Transpose{perm=1,0,2}(x); r = Reshape(t, #-1/4); y = Reshape(r, #-1/3/4)",
	"x[N,3,4] | s = Shape(x); n = Gather(s, @0); u = Unsqueeze(n, #0); c = Concat{axis=0}(u, #12); y = "
	"Reshape(x, c)",
	"x[2N,3] | y = Reshape(x, #-1/2/3)",
	"x[N,3] | s = Shape{start=0 end=1}(x); e = ConstantOfShape(s); y = Add(x, %1.5)",
};

static const char *const sequences[] = {
	"x[N,4] | s = SequenceConstruct(x, x); y = SequenceAt(s, @0)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); y = SequenceAt(s, @1)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); y = SequenceAt(s, @2)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); y = SequenceAt(s, @3)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); y = SequenceAt(s, @-1)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); y = SequenceAt(s, @-3)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); y = SequenceAt(s, @-4)",
	"x[N,4] | s = SequenceConstruct(x); y = SequenceAt(s)",
	"p[]:i64 x[N,4] | s = SequenceConstruct(x); y = SequenceAt(s, p)",
	"x[N,4] p[]:i64 | s = SequenceConstruct(x); y = SequenceAt(s, p)",
	"x[N,4] | y = SequenceAt(x, @0)",
	"x[N,4] | s = SequenceConstruct(x); q = SequenceConstruct(x, s); y = SequenceAt(q, @0)",
	"x[N,4] | s = SequenceConstruct(x, -); y = SequenceAt(s, @0)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x); q = SequenceInsert(s, a); y = SequenceAt(q, @1)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x); q = SequenceInsert(s, a, @0); y = SequenceAt(q, @0)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x); q = SequenceInsert(s, a, @0); y = SequenceAt(q, @1)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, x); q = SequenceInsert(s, a, @-1); y = SequenceAt(q, "
	"@1)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, x); q = SequenceInsert(s, a, @-2); y = SequenceAt(q, "
	"@0)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, x); q = SequenceInsert(s, a, @2); y = SequenceAt(q, "
	"@2)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, x); q = SequenceInsert(s, a, @3); y = SequenceAt(q, "
	"@2)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, x); q = SequenceInsert(s, a, @-3); y = SequenceAt(q, "
	"@2)",
	"x[N,4] | s = SequenceConstruct(x, x); q = SequenceInsert(s, s); y = SequenceAt(q, @2)",
	"x[N,4] | s = SequenceConstruct(x, x); q = SequenceInsert(s, -); y = SequenceAt(q, @2)",
	"x[N,4] | e = SequenceEmpty(); s = SequenceInsert(e, x); y = SequenceAt(s, @0)",
	"x[N,4] | e = SequenceEmpty(); y = SequenceAt(e, @0)",
	"x[N,4] | e = SequenceEmpty(); s = SequenceErase(e); y = SequenceAt(s, @0)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); q = SequenceErase(s); y = "
	"ConcatFromSequence{axis=1}(q)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); q = SequenceErase(s, @0); y = "
	"ConcatFromSequence{axis=1}(q)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); q = SequenceErase(s, @1); y = "
	"ConcatFromSequence{axis=-1}(q)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); q = SequenceErase(s, @-3); y = "
	"ConcatFromSequence{axis=1}(q)",
	"x[N,4] | a = Relu(x); b = Tanh(x); s = SequenceConstruct(x, a, b); q = SequenceErase(s, @3); y = "
	"ConcatFromSequence{axis=1}(q)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, a); y = ConcatFromSequence{axis=1 new_axis=1}(s)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, a); y = ConcatFromSequence{axis=-1 new_axis=1}(s)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, a); y = ConcatFromSequence{axis=-2 new_axis=1}(s)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, a); y = ConcatFromSequence{axis=3 new_axis=1}(s)",
	"x[N,4] | a = Relu(x); s = SequenceConstruct(x, a); y = ConcatFromSequence(s)",
	"x[N,4] | e = SequenceEmpty(); y = ConcatFromSequence{axis=1}(e)",
	"x[N,4] | s = SequenceConstruct(x, x, x); n = SequenceLength(s); f = Cast{to=11}(n); y = Mul(x, f)",
	"x[N,4] | n = SequenceLength(x); f = Cast{to=11}(n); y = Mul(x, f)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, @2); a = SequenceAt(s, @1); y = Relu(a)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, @3); y = SequenceAt(s, @0)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, @3); y = SequenceAt(s, @1)",
	"x[N,4] | s = SplitToSequence{axis=-1}(x, @4); y = SequenceAt(s, @0)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, @5); y = SequenceAt(s, @0)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, @1); y = SequenceAt(s, @3)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, @0); y = SequenceAt(s, @0)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, @-1); y = SequenceAt(s, @0)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, #1/3); y = SequenceAt(s, @1)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, #1/0/3); y = SequenceAt(s, @2)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, #1/2); y = SequenceAt(s, @1)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, #1/4); y = SequenceAt(s, @1)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, #-1/5); y = SequenceAt(s, @1)",
	"x[N,4] | s = SplitToSequence{axis=1}(x, #5/-1); y = SequenceAt(s, @0)",
	"x[N,4] | s = SplitToSequence{axis=1}(x); y = SequenceAt(s, @2)",
	"x[N,4] | s = SplitToSequence{axis=1 keepdims=0}(x); y = SequenceAt(s, @2)",
	"x[N,4] | s = SplitToSequence{axis=1 keepdims=0}(x, @1); y = SequenceAt(s, @2)",
	"x[N,4] | s = SplitToSequence(x); y = SequenceAt(s, @0)",
	"x[N,4] | s = SplitToSequence{axis=2}(x); y = SequenceAt(s, @0)",
	"x[N,4] i[2]:i64 | s = SplitToSequence{axis=1}(x, i); y = SequenceAt(s, @0)",
	"x[N,4] i[]:i64 | s = SplitToSequence{axis=1}(x, i); y = SequenceAt(s, @0)",
	"x[N,4] | a,b = SequenceConstruct(x, x); y = SequenceAt(a, @0)",
	"x[N,4] | s = SequenceConstruct(x, x); y = Relu(s)",
	"x[N,4] | y = SequenceConstruct(x, x)",
};

static void keep_values(const struct dlb_graph *g, const struct dlb_tensor *x)
{
	const struct dlb_desc d = dlb_tensor_desc(x, 1);

	for (int64_t i = 0; x->data && i < dlb_desc_count(&d) && i < 64; i++) {
		if (dlb_dtype_is_int(x->dtype))
			kept_add((const int[]){ (int)dlb_value_int(x->data, x->dtype, i) }, 1);
		else
			kept_real(dlb_value_real(x->data, x->dtype, i));
		if (x->data_mul)
			kept_add((const int[]){ (int)x->data_mul[i] }, 1);
	}
	kept_add((const int[]){ g->n_ops }, 1);
}

static void keep_graph(const struct dlb_graph *g)
{
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];

		kept_text(o->name);
		kept_text(o->type);
		kept_add(o->in, o->n_in);
		kept_add(o->out, o->n_out);
		for (int k = 0; k < o->n_attr; k++) {
			kept_text(o->attr[k].name);
			kept_add((const int[]){ (int)o->attr[k].i, o->attr[k].n }, 2);
		}
	}
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];

		kept_text(x->name);
		kept_add((const int[]){ x->kind, x->dtype, x->n_dims, x->producer }, 4);
		for (int k = 0; k < x->n_dims; k++)
			kept_add((const int[]){ (int)x->dim[k].mul, (int)x->dim[k].add }, 2);
		keep_values(g, x);
	}
	for (int i = 0; i < g->n_notes; i++)
		kept_text(g->note[i]);
}

/* The outputs of the graph at its exported batch are those of the graph as it was. */
static void same_values(const char *text, const struct dlb_graph *g, int64_t n)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph was;
	struct test_run a, b;

	text_graph(&was, text, 17, seed);
	if (dlb_graph_fold(&was, -1, &be, &err))
		test_die(&err);
	test_run_init(&a, g, &be, n);
	test_run_init(&b, &was, &be, 1);
	test_fill_inputs(&a, seed);
	test_fill_inputs(&b, seed);
	test_run_phase(&a, DLB_FORWARD);
	test_run_phase(&b, DLB_FORWARD);
	for (int i = 0; i < g->n_outputs; i++) {
		const struct dlb_desc d = dlb_tensor_desc(&g->tensor[g->output[i]], n),
				      e = dlb_tensor_desc(&was.tensor[was.output[i]], 1);

		assert(dlb_desc_same_shape(&d, &e));
		for (int64_t k = 0; k < dlb_desc_count(&d); k++, n_compared++)
			assert(fabs(((double *)a.value[g->output[i]])[k] -
				    ((double *)b.value[was.output[i]])[k]) < 1e-12);
	}
	test_run_release(&a);
	test_run_release(&b);
	dlb_graph_release(&was);
}

/* The size of the batch in the text, if it is a number. */
static int64_t exported_batch(const char *text) { return strtoll(strchr(text, '[') + 1, NULL, 10); }

static void keep(const char *text, int64_t batch, bool compare)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	char name[60], dims[200] = "";
	int n = 0;

	snprintf(name, sizeof name, "%lld %.50s", (long long)batch, strchr(text, '|') + 2);
	kept_text(text);
	text_graph(&g, text, 17, seed);
	if (dlb_graph_fold(&g, batch, &be, &err)) {
		kept_text(err.where);
		kept_text(err.hint);
		kept_line(name, "%s", err.what);
		dlb_graph_release(&g);
		return;
	}
	keep_graph(&g);
	for (int i = 0; i < g.n_outputs; i++)
		for (int k = 0; k < g.tensor[g.output[i]].n_dims; k++) {
			const struct dlb_dim d = g.tensor[g.output[i]].dim[k];
			n += snprintf(dims + n, sizeof dims - (size_t)n, " %lldN+%lld", (long long)d.mul,
				      (long long)d.add);
		}
	kept_line(name, "%d ops, %s %lld%s", g.n_ops, g.fixed_batch ? "fixed" : "N", (long long)g.batch,
		  dims);
	if (compare && exported_batch(text)) {
		same_values(text, &g, g.fixed_batch ? g.batch : exported_batch(text));
		if (!g.fixed_batch) /* a reason is kept where samples are mixed */
			kept_line(name, "agree %d %s", dlb_samples_agree(&g, &be, &err), err.what);
	}
	dlb_graph_release(&g);
}

int main(int argc, char **argv)
{
	test_backend(&be);
	for (int i = 0; i < DLB_LEN(fixed); i++) {
		keep(fixed[i], 0, true);
		keep(fixed[i], 6, false);
	}
	for (int i = 0; i < DLB_LEN(sequences); i++)
		keep(sequences[i], 5, false);
	be.ops->close(&be);
	printf("%d numbers compared\n", n_compared);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
