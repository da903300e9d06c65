/* The command dlb-profile, from its options to the document: profile_graph.c makes the graph of a model,
 * profile_devices.c opens devices and measures, profile_cluster.c measures the machine, profile_command.c
 * joins them. */
#ifndef DLB_EXEC_PROFILE_COMMAND_H
#define DLB_EXEC_PROFILE_COMMAND_H
#include "comm/comm.h"
#include "cost/profile.h"
#include "graph/graph.h"
#include "model/weights.h"
#include "util/cli.h"

enum { DLB_PROFILE_DEVICES = 16 };

struct dlb_profile_opened { struct dlb_backend be; const char *name; };
struct dlb_profile_options {
	int64_t batch;
	const char *dtype, *topology, *weights, *batchnorm, *hosts;
	struct dlb_strlist devices, no_rewrite, padding_rows, loss, dropout, dims;
	struct dlb_strlist parameters, freeze, train_only, lora, memories;
	double lora_alpha;			/* 0: the rank */
	bool inference, analytic, cluster, check, list;
	bool untie, tf32, fast_math;
};
struct dlb_profile_command {
	const struct dlb_cli *cli;
	struct dlb_comm *comm;			/* NULL: not under mpirun */
	const struct dlb_profile_options *o;
	struct dlb_profile_opened device[DLB_PROFILE_DEVICES];
	int n_devices;
	struct dlb_arena arena;
	struct dlb_graph training, eval, *g;	/* g: the graph that is written; eval borrows from training */
	struct dlb_profile p;
	bool one_piece;				/* the model mixes samples: one micro-batch, as exported */
	struct dlb_safetensors state;		/* of --weights */
	int who;				/* the rank that failed */
	bool differs;				/* --check: the machine is not that of the document */
};

/* This rank; 0 without mpirun. */
static inline int dlb_profile_rank(const struct dlb_profile_command *w)
{
	return w->comm ? dlb_comm_rank(w->comm) : 0;
}

/* Refuses options that contradict each other, with one line: 0, or the exit status. Warns of options
 * without effect. */
int dlb_profile_check_options(const struct dlb_cli *cli, const struct dlb_profile_options *o);
void dlb_profile_warn_unused(const struct dlb_cli *cli, const struct dlb_profile_options *o);
/* Fill doc with the command's result. path: the operand; NULL: none. All ranks return the same: -1 with err
 * and w->who. */
int dlb_profile_model(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
		      struct dlb_error *err);
int dlb_profile_cluster(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
			struct dlb_error *err);
/* --cluster --hosts: starts this command with `argv` (without --hosts and the operand) on the hosts of the
 * file, and adds the hosts' addresses to the cluster that they measure. *status: the exit status of the
 * ranks, which have printed a line if it is not 0. */
int dlb_profile_hosts(struct dlb_profile_command *w, const char *const *argv, const char *path,
		      struct dlb_doc *doc, int *status, struct dlb_error *err);
int dlb_profile_check_machine(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
			      struct dlb_error *err);
void dlb_profile_close(struct dlb_profile_command *w, struct dlb_doc *doc);

/* Parts of the command. _open_devices: opens those of --device. _take_model: reads an ONNX model and rewrites
 * it by the options, including _switch_rewrites and _set_dims. _run: measures. _say: prints the lines of
 * -v. */
int dlb_profile_open_devices(struct dlb_profile_command *w, struct dlb_error *err);
int dlb_profile_take_model(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
			   struct dlb_error *err);
int dlb_profile_switch_rewrites(const struct dlb_profile_options *o, struct dlb_graph *g,
				struct dlb_error *err);
int dlb_profile_set_dims(const struct dlb_profile_options *o, struct dlb_graph *g, struct dlb_error *err);
int dlb_profile_run(struct dlb_profile_command *w, struct dlb_error *err);
void dlb_profile_say(const struct dlb_profile_command *w);
#endif
