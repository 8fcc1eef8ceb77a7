/* spec.h: job specs before they are sent. The client only parses JSON or YAML and applies options,
 * and seqd interprets the spec. */
#ifndef SEQD_CLIENT_SPEC_H
#define SEQD_CLIENT_SPEC_H

#include "client/cli.h"
#include "client/json.h"

#define SPEC_FILE_SIZE (1 << 20) /* seqd refuses a larger spec */

/* Reads operand 0, which is "-" for stdin, and applies --set path=value, --unset path and --name.
 * kind replaces the spec's kind unless it is NULL. If seqd is on this machine (http_is_local),
 * relative paths become absolute, because they are relative to the submitter's directory and not
 * to the daemon's. Returns CLI_OK, or another exit code after printing the message. */
int spec_load(struct cli *c, const char *kind, struct jv **out);
/* Reads every operand, each of which may hold one spec, an array of them, or one on each line.
 * Options and paths apply to each spec, as in spec_load. *out is an array, which the caller frees
 * even after a failure. Returns CLI_OK, or another exit code after printing the message. */
int spec_load_all(struct cli *c, struct jv **out);
/* Applies the options --set, --unset and --name, and then makes paths absolute as spec_load does.
 * stored is the spec of the job from which the new one begins, whose paths are not changed; it is
 * NULL if there is no such job. */
int spec_apply(struct cli *c, struct jv *spec, const struct jv *stored);
/* Puts cwd before every relative path in the spec, but leaves upload:NAME, job:ID, and paths that
 * stored has in the same field. stored is NULL if there is no such spec. Globs are kept as globs.
 * Fails with ERR_TOO_LARGE for a path that is too long, or with ERR_INVALID for a cwd that is not
 * UTF-8. */
int spec_make_absolute(struct jv *spec, const struct jv *stored, const char *cwd, struct err *e);

#endif
