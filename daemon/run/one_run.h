/* one_run.h: the state of one `seqd run`, and of the programs that it starts. Only files of
 * daemon/run include it. */
#ifndef SEQD_DAEMON_RUN_ONE_RUN_H
#define SEQD_DAEMON_RUN_ONE_RUN_H

#include <stdbool.h>
#include <stdio.h>
#include "api/core/file.h"
#include "daemon/run/children.h"
#include "daemon/run/run_options.h"

enum { SEQD, AGENTS, WAITING, ASKING }; /* children */
enum {
    LOOK_MS = 100,
    STOP_MS = 20000,
    SPEC_SIZE = 1 << 20,
    CTL_WORDS = 16, /* arguments of seqctl, including its path and the last NULL */
};
/* exit codes, which are equal to those of seqctl */
enum { FAILED = 1, USAGE = 2, ENDS_FAILED = 10, ENDS_CANCELLED = 11 };

struct one_run {
    struct run_options o;
    struct children c;
    char bin[FILE_PATH_SIZE]; /* directory of this program, which also has seqw and seqctl */
    char dir[64];             /* directory of sockets and, without --state, of all files */
    /* state directory of the job; it has seqd, nodes/nodeN, spec and logs */
    char state[FILE_PATH_SIZE];
    char key[FILE_PATH_SIZE]; /* file of the run's key, with --join-key (key.c) */
    char url[96];             /* address of seqd, for seqctl */
    /* address that nodes dial; with nodes that srun starts, only its port */
    char nodes[128];
    char id[24]; /* id of the job */
    /* pipe to the nodes that srun starts, which stop when the pipe is closed; -1 if there is no
     * pipe */
    int ear;
    bool keep; /* the directory `dir` is not removed, because its files could not be copied */
};

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- programs.c ------------------------------------------------------------------------------ */

/* Starts a child whose output is written to the log NAME.log of the state directory. `in` is the
 * child's stdin, or -1. */
int run_start_logged(struct one_run *r, int which, int ends, const char *name, char *const argv[],
                     int in, struct err *e);
/* Prints the end of a program's log, because without --state the log is removed when this process
 * ends. */
void run_say_log(const struct one_run *r, const char *name);
/* Fills in the arguments of seqctl, which are its path, --url and the given words. `words` ends
 * with NULL. */
void run_ctl_words(struct one_run *r, char program[FILE_PATH_SIZE], char *argv[CTL_WORDS],
                   const char *const *words);
/* Runs a program to its end. *answer is a file with the program's output, positioned at the
 * beginning of the file. The caller closes it. If no file can be made, *answer is NULL. Returns
 * the program's exit code. */
int run_program(struct one_run *r, char *const argv[], FILE **answer);
/* Runs a program, and reads the program's output into out, NUL-terminated. Returns its exit
 * code. */
int run_ask_program(struct one_run *r, char *out, size_t size, char *const argv[]);
/* Runs seqctl and reads its answer as run_ask_program does. */
int run_ask(struct one_run *r, char *out, size_t size, const char *const *words);
/* Runs seqctl, and writes the output of seqctl to the file `path`. If `path` is NULL, writes the
 * output to this process's stderr. Returns the exit code of seqctl. */
int run_tell(struct one_run *r, const char *path, const char *const *words);

/* ---- rank.c ---------------------------------------------------------------------------------- */

/* Finds the address of rank 0 in r->nodes. Ranks other than 0 wait until it answers. Returns 0 also
 * if this process has received a signal. Fails with ERR_IO after the time of --wait. */
int run_find_master(struct one_run *r, struct err *e);
/* Runs the agent of a rank other than 0 to its end. Returns the exit code, or -1 with *e. */
int run_rank(struct one_run *r, struct err *e);

/* ---- key.c ----------------------------------------------------------------------------------- */

/* Derives the run's key from --join-key, --nodes and SPEC, and writes it to the file r->key. */
int run_make_key(struct one_run *r, struct err *e);

/* ---- cluster.c ------------------------------------------------------------------------------- */

/* Starts seqd. If a different program takes the port before seqd listens, tries a new port.
 * Returns 0 also if this process has received a signal. */
int run_start_seqd(struct one_run *r, struct err *e);
/* Starts an agent on this machine. If this process starts the agents of several nodes, starts them
 * by srun. */
int run_start_nodes(struct one_run *r, struct err *e);
/* Adds the options that all agents have to the `n` arguments in argv, and the final NULL. */
void run_agent_words(const struct one_run *r, char **argv, int n);
/* Counts the nodes that are up. Returns -1 if they cannot be listed. */
int64_t run_nodes_up(struct one_run *r);
/* Waits until all nodes are up or a signal comes. Fails with ERR_TIMEOUT after the time of
 * --wait. */
int run_wait_nodes(struct one_run *r, struct err *e);

#endif
