/* sources.h: asks nodes for the files of a job's data, and for memory.offload_dir, before the job
 * is planned. If no node has a file at a path, the job is refused immediately. */
#ifndef SEQD_DAEMON_HTTP_SOURCES_H
#define SEQD_DAEMON_HTTP_SOURCES_H

#include "api/core/job.h"
#include "daemon/access/names.h"
#include "daemon/loop/control.h"

/* time for all nodes together; after this time the job is accepted unchecked */
#define SOURCES_MS 2000
/* number of remembered lists of files that some node has; a batch has up to 1,000 lists */
#define SOURCES_FOUND 2048
#define SOURCES_FIELD 64 /* bytes beside the path: field, format, two colons, NUL */

/* The state of one search, of 86 KiB, zeroed at first. It can be used for one spec after the
 * other. */
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
    char node[NODE_NAME]; /* the node that was asked last; "" if no node has been asked */
    bool refused;
    struct err why; /* the last refusal */
    /* Results of the earlier specs. */
    /* digests of lists of files that some node has; a later digest may replace an older one */
    uint64_t found[SOURCES_FOUND];
    bool unsure; /* a node could not answer, so no node is asked about later specs */
};

/* Asks the nodes that are up, one after the other in the order of their names, until a node has
 * every file. If every node that was asked lacks a file, the job is refused. A node that cannot
 * run seqrank is skipped, because it cannot run a job either. A node that is silent, has
 * disconnected or speaks an older version may have the files. If there is a node in one of these
 * states, the job is not refused. done is called once, on the loop's thread, perhaps inside the
 * call. tested: tests/daemon/test_seqd_sources.c */
void sources_find(struct sources *s, const struct job_spec *spec);

#endif
