/* Finds options of sharing that have no effect in the plan. See plan.h. */
#include <string.h>
#include "optim/optim.h"
#include "plan/by_class.h"
#include "plan/plan.h"
#include "plan/sharing.h"
#include "util/cli.h"

static const char *const options[] = { "allreduce",    "compress",        "reduce",         "max-state",
				       "sync",         "async-allreduce", "sync-batchnorm", "gossip",
				       "param-server", "sync-every",      "shards",         "exchange-data",
				       "feed",         "zero" };

static bool has_state(const char *optimizer)
{
	const int rule = dlb_optimizer_find(optimizer);

	return rule < 0 || dlb_optimizers[rule].n_state > 0;
}

void dlb_sharing_unused(const struct dlb_sharing *s, int n_replicas, const char *optimizer, bool statistics,
			struct dlb_unused *row)
{
	const bool kfac = optimizer && !strcmp(optimizer, "kfac");
	bool whole = !strcmp(s->compress, DLB_COMPRESS_AUTO);
	int n = 0;

	for (int k = 0; k < DLB_N_COMPRESSED; k++)
		whole &= !s->compress_of[k][0] || !strcmp(s->compress_of[k], "none");
	for (int i = 0; i < DLB_LEN(options); i++)
		row[n++] = (struct dlb_unused){
			options[i], n_replicas < 2,
			"the plan has one replica, which shares nothing; dlb-place --replicas makes several"
		};
	if (n_replicas > 1) {
		row[n++] = (struct dlb_unused){
			"sync-batchnorm", !statistics,
			"no batch normalization of the model takes statistics of a batch"
		};
		row[n++] = (struct dlb_unused){ "allreduce", s->param_server >= 0,
						"a parameter server makes the mean, and nothing is summed" };
		row[n++] = (struct dlb_unused){ "compress",
						!strncmp(s->compress, "cholesky:per-hop", 16) && !kfac,
						"cholesky:per-hop is for the factors of --optimizer kfac" };
		row[n++] = (struct dlb_unused){
			"compress", whole,
			"on these links compressing costs more than it saves (dlb-view has the figures)"
		};
		row[n++] = (struct dlb_unused){ "zero", s->zero == 1 && optimizer && !has_state(optimizer),
						"the optimizer keeps no state that replicas could divide" };
		row[n++] = (struct dlb_unused){ "max-state", dlb_sharing_tensors(s) < 2,
						"it is for --reduce moments" };
	}
	row[n] = (struct dlb_unused){ .option = NULL };
}
