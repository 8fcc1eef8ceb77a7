/* run.h: `seqd run SPEC`: a coordinator and its nodes for one job, in the foreground: on this
 * machine, or on all nodes of an allocation of Slurm. It starts the ordinary programs, ends with
 * the job's exit code and leaves nothing. tested: tests/scripts/run.sh, slurm.sh */
#ifndef SEQD_DAEMON_RUN_RUN_H
#define SEQD_DAEMON_RUN_RUN_H

/* The exit status after a request to stop, if the state is kept: another run continues the job
 * (EX_TEMPFAIL). */
#define RUN_AGAIN 75
/* The signal that ends the coordinator and the agents of a run. It is not SIGTERM: a batch system
 * sends that to every process of an allocation, and jobs then save first. */
#define RUN_END SIGINT

/* Runs `seqd run`; argv[0] is "run". Returns the exit code. */
int run_main(int argc, char **argv);

#endif
