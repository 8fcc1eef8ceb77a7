/* spec.h: job specs before they are sent. The client parses JSON or YAML and applies options; seqd
 * alone interprets a spec. */
#ifndef SEQD_CLIENT_SPEC_H
#define SEQD_CLIENT_SPEC_H

#include "client/cli.h"
#include "client/json.h"

#define SPEC_FILE_SIZE (1 << 20) /* seqd refuses a larger spec */

/* Reads operand 0 ("-": stdin) and applies --set path=value, --unset path and --name. kind:
 * replaces the spec's kind; NULL: leaves it. If seqd is on this machine (http_is_local), relative
 * paths become absolute: they are relative to the submitter's directory, not to the daemon's.
 * Returns CLI_OK, or another exit code with the message printed. */
int spec_load(struct cli *c, const char *kind, struct jv **out);
/* Reads every operand, which may hold one spec, an array of them, or one on each line. Options and
 * paths apply to each, as in spec_load. *out: an array, which the caller frees even after a
 * failure. Returns CLI_OK, or another exit code with the message printed. */
int spec_load_all(struct cli *c, struct jv **out);
/* Applies the options --set, --unset and --name, then makes paths absolute, as spec_load does.
 * stored: the spec of the job that the new one begins from, whose paths stay; NULL: it begins from
 * none. */
int spec_apply(struct cli *c, struct jv *spec, const struct jv *stored);
/* Puts every relative path in the spec below cwd, but leaves upload:NAME and job:ID, and paths that
 * stored has in the same field (NULL: there is no such spec). Globs stay globs. fails:
 * ERR_TOO_LARGE for a path that is too long; ERR_INVALID for a cwd that is not UTF-8. */
int spec_make_absolute(struct jv *spec, const struct jv *stored, const char *cwd, struct err *e);

#endif
