/* The table of optimizers, in the order of enum dlb_update_rule. Defaults are PyTorch's (torch.optim;
 * AdaBelief: its authors'); lr 0.01 and momentum 0.9 where PyTorch has none. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

#define COMMON [DLB_HYPER_MOMENTUM] = 0.9, [DLB_HYPER_ALPHA] = 0.99, [DLB_HYPER_BETA1] = 0.9, [DLB_HYPER_BETA2] = 0.999, [DLB_HYPER_EPS] = 1e-8

const struct dlb_optimizer dlb_optimizers[] = {
	[DLB_RULE_SGD] = {
		.name = "sgd", .summary = "gradient descent",
		.hyper = { [DLB_HYPER_LR] = 0.01, COMMON },
		.flop_per_element = 2, .bytes_per_element = 12,
	},
	[DLB_RULE_MOMENTUM] = {
		.name = "momentum", .summary = "gradient descent with momentum",
		.n_state = 1, .state_name = { "momentum" },
		.state_code = { DLB_CODE_SIGNED_8 },
		.hyper = { [DLB_HYPER_LR] = 0.01, COMMON },
		.flop_per_element = 4, .bytes_per_element = 20,
	},
	[DLB_RULE_NESTEROV] = {
		.name = "nesterov", .summary = "gradient descent with Nesterov's momentum",
		.n_state = 1, .state_name = { "momentum" },
		.state_code = { DLB_CODE_SIGNED_8 },
		.hyper = { [DLB_HYPER_LR] = 0.01, COMMON },
		.flop_per_element = 6, .bytes_per_element = 20,
	},
	[DLB_RULE_ADAGRAD] = {
		.name = "adagrad", .summary = "Adagrad (Duchi, Hazan, Singer, 2011)",
		.n_state = 1, .state_name = { "sum" },
		.hyper = { [DLB_HYPER_LR] = 0.01, [DLB_HYPER_EPS] = 1e-10 },
		.flop_per_element = 7, .bytes_per_element = 20,
	},
	[DLB_RULE_RMSPROP] = {
		.name = "rmsprop", .summary = "RMSprop (Tieleman, Hinton, 2012), neither centred nor with momentum",
		.n_state = 1, .state_name = { "square_avg" },
		.state_code = { DLB_CODE_UNSIGNED_8 },
		.hyper = { [DLB_HYPER_LR] = 0.01, COMMON },
		.flop_per_element = 9, .bytes_per_element = 20,
	},
	[DLB_RULE_ADAM] = {
		.name = "adam", .summary = "Adam (Kingma, Ba, 2015), decay added to the gradient",
		.n_state = 2, .state_name = { "exp_avg", "exp_avg_sq" },
		.state_code = { DLB_CODE_SIGNED_8, DLB_CODE_UNSIGNED_8 },
		.hyper = { [DLB_HYPER_LR] = 1e-3, COMMON },
		.flop_per_element = 13, .bytes_per_element = 28,
	},
	[DLB_RULE_ADAMW] = {
		.name = "adamw", .summary = "Adam with decoupled decay (Loshchilov, Hutter, 2019)",
		.n_state = 2, .state_name = { "exp_avg", "exp_avg_sq" },
		.state_code = { DLB_CODE_SIGNED_8, DLB_CODE_UNSIGNED_8 },
		.hyper = { [DLB_HYPER_LR] = 1e-3, COMMON, [DLB_HYPER_DECAY] = 0.01 },
		.flop_per_element = 14, .bytes_per_element = 28,
	},
	[DLB_RULE_ADABELIEF] = {
		.name = "adabelief", .summary = "AdaBelief (Zhuang et al., 2020), decoupled decay",
		.n_state = 2, .state_name = { "exp_avg", "exp_avg_var" },
		.state_code = { DLB_CODE_SIGNED_8, DLB_CODE_UNSIGNED_8 },
		.hyper = { [DLB_HYPER_LR] = 1e-3, [DLB_HYPER_MOMENTUM] = 0.9, [DLB_HYPER_BETA1] = 0.9, [DLB_HYPER_BETA2] = 0.999,
			   [DLB_HYPER_EPS] = 1e-16 },
		.flop_per_element = 16, .bytes_per_element = 28,
	},
	[DLB_RULE_MAX_ADABELIEF] = {
		.name = "max-adabelief", .summary = "AdaBelief with the largest second moment so far, decoupled decay",
		.n_state = 3, .state_name = { "exp_avg", "exp_avg_var", "max_exp_avg_var" }, .n_moments = 2,
		.hyper = { [DLB_HYPER_LR] = 1e-3, COMMON },
		.flop_per_element = 20, .bytes_per_element = 36,
	},
	[DLB_RULE_KFAC] = {
		.name = "kfac", .summary = "K-FAC (Martens, Grosse, 2015) where it knows the layer, sgd elsewhere",
		.hyper = { [DLB_HYPER_LR] = 0.01, [DLB_HYPER_DAMPING] = 1e-2, [DLB_HYPER_FACTOR_DECAY] = 0.95, [DLB_HYPER_INVERSE_EVERY] = 10,
			   [DLB_HYPER_KL_CLIP] = 1e-3 },
		/* without K-FAC's matrices (kfac.h) */
		.flop_per_element = 2, .bytes_per_element = 12,
	},
	[DLB_N_RULES] = { .name = NULL },
};

