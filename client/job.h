/* job.h: shows a job in a form for people. */
#ifndef SEQD_CLIENT_JOB_H
#define SEQD_CLIENT_JOB_H

#include "client/cli.h"
#include "client/json.h"

/* Writes the state, in colour if stdout supports colours. Returns out. */
char *job_state_text(const struct cli *c, const struct jv *job, char *out, size_t size);
/* Prints on stderr how the job ended, at the end of --wait, watch and verify. It prints "job 12
 * succeeded after 1m 24s", then the job's result or the field and the sentence of its error, and
 * then a useful next command. If the job was cancelled, or under `seqd run`, it prints no command.
 * With -q it prints only the error of a failed job. */
void job_say_end(const struct cli *c, const struct jv *job);
/* Gets the job as it is now, to draw it. If seqd does not answer with the job, returns NULL and
 * prints no message. The caller frees the job. */
struct jv *job_peek(struct cli *c, int64_t id);
#define JOB_PEEK_MS 1000 /* time between two requests, because progress changes no more often */
/* Posts /v1/jobs/ID:action. Returns an enum cli_exit, and the caller frees *job. */
int job_act(struct cli *c, int64_t id, const char *action, struct jv **job);
/* Prints "job 12 cancelled", or the job in the format of -o. */
void job_print_state(struct cli *c, int64_t id, const struct jv *job);
/* Waits until the event stream of job id ends, at most for --timeout, and prints the job's
 * progress. Then fetches the job into *out, which the caller frees. Returns the exit code of the
 * job's state. After an error *out is NULL. */
int job_wait(struct cli *c, int64_t id, struct jv **out);

#endif
