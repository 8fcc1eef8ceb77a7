/* job.h: a job as people read it. */
#ifndef SEQD_CLIENT_JOB_H
#define SEQD_CLIENT_JOB_H

#include "client/cli.h"
#include "client/json.h"

/* Writes the state, coloured when stdout takes colours. Returns out. */
char *job_state_text(const struct cli *c, const struct jv *job, char *out, size_t size);
/* Prints on stderr how the job ended, at the end of --wait, watch and verify: "job 12 succeeded
 * after 1m 24s", then its result, or the field and the sentence of its error, then the command
 * that comes next. No command follows if the job was cancelled, or under `seqd run`. Under -q only
 * the error of a failed job is printed. */
void job_say_end(const struct cli *c, const struct jv *job);
/* Gets the job as it is now, to draw it. Returns NULL, without a message, when seqd does not
 * answer with it. The caller frees the job. */
struct jv *job_peek(struct cli *c, int64_t id);
#define JOB_PEEK_MS 1000 /* time between two requests: progress changes no more often */
/* Posts /v1/jobs/ID:action. Returns an enum cli_exit; the caller frees *job. */
int job_act(struct cli *c, int64_t id, const char *action, struct jv **job);
/* Prints "job 12 cancelled", or the job as -o asks. */
void job_print_state(struct cli *c, int64_t id, const struct jv *job);
/* Waits for the end of job id through its event stream, prints progress meanwhile, and fetches it.
 * Returns the exit code of the job's state. *out: NULL on an error, else the caller frees it. Keeps
 * to --timeout. */
int job_wait(struct cli *c, int64_t id, struct jv **out);

#endif
