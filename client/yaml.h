/* yaml.h: specs written as YAML, and answers printed as YAML. The only user of libyaml is yaml.c.
 *
 * A safe subset is read: one document; no anchors, aliases or tags; mappings with string keys, none
 * twice. A plain scalar is null, a boolean or a number exactly where it is one in JSON; all others
 * (no, on, 0x10, 1_000, 12:30) are strings, and an empty value is refused.
 * tested: tests/client/test_client_yaml.c, tests/fuzz/fuzz_yaml.c */
#ifndef SEQD_CLIENT_YAML_H
#define SEQD_CLIENT_YAML_H

#include <stdio.h>
#include "client/json.h"

#define YAML_DEPTH 32
#define YAML_NODES 100000

/* Parses YAML; the caller owns the value. fails: ERR_INVALID with line and column; ERR_TOO_LARGE
 * beyond the limits. */
struct jv *yaml_parse(const char *text, size_t size, struct err *e);
/* Prints in block style; a string that any reader of YAML could take for something else is quoted.
 * ascii: as JV_ASCII. */
void yaml_print(FILE *out, const struct jv *v, bool ascii);

#endif
