/* names.h: the names that a spec has in the place of paths. upload:NAME and upload:NAME/FILE are
 * pushed uploads (uploads.h). They are replaced by the path that nodes read, before anything else
 * looks at the spec. A plain path into seqd's own files is refused here if its text shows it. If
 * links or a node's own paths hide it, the rank refuses it (api/core/beneath.h). http/refs.h
 * handles job:ID.
 * tested: tests/daemon/test_seqd_upload.c, tests/scripts/private.sh */
#ifndef SEQD_DAEMON_ACCESS_NAMES_H
#define SEQD_DAEMON_ACCESS_NAMES_H

#include "api/core/err.h"
#include "api/core/job.h"
#include "api/core/rank.h"
#include "daemon/state/principal.h"

struct uploads;
struct names_of {
    const struct uploads *uploads; /* NULL: none are taken */
    const char *state_dir;         /* seqd's state directory, canonical; NULL: not known */
};
/* Replaces names by paths. Another user's upload counts as missing, unless who may see all. fails:
 * ERR_INVALID and ERR_TOO_LARGE, naming the field. */
int names_resolve(struct job_spec *s, const struct names_of *n, const struct principal *who,
                  struct err *e);

struct names_grants {
    int n;
    char dir[RANK_GRANTS][RANK_PATH_SIZE];
    const char *list[RANK_GRANTS];
};
/* Lists the uploads that a spec names; names_resolve has resolved it. files: the directory of
 * uploads, or NULL. */
void names_grants(const struct job_spec *s, const char *files, struct names_grants *out);
/* Lists the uploads of who, at most RANK_GRANTS. uploads NULL: there are none. */
void names_own(const struct uploads *uploads, const struct principal *who,
               struct names_grants *out);

#endif
