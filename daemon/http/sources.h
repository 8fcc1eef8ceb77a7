/* sources.h: asks nodes for the files of a job's data before the job is planned, so that a path at
 * which no node has a file is refused at once. */
#ifndef SEQD_DAEMON_HTTP_SOURCES_H
#define SEQD_DAEMON_HTTP_SOURCES_H

#include "api/core/job.h"
#include "daemon/access/names.h"
#include "daemon/loop/control.h"

/* time for all nodes together, after which the job is accepted unchecked */
#define SOURCES_MS 2000
/* slots for lists of files that a node was found to have; a batch has up to 1,000 */
#define SOURCES_FOUND 2048
#define SOURCES_FIELD 64 /* bytes beside a file's path: field, format, two colons, NUL */

/* A struct of 86 KiB, zeroed at first, that serves one spec after the other. */
struct sources {
    struct control *control;
    const struct names_grants *grants; /* grants of the spec */
    void (*done)(void *arg,
                 const struct err *e); /* e names the field; it is NULL if the job may continue */
    void *arg;
    /* while nodes are asked */
    char text[SPEC_TEXT_SIZE + WIRE_FILES * SOURCES_FIELD];
    const char *file[WIRE_FILES]; /* into text */
    int n;
    uint64_t digest; /* digest of the files */
    int64_t begun_ms;
    char node[NODE_NAME]; /* the node that was asked last, or "" if none was */
    bool refused;
    struct err why; /* the last refusal */
    /* Results of the earlier specs. */
    /* digests of the lists that were found; a later one may replace an older one */
    uint64_t found[SOURCES_FOUND];
    bool unsure; /* a node could not answer, so no node is asked about later specs */
};

/* Asks the nodes that are up, one after the other in the order of their names, until a node has
 * every file. The job is refused if every node that was asked lacks a file. A node that cannot run
 * seqrank cannot run a job either, so it is skipped. A node that is silent, went away or speaks an
 * older version may have the files, so the job is not refused in that case. done is called once,
 * on the loop's thread, perhaps inside the call.
 * tested: tests/daemon/test_seqd_sources.c */
void sources_find(struct sources *s, const struct job_spec *spec);

#endif
