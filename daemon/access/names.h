/* names.h: the names that a spec may have in place of a path. upload:NAME and upload:NAME/FILE
 * name an upload that a client has pushed (uploads.h). Before any other code reads the spec, each
 * of these names is replaced by the path at which nodes read the upload. A plain path is refused
 * here if its text shows that it leads to seqd's own files. If a path leads there only through
 * symlinks, or only on a node, the rank refuses it (api/core/beneath.h). http/refs.h handles
 * job:ID.
 * tested: tests/daemon/test_seqd_upload.c, tests/scripts/private.sh */
#ifndef SEQD_DAEMON_ACCESS_NAMES_H
#define SEQD_DAEMON_ACCESS_NAMES_H

#include "api/core/err.h"
#include "api/core/job.h"
#include "api/core/rank.h"
#include "daemon/state/principal.h"

struct uploads;
struct names_of {
    const struct uploads *uploads; /* NULL if seqd takes no uploads */
    /* canonical path of seqd's state directory, or NULL if it is not known */
    const char *state_dir;
};
/* Replaces names by paths. Another user's upload counts as missing, unless `who` may see all
 * uploads. Fails with ERR_INVALID or ERR_TOO_LARGE, and the error names the field. */
int names_resolve(struct job_spec *s, const struct names_of *n, const struct principal *who,
                  struct err *e);

struct names_grants {
    int n;
    char dir[RANK_GRANTS][RANK_PATH_SIZE];
    const char *list[RANK_GRANTS];
};
/* Lists the uploads that a spec names, after names_resolve has resolved it. `files` is the
 * directory of uploads, or NULL if there is none. */
void names_grants(const struct job_spec *s, const char *files, struct names_grants *out);
bool names_grants_same(const struct names_grants *a, const struct names_grants *b);
/* Lists the uploads of `who`, at most RANK_GRANTS. If `uploads` is NULL, seqd takes no uploads and
 * the list is empty. */
void names_own(const struct uploads *uploads, const struct principal *who,
               struct names_grants *out);

#endif
