/* Values that no placement under the port model can go below. */
#include <math.h>
#include <stdlib.h>
#include "place/port.h"

static double least_s(const double *row, int n)
{
	double least = INFINITY;
	for (int d = 0; d < n; d++)
		least = row[d] < least ? row[d] : least;
	return isfinite(least) ? least : 0;
}

/* The longest chain with every op where it is fastest. */
static double chain_bound(const struct dlb_port *port)
{
	double *end = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *end), most = 0;
	for (int v = 0; v < port->n_ops; v++) {
		for (int k = port->pred_start[v]; k < port->pred_start[v + 1]; k++)
			end[v] = end[port->pred[k]] > end[v] ? end[port->pred[k]] : end[v];
		end[v] += least_s(&port->op_s[(size_t)v * (size_t)port->n_nodes], port->n_nodes);
		most = end[v] > most ? end[v] : most;
	}
	free(end);
	return most;
}

double dlb_port_bound_s(const struct dlb_port *port, bool latency)
{
	if (latency)
		return chain_bound(port) * (1 - 1e-9);
	return dlb_load_bound_s(port->work_s, port->n, port->n_nodes) * (1 - 1e-9);
}
