/* job.h: a job as people read it. */
#ifndef SEQD_CLIENT_JOB_H
#define SEQD_CLIENT_JOB_H

#include "client/cli.h"
#include "client/json.h"

/* The state, coloured when stdout takes colours. Returns out. */
char *job_state_text(const struct cli *c, const struct jv *job, char *out, size_t size);
/* "job 12 succeeded after 84.0s: ..." and, for a failure, the sentence, the field and what to do;
 * then the command that comes next. On stderr; the final word of --wait, watch and verify. */
void job_say_end(const struct cli *c, const struct jv *job);
/* The job as it is now, for a picture of it: NULL when seqd does not answer at the moment, which is
 * not reported. The caller frees. */
struct jv *job_peek(struct cli *c, int64_t id);
#define JOB_PEEK_MS 1000 /* between two requests: progress changes no more often */
/* POST /v1/jobs/ID:action. Returns an enum cli_exit; *job: the caller frees. */
int job_act(struct cli *c, int64_t id, const char *action, struct jv **job);
/* "job 12 cancelled", or as -o asks. */
void job_print_state(struct cli *c, int64_t id, const struct jv *job);
/* Waits for the end of job id through its event stream, prints progress meanwhile, and fetches it.
 * Returns the exit code of the job's state. *out: NULL on an error, else the caller frees it. Keeps
 * to --timeout. */
int job_wait(struct cli *c, int64_t id, struct jv **out);

#endif
