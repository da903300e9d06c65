/* dlb-run: plan + data -> trained weights + report. This file finds out how the process was started;
 * lib/exec/run_options.h has the options, and lib/exec/command.h does the rest. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "balance/freeze.h"
#include "balance/live.h"
#include "balance/release.h"
#include "balance/replan_memory.h"
#include "balance/scenario.h"
#include "balance/survive.h"
#include "exec/command.h"
#include "exec/host_probe.h"
#include "exec/launch.h"
#include "exec/run_options.h"

static volatile sig_atomic_t told_to_stop, told_to_pause;

static void on_signal(int sig)
{
	if (sig == SIGUSR2)
		told_to_pause++;
	else
		told_to_stop++;
}

/* worker: a parent has started this rank, and may tell it to stop at the next checkpoint. */
static void catch_signals(bool worker)
{
	const int sigs[] = { SIGTERM, SIGINT, SIGUSR1, SIGUSR2 };
	struct sigaction a = { .sa_handler = on_signal };

	for (int i = 0; i < DLB_LEN(sigs) - !worker; i++)
		sigaction(sigs[i], &a, NULL);
}

static void warn(void *ctx, const char *line)
{
	dlb_cli_warn(ctx, "%s", line);
}

/* Removes the first arguments of a rank that dlb-run has started (only launch.c passes them) and stores their
 * values in c. */
static void take_worker(struct dlb_run_command *c)
{
	char **argv = c->argv;
	const bool remote = c->argc > 1 && !strcmp(argv[1], DLB_REMOTE_WORKER);

	if (c->argc < 5 || (!remote && strcmp(argv[1], DLB_WORKER)) ||
	    dlb_begin_parse(argv[3], &c->exec.begin))
		return;
	c->remote = remote;
	c->folder = argv[2];
	c->exec.copies = strcmp(argv[4], "-") ? argv[4] : NULL;
	argv[4] = argv[0];
	c->argc -= 4;
	c->argv += 4;
}

/* Runs as one of several ranks, or as the process that the user started; returns the exit status. */
static int run(struct dlb_run_command *c)
{
	const bool simulated = c->exec.dry_run || c->print_program;
	struct dlb_error err;
	int status;

	catch_signals(c->folder);
	if (c->folder || (!simulated && (dlb_launch_joined() || dlb_launch_check(0, &err))))
		status = dlb_command_rank(c);
	else
		status = dlb_command_plain(c);
	return c->folder || status ? status : dlb_cli_close_stdout(c->cli);
}

int main(int argc, char **argv)
{
	struct dlb_cli cli = { .tool = "dlb-run", .usage = "[OPTION...] [FILE]",
			       .summary = "train by a plan, and report times and losses", .max_operands = 1 };
	struct dlb_live live = { .is_read = false };
	struct dlb_run_command command = {
		.cli = &cli,
		.argc = argc,
		.argv = argv,
		.exec = { .stop = &told_to_stop, .pause = &told_to_pause, .warn = warn, .warn_ctx = &cli },
		.rebalance = dlb_live_round,
		.live = &live,
		.survive = dlb_survive,
		.release = dlb_release_idle,
		.freeze = dlb_freeze,
		.memory_cure = dlb_memory_cure,
		.play = dlb_scenario_run
	};
	struct dlb_run_text text = { .until = NULL };

	if (argc == 3 && !strcmp(argv[1], DLB_HOST_CLEAN)) {	/* only host_probe.c passes it */
		dlb_host_clean(argv[2]);
		return 0;
	}
	take_worker(&command);
	const int status = dlb_run_options_parse(&cli, &command, &text) ? cli.status : run(&command);
	dlb_live_release(&live);
	dlb_run_text_release(&text);
	free(command.drain.item);
	return status;
}
