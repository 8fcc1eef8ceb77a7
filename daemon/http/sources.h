/* sources.h: asks nodes for the files of a job's data before the job is planned, so that a path
 * without a file is refused at once. */
#ifndef SEQD_DAEMON_HTTP_SOURCES_H
#define SEQD_DAEMON_HTTP_SOURCES_H

#include "api/core/job.h"
#include "daemon/access/names.h"
#include "daemon/loop/control.h"

#define SOURCES_MS    2000 /* time for all nodes together; after it the job is taken unchecked */
#define SOURCES_FOUND 2048 /* slots for lists of files that a node has: a batch has up to 1,000 */
#define SOURCES_FIELD 64   /* room for a file beside its path: field, format, two colons, NUL */

/* A struct of 86 KiB, zeroed at first, that serves one spec after the other. */
struct sources {
    struct control *control;
    const struct names_grants *grants; /* grants of the spec */
    void (*done)(void *arg,
                 const struct err *e); /* e: the field and the sentence; NULL: continue */
    void *arg;
    /* while nodes are asked */
    char text[SPEC_TEXT_SIZE + WIRE_FILES * SOURCES_FIELD];
    const char *file[WIRE_FILES]; /* into text */
    int n;
    uint64_t digest; /* digest of the files */
    int64_t begun_ms;
    char node[NODE_NAME]; /* node asked last; "": none */
    bool refused;
    struct err why; /* the last refusal */
    /* results of the specs before */
    uint64_t found[SOURCES_FOUND]; /* digests of found lists; a later one replaces an older one */
    bool unsure;                   /* a node could not say: no node is asked for later specs */
};

/* Asks the nodes that are up one after the other, in the order of their names, until one has every
 * file. The job is refused if every node that looked lacks a file. A node that cannot run seqrank
 * runs no job either, and is skipped. A node that is silent, went away or speaks an older version
 * may have the files: the job is not refused. done is called once, on the loop's thread, perhaps
 * at once. tested: tests/daemon/test_seqd_sources.c */
void sources_find(struct sources *s, const struct job_spec *spec);

#endif
