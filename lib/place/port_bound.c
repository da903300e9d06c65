/* Values that no placement under the port model can go below. */
#include <math.h>
#include <stdlib.h>
#include "place/port.h"

/* Work over speed, by prices (weak duality of the fractional assignment; see bound.c): transfers are free. */
static double load_bound(const struct dlb_port *port)
{
	size_t D = (size_t)port->n_nodes;
	double *y = dlb_xcalloc(D, sizeof *y), *load = dlb_xcalloc(D, sizeof *load), best = 0;
	for (size_t d = 0; d < D; d++) {
		double s = 0;
		for (size_t g = 0; g < (size_t)port->n; g++)
			s += isfinite(port->work_s[g * D + d]) ? port->work_s[g * D + d] : 0;
		y[d] = s > 0 ? 1 / s : 0;
	}
	for (int round = 0; round < 60; round++) {
		double sum = 0, bound = 0, most = 0;
		for (size_t d = 0; d < D; d++) {
			sum += y[d];
			load[d] = 0;
		}
		if (!(sum > 0))
			break;
		for (size_t d = 0; d < D; d++)
			y[d] /= sum;
		for (size_t g = 0; g < (size_t)port->n; g++) {
			double least = INFINITY;
			size_t at = D;
			for (size_t d = 0; d < D; d++) {
				double t = port->work_s[g * D + d];
				if (isfinite(t) && y[d] * t < least) {
					least = y[d] * t;
					at = d;
				}
			}
			if (at < D) {
				bound += least;
				load[at] += port->work_s[g * D + at];
			}
		}
		best = bound > best ? bound : best;
		for (size_t d = 0; d < D; d++)
			most = load[d] > most ? load[d] : most;
		for (size_t d = 0; d < D && most > 0; d++)
			y[d] *= exp(0.5 / (1 + round) * (load[d] / most - 0.5));
	}
	free(y);
	free(load);
	return best;
}

static double least_s(const double *row, int n)
{
	double least = INFINITY;
	for (int d = 0; d < n; d++)
		least = row[d] < least ? row[d] : least;
	return isfinite(least) ? least : 0;
}

static double class_bound(const struct dlb_port *port)
{
	double most = 0;
	for (int g = 0; g < port->n; g++) {
		double s = least_s(&port->work_s[(size_t)g * (size_t)port->n_nodes], port->n_nodes);
		most = s > most ? s : most;
	}
	return most;
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
	double load = load_bound(port), class = class_bound(port);
	return (load > class ? load : class) * (1 - 1e-9);
}
