/* spawn.h: how seqw starts programs: posix_spawn in a new session, signals as by default, no
 * descriptor but the three. A bare fork would not do: gRPC's threads do not survive it. */
#ifndef SEQD_AGENT_SPAWN_H
#define SEQD_AGENT_SPAWN_H

#include "api/core/err.h"
#include "api/core/job.h"
#include "api/core/loop.h"

/* `seqgang DIR`, its output in DIR/gang.log. Returns the pid, or -1. */
int spawn_gang(const char *program, const char *dir, struct err *e);

/* Runs `program --describe path` aside and calls done once: with a shape and ERR_NONE, or with what the
 * program said on stderr. It is killed after SPAWN_DESCRIBE_MS. */
#define SPAWN_DESCRIBE_MS 30000
typedef void spawn_described(void *arg, int64_t request, const struct model_shape *m,
                             const struct err *why);
struct describe;
struct describe *describe_start(struct loop *l, const char *program, const char *path,
                                int64_t request, spawn_described *done, void *arg, struct err *e);
void describe_cancel(struct describe *d); /* kills and reaps; done is not called */

/* The JSON of `seqrank --describe`: keys of model.config in a job spec, each exactly once needed. */
int describe_parse(const char *json, size_t size, struct model_shape *m, struct err *e);

#endif
