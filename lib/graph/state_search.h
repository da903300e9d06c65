/* Declarations shared by the searches for initializers in a state_dict (private to state_dict.c and
 * state_search.c). */
#ifndef DLB_GRAPH_STATE_SEARCH_H
#define DLB_GRAPH_STATE_SEARCH_H
#include "graph/derived.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"
#include "graph/role.h"

enum { LEAST_ROWS = 8 };	/* elements: fewer may match an entry by chance */
enum { LEAST_TIED = 16 };
enum { LEAST_FUNCTION = 4 };	/* other functions of so many numbers do not agree by chance */

struct dict_entry {
	const struct dlb_named *e;
	const float *v;			/* NULL: not searched by value */
	int64_t count;
	uint64_t print;			/* sum of hashes */
	uint64_t *prefix[DLB_MAX_DIMS];	/* [axis] for each index, the sum of hashes before it; made on first
					 * use */
	int axis;			/* its first dimension with more than one element */
	bool uniform;
	int tensor;			/* in the graph, -1: not found yet */
	int next;			/* entry of the same hash, or -1 */
};
struct target {
	int t;
	const float *v;
	int64_t count, dim[DLB_MAX_DIMS], base[DLB_MAX_DIMS];
	int n_dims, axis, first_reader;
	bool uniform;
};
struct dict_matching {
	struct dlb_graph *g;
	struct dlb_arena a;
	struct dlb_roles roles;
	struct dlb_name_map names;		/* of entries */
	struct dict_entry *entry;
	int n_entries, *bucket, n_buckets;
	bool untie, folded_norms;
	bool parted;				/* an entry is a separate weight only because of `untie` */
	bool own;				/* the entries are initializers of the graph, among which
						 * equal weights are searched */
	int n_changed;				/* initializers whose values the exporter changed */
	int n_indexed;				/* tensors of the graph as read, whose readers are indexed */
	struct dlb_part part[256];		/* of the current target */
	int source[256], n_parts;		/* entry of each part */
	enum dlb_derived_function function;	/* of the current target */
	int64_t n_index, *index;		/* NULL: it is no lookup */
};

/* Are all n elements equal, bit for bit? */
bool dlb_state_is_uniform(const float *v, int64_t n);
/* The n elements in f32: data itself, or a copy in the arena. */
const float *dlb_state_as_f32(struct dlb_arena *a, const void *data, enum dlb_dtype dtype, int64_t n);
/* Is `name` a parameter of the exporter's list? True without a list. */
bool dlb_state_is_listed_parameter(const struct dlb_graph *g, const char *name);
/* The bucket of entries with this sum of hashes and this count. */
int dlb_state_bucket_of(const struct dict_matching *m, uint64_t print, int64_t count);
/* Sets the n entries, which are borrowed. */
void dlb_state_take_entries(struct dict_matching *m, const struct dlb_named *e, int n);
/* The graph's tensor for entry i; a new one if there is none yet. */
int dlb_state_tensor_of(struct dict_matching *m, int i);
/* Do Gathers alone read tensor t? */
bool dlb_state_is_table(const struct dlb_graph *g, int t);
/* An embedding and an equal operand of a product are one weight in all frameworks;
 * clones of a layer are not. */
bool dlb_state_is_tied(const struct dict_matching *m, const struct dict_entry *e, int t);
/* Does the list have running statistics of a BatchNormalization that is not in the model? Then it was folded
 * into a convolution, whose weight has kept its name but not its values. */
bool dlb_state_has_folded_norms(const struct dlb_graph *g);
/* Gives initializer t the data and type of the entry of its name. */
bool dlb_state_by_name(struct dict_matching *m, int t);
/* The searches. True: m->part and m->source describe how x consists of entries, m->index their rows,
 * m->function the function. */
bool dlb_state_by_whole(struct dict_matching *m, struct target *x);
bool dlb_state_by_joined(struct dict_matching *m, struct target *x);
bool dlb_state_by_rows(struct dict_matching *m, struct target *x);
/* Whole vectors of the target, in any order and number, are rows of an entry. */
bool dlb_state_by_lookup(struct dict_matching *m, struct target *x);
/* The target is a function of an entry that was not found otherwise, element by element. Entries with few or
 * with equal elements are weak evidence: for them, the exporter must state that a reader uses the
 * parameter. */
bool dlb_state_by_function(struct dict_matching *m, struct target *x);
#endif
