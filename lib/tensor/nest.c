/* Canonical form of loop nests. */
#include "tensor/nest.h"

/* True if loop a is outside loop b: the first operand with different strides decides. */
static bool outer(const struct dlb_nest *n, int a, int b)
{
	for (int o = 0; o < n->n_operands; o++) {
		int64_t x = n->stride[o][a], y = n->stride[o][b];

		x = x < 0 ? -x : x;
		y = y < 0 ? -y : y;
		if (x != y && x && y)
			return x > y;
	}
	return a < b;
}

static void swap_loops(struct dlb_nest *n, int a, int b)
{
	int64_t t = n->dim[a];

	n->dim[a] = n->dim[b];
	n->dim[b] = t;
	for (int o = 0; o < n->n_operands; o++) {
		t = n->stride[o][a];
		n->stride[o][a] = n->stride[o][b];
		n->stride[o][b] = t;
	}
}

void dlb_nest_simplify(struct dlb_nest *n)
{
	int m = 0;

	for (int i = 0; i < n->n_dims; i++)		/* drops loops of length 1 */
		if (n->dim[i] != 1) {
			if (m != i)
				swap_loops(n, m, i);
			m++;
		}
	n->n_dims = m;
	for (int i = 1; i < m; i++)			/* insertion sort: outermost first */
		for (int j = i; j > 0 && outer(n, j, j - 1) && !outer(n, j - 1, j); j--)
			swap_loops(n, j, j - 1);
	m = 0;
	for (int i = 1; i < n->n_dims; i++) {		/* merges i into m where all strides continue */
		bool merges = true;

		for (int o = 0; o < n->n_operands; o++)
			merges = merges && n->stride[o][m] == n->stride[o][i] * n->dim[i];
		if (merges) {
			n->dim[m] *= n->dim[i];
			for (int o = 0; o < n->n_operands; o++)
				n->stride[o][m] = n->stride[o][i];
		} else {
			m++;
			if (m != i)
				swap_loops(n, m, i);
		}
	}
	if (n->n_dims)
		n->n_dims = m + 1;
}
