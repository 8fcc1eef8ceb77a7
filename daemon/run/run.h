/* run.h: `seqd run SPEC`: a coordinator and its nodes for one job, in the foreground: on this
 * machine, or on all nodes of an allocation of Slurm. It starts the ordinary programs, ends with
 * the job's exit code and leaves nothing. tested: tests/scripts/run.sh, slurm.sh */
#ifndef SEQD_DAEMON_RUN_RUN_H
#define SEQD_DAEMON_RUN_RUN_H

/* The exit status when it was asked to stop while the state is kept: run again, it continues
 * (EX_TEMPFAIL). */
#define RUN_AGAIN 75
/* The signal by which its coordinator and its agent end. SIGTERM is not: a batch system sends it to
 * every process of an allocation, and then jobs save first. */
#define RUN_END SIGINT

/* argv[0] is "run". Returns the exit code. */
int run_main(int argc, char **argv);

#endif
