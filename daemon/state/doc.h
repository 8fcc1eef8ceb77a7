/* doc.h: the JSON form of jobs, nodes and steps. The functions are pure and turn a struct into
 * text. A function with the parameter `size` returns the length, or -1 if `size` is too small. */
#ifndef SEQD_DAEMON_STATE_DOC_H
#define SEQD_DAEMON_STATE_DOC_H

#include "api/core/jwrite.h"
#include "api/core/rank.h"
#include "daemon/state/cordon.h"
#include "daemon/state/jobs.h"
#include "daemon/state/node.h"
#include "daemon/state/quarantine.h"

/* enough for 64 KiB of labels with every byte escaped */
#define DOC_JOB_SIZE  (6 * SPEC_TEXT_SIZE + 40960)
#define DOC_STEP_SIZE 8192
/* Sizes for a node and for each of its GPUs, with every byte of their texts escaped. */
#define DOC_PROFILE_SIZE 2048
#define DOC_NODE_SIZE    (1024 + DOC_PROFILE_SIZE + 6 * QUARANTINE_REASON + 6 * CORDON_REASON)
#define DOC_GPU_SIZE     2048

/* Writes a time such as "2026-11-21T12:00:00.123Z"; out holds at least 32 bytes. */
char *doc_time(int64_t at_ms, char *out);
/* Writes the member `key` with such a time, or with null if at_ms is 0. */
void doc_put_time(struct jwrite *w, const char *key, int64_t at_ms);

/* Writes the members of a job's JSON without braces, except for result, plan and
 * spec_effective. */
int64_t doc_job(const struct job *j, char *out, size_t size);
/* Tells whether text is one JSON object or array. Every document, plan, result and event that seqd
 * stores has this form. */
bool doc_is_json(const char *text);
/* Writes an error as the object that a job's JSON contains. */
int64_t doc_error(const struct err *e, char *out, size_t size);
/* Writes a job whose row cannot be read, in the form of doc_job. at_ms is the time at which this
 * was found, or 0. */
int64_t doc_unreadable(int64_t id, const struct err *e, int64_t at_ms, char *out, size_t size);
/* Returns the committed members of doc_job, in braces and malloc'd. The reason for which the job
 * waits comes from `live` instead, because only memory has the result of the last scheduling pass.
 * `live` is NULL if the job has ended. */
char *doc_shown(int64_t id, const char *doc, const struct job *live);
/* Finds the node of rank 0 in doc, the committed members of doc_job. Returns false if the job has
 * no node. */
bool doc_job_node(const char *doc, char out[NODE_NAME]);
/* Writes one optimizer step. */
int64_t doc_step(const struct rank_step *s, int64_t epoch, char *out, size_t size);
/* The facts about a node that the table of nodes does not have. */
struct doc_node {
    int32_t n_reserved;
    int64_t memory_held;      /* bytes */
    int64_t holders[GPU_MAX]; /* for each GPU of the node, the id of the job that holds it, or 0 */
    int64_t now_ms;
    const struct quarantined *quarantined; /* NULL if the node is not in quarantine */
    const struct cordon *cordon;           /* NULL if the node accepts work */
    bool is_empty;                         /* no live or stale attempt is on the node */
    int64_t revoked_ms; /* time at which the node's last certificate was revoked; 0 if the node has
                         * a valid certificate or needs none */
};
void doc_node(struct jwrite *w, const struct node *n, const struct doc_node *d);
/* Writes one event row: {"seq","job","epoch","at","type","data"}. */
int64_t doc_event(int64_t seq, int64_t job, int64_t epoch, int64_t at_ms, int type,
                  const char *data, char *out, size_t size);

#endif
