/* run.h: `seqd run SPEC`, which runs a coordinator and its nodes for one job in the foreground, on
 * this machine, on all nodes of an allocation of Slurm, or as one of the processes that an engine
 * starts on each node (rank.c). It starts the ordinary programs, exits
 * with the job's exit code and leaves no process or file.
 * tested: tests/scripts/run.sh, ranks.sh, slurm.sh */
#ifndef SEQD_DAEMON_RUN_RUN_H
#define SEQD_DAEMON_RUN_RUN_H

/* The exit status (EX_TEMPFAIL) of a run that was asked to stop and has kept its state. Another
 * run can then continue the job. */
#define RUN_AGAIN 75
/* The signal that ends the coordinator and the agents of a run. It is not SIGTERM, because a batch
 * system sends SIGTERM to every process of an allocation, and jobs should save before their agents
 * end. */
#define RUN_END SIGINT

/* Runs `seqd run`; argv[0] is "run". Returns the exit code. */
int run_main(int argc, char **argv);

#endif