const struct dlb_hyper dlb_hypers[DLB_N_HYPER] = {
	[DLB_HYPER_LR] = { "lr", 0, HUGE_VAL, "lr", 1e38, "X", "learning rate" },
	[DLB_HYPER_MOMENTUM] = { "momentum", 0, 1, "momentum", 1, "X", "of momentum and nesterov" },
	[DLB_HYPER_ALPHA] = { "alpha", 0, 1, "alpha", 1, "X", "of rmsprop" },
	[DLB_HYPER_BETA1] = { "beta1", 0, 1 - 0x1p-53, "beta1", 1, "X", "of the adams and adabeliefs" },
	[DLB_HYPER_BETA2] = { "beta2", 0, 1 - 0x1p-53, "beta2", 1, "X", "of the adams and adabeliefs" },
	[DLB_HYPER_EPS] = { "eps", 0, HUGE_VAL, "eps", 1, "X", "keeps denominators from 0" },
	[DLB_HYPER_DECAY] = { "weight_decay", 0, HUGE_VAL, "weight-decay", 1e9, "X", "weight decay" },
	[DLB_HYPER_DAMPING] = { "damping", 0, HUGE_VAL, "damping", 1e38, "X",
				"of kfac: on the diagonal of its factors (default 0.01)" },
	[DLB_HYPER_FACTOR_DECAY] = { "factor_decay", 0, 1, "factor-decay", 1, "X",
				     "of kfac's factors' averages (default 0.95)" },
	[DLB_HYPER_INVERSE_EVERY] = { "inverse_every", 1, 1e9, "inverse-every", 1e9, "N",
				      "of kfac: steps from one inversion to the next (default 10)" },
	[DLB_HYPER_KL_CLIP] = { "kl_clip", 0, HUGE_VAL, "kl-clip", 1e38, "X",
				"of kfac: how far a step may go, 0: no limit (default 0.001)" },
};

const char *const dlb_optimizer_variants[DLB_N_VARIANTS + 1] = {
	[DLB_VARIANT_CORRECTED] = "corrected", [DLB_VARIANT_DENOM_CORRECTED] = "denom_corrected",
	[DLB_VARIANT_UNCORRECTED] = "uncorrected", [DLB_VARIANT_AMSGRAD] = "amsgrad",
};

bool dlb_optimizer_uses(int rule, int hyper)
{
	const bool adam = rule >= DLB_RULE_ADAM && rule <= DLB_RULE_MAX_ADABELIEF;

	switch (hyper) {
	case DLB_HYPER_LR:
	case DLB_HYPER_DECAY:
		return true;
	case DLB_HYPER_MOMENTUM:
		return rule == DLB_RULE_MOMENTUM || rule == DLB_RULE_NESTEROV;
	case DLB_HYPER_ALPHA:
		return rule == DLB_RULE_RMSPROP;
	case DLB_HYPER_EPS:
		return adam || rule == DLB_RULE_RMSPROP || rule == DLB_RULE_ADAGRAD;
	case DLB_HYPER_DAMPING:
	case DLB_HYPER_FACTOR_DECAY:
	case DLB_HYPER_INVERSE_EVERY:
	case DLB_HYPER_KL_CLIP:
		return rule == DLB_RULE_KFAC;
	default:
		return adam;
	}
}

int dlb_optimizer_find(const char *name)
{
	for (int i = 0; dlb_optimizers[i].name; i++)
		if (!strcmp(dlb_optimizers[i].name, name))
			return i;
	return -1;
}

enum dlb_state_code dlb_optimizer_code(int rule, enum dlb_state_dtype d, int k)
{
	return d == DLB_STATE_BF16 ? DLB_CODE_BF16 :
	       d == DLB_STATE_8BIT ? dlb_optimizers[rule].state_code[k] :
				     DLB_CODE_F32;
}

int dlb_optimizer_check_states(int rule, enum dlb_state_dtype d, struct dlb_error *err)
{
	const struct dlb_optimizer *o = &dlb_optimizers[rule];

	if (d == DLB_STATE_F32 || o->state_code[0] != DLB_CODE_F32)
		return 0;
	return dlb_refuse(err, "/plan/state_dtype", "take another --optimizer, or --state-dtype f32",
			  "the optimizer %s %s", o->name,
			  rule == DLB_RULE_KFAC ? "keeps matrices, which stay f32" :
			  o->n_state            ? "needs the low bits of its states: they only grow" :
						  "keeps no state that could be smaller");
}
