/* Does a batch give what its samples give one by one?
 *
 * The loss of a step is the mean over its micro-batches, whatever their number: that holds only where no sample has a
 * part in what the graph makes of another. A batch that was found in the wrong dimension, or a model that means to mix
 * samples, breaks it without a message. So the forward ops, as for use (no dropout, normalisations by running
 * statistics), are run on two random samples together and on each alone, vertex by vertex, and compared. */
#ifndef DLB_EXEC_AGREE_H
#define DLB_EXEC_AGREE_H
#include "graph/graph.h"
#include "tensor/backend.h"

/* 0: the outputs and the loss agree within rounding, or it cannot be told (random ops, statistics over the batch, no memory,
 * a vertex without a kernel). -1: they do not, or the graph is no graph for one sample
 * or two; err names the first vertex whose output differs. Weights without data are
 * drawn. Costs four forward passes of one sample, and the memory of their activations while they are read. */
int dlb_samples_agree(const struct dlb_graph *g, struct dlb_backend *be, struct dlb_error *err);
#endif
