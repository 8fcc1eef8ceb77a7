/* spec.h: job specs before they are sent. The client only parses JSON or YAML and applies options,
 * and seqd interprets the spec. */
#ifndef SEQD_CLIENT_SPEC_H
#define SEQD_CLIENT_SPEC_H

#include "client/cli.h"
#include "client/json.h"

#define SPEC_FILE_SIZE (1 << 20) /* seqd refuses a larger spec */

/* Reads operand 0, which is "-" for stdin, and applies --set path=value, --unset path and --name.
 * kind, unless it is NULL, replaces the spec's kind. If seqd is on this machine (http_is_local),
 * relative paths become absolute, because they are relative to the current directory of seqctl,
 * and not to that of the daemon. Returns CLI_OK. On failure prints a message and returns an exit
 * code other than CLI_OK. */
int spec_load(struct cli *c, const char *kind, struct jv **out);
/* Reads every operand. An operand may have one spec, an array of specs, or one spec on each line.
 * Options and paths are applied to each spec, as in spec_load. *out is an array of all specs,
 * which the caller frees even after a failure. Returns CLI_OK. On failure prints a message and
 * returns an exit code other than CLI_OK. */
int spec_load_all(struct cli *c, struct jv **out);
/* Applies the options --set, --unset and --name, and then makes paths absolute as spec_load does.
 * `stored` is the spec of the job from which the new job begins, or NULL if there is no such job.
 * Paths of `stored` are not changed. */
int spec_apply(struct cli *c, struct jv *spec, const struct jv *stored);
/* Puts `cwd` before every relative path in the spec. upload:NAME and job:ID are not changed, and
 * neither is a path that `stored` has in the same field. `stored` may be NULL. Globs are kept as
 * globs. Fails with ERR_TOO_LARGE if a path becomes too long, and with ERR_INVALID if `cwd` is not
 * UTF-8. */
int spec_make_absolute(struct jv *spec, const struct jv *stored, const char *cwd, struct err *e);

#endif
