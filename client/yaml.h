/* yaml.h: reads specs that are written as YAML, and prints answers as YAML. Only yaml.c uses
 * libyaml.
 *
 * Only a safe subset is accepted. A text is one document, without anchors, aliases or tags, and
 * the keys of a mapping are strings, none of which occurs twice. A plain scalar is null, a boolean
 * or a number exactly if it is one in JSON. All other plain scalars (no, on, 0x10, 1_000, 12:30)
 * are strings, and an empty value is refused.
 * tested: tests/client/test_client_yaml.c, tests/fuzz/fuzz_yaml.c */
#ifndef SEQD_CLIENT_YAML_H
#define SEQD_CLIENT_YAML_H

#include <stdio.h>
#include "client/json.h"

#define YAML_DEPTH 32
#define YAML_NODES 100000

/* Parses YAML. The caller owns the value. Fails with ERR_INVALID, which names line and column, or
 * with ERR_TOO_LARGE beyond the limits. */
struct jv *yaml_parse(const char *text, size_t size, struct err *e);
/* Prints in block style. A string that any reader of YAML could take for something else is quoted.
 * ascii is as for JV_ASCII. */
void yaml_print(FILE *out, const struct jv *v, bool ascii);

#endif
