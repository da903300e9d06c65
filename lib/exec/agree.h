/* Compares a batch with its samples one by one.
 *
 * The loss of a step is the mean over its micro-batches, whatever their number. That holds only if no sample
 * changes the results of another. A wrongly guessed batch dimension, or a model that mixes samples, breaks
 * this assumption silently. So the forward ops are run as for inference (no dropout, normalisation by running
 * statistics) on two random samples together and on each sample alone, and their outputs are compared op by
 * op. */
#ifndef DLB_EXEC_AGREE_H
#define DLB_EXEC_AGREE_H
#include "graph/graph.h"
#include "tensor/backend.h"

/* 0: outputs and loss agree within rounding, or they cannot be compared (random ops, statistics over the
 * batch, no memory, an op without a kernel). -1: they differ, or the graph cannot run one sample or two; err
 * names the first op whose output differs. Weights without data get random values. The cost is four forward
 * passes of one sample; activations are kept until their last reader has run. */
int dlb_samples_agree(const struct dlb_graph *g, struct dlb_backend *be, struct dlb_error *err);
#endif
