/* names.h: names in the place of paths in a spec: upload:NAME and upload:NAME/FILE are what was
 * pushed (uploads.h). They become the path that nodes read before anything else looks at the spec.
 * tested: tests/daemon/test_seqd_upload.c */
#ifndef SEQD_DAEMON_NAMES_H
#define SEQD_DAEMON_NAMES_H

#include "api/core/err.h"
#include "api/core/job.h"
#include "daemon/principal.h"

struct uploads;
/* uploads NULL: none are taken. Another's is not there, unless who may see all.
 * fails: ERR_INVALID, ERR_NOT_FOUND and ERR_TOO_LARGE, naming the field. */
int names_resolve(struct job_spec *s, const struct uploads *uploads, const struct principal *who,
                  struct err *e);

#endif
