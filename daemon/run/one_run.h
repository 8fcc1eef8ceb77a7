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
    CTL_WORDS = 16, /* arguments of seqctl, including its path and the last NULL */
};
enum { FAILED = 1, USAGE = 2, ENDS_FAILED = 10, ENDS_CANCELLED = 11 }; /* exit codes, as seqctl's */

struct one_run {
    struct run_options o;
    struct children c;
    char bin[FILE_PATH_SIZE]; /* directory of seqw and seqctl, which is that of this program */
    char dir[64];             /* directory of sockets and, without --state, of all files */
    /* state directory of the job, with seqd, nodes/nodeN, spec, logs */
    char state[FILE_PATH_SIZE];
    char url[96];    /* address of seqd, for seqctl */
    char nodes[128]; /* address that nodes dial; for several nodes, the port */
    char id[24];     /* id of the job */
    /* pipe to srun's nodes, which stop when it closes; -1 if there is none */
    int ear;
    bool keep; /* dir is not removed, because its files could not be copied */
};

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- programs.c ------------------------------------------------------------------------------ */

/* Starts a child whose output is written to the log NAME.log of the state directory. in is its
 * stdin, or -1. */
int run_start_logged(struct one_run *r, int which, int ends, const char *name, char *const argv[],
                     int in, struct err *e);
/* Prints the end of a program's log, because without --state the log is removed when this process
 * ends. */
void run_say_log(const struct one_run *r, const char *name);
/* Fills in the arguments of seqctl, which are its path, --url, and the given words, the last of
 * which is NULL. */
void run_ctl_words(struct one_run *r, char program[FILE_PATH_SIZE], char *argv[CTL_WORDS],
                   const char *const *words);
/* Runs a program to its end. *answer is a file with the program's output, positioned at its
 * beginning, which the caller closes. *answer is NULL if no file can be made. Returns the
 * program's exit code. */
int run_program(struct one_run *r, char *const argv[], FILE **answer);
/* Runs a program, and reads its answer into out, NUL-terminated. Returns its exit code. */
int run_ask_program(struct one_run *r, char *out, size_t size, char *const argv[]);
/* Runs seqctl and reads its answer as run_ask_program does. */
int run_ask(struct one_run *r, char *out, size_t size, const char *const *words);
/* Runs seqctl. Its answer is written to the file path, or to our stderr if path is NULL. Returns
 * its exit code. */
int run_tell(struct one_run *r, const char *path, const char *const *words);

/* ---- cluster.c ------------------------------------------------------------------------------- */

/* Starts seqd. If another program takes the port before seqd listens, tries another port. Returns
 * 0 also if a signal came. */
int run_start_seqd(struct one_run *r, struct err *e);
/* Starts the agents: one on this machine, or by srun one on each node. */
int run_start_nodes(struct one_run *r, struct err *e);
/* Waits until all nodes are up or a signal comes. Fails with ERR_TIMEOUT after --wait. */
int run_wait_nodes(struct one_run *r, struct err *e);

#endif
