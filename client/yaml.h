/* yaml.h: reads specs that are written as YAML, and prints answers as YAML. Only yaml.c uses
 * libyaml.
 *
 * Only a safe subset is accepted. A text is one document, without anchors, aliases or tags. The
 * keys of a mapping are strings, and no key occurs twice. If a plain scalar is null, a boolean or
 * a number in JSON, it is the same in YAML. All other plain scalars (no, on, 0x10, 1_000, 12:30)
 * are strings. An empty value is refused. tested: tests/client/test_client_yaml.c,
 * tests/fuzz/fuzz_yaml.c */
#ifndef SEQD_CLIENT_YAML_H
#define SEQD_CLIENT_YAML_H

#include <stdio.h>
#include "client/json.h"

#define YAML_DEPTH 32
#define YAML_NODES 100000

/* Parses YAML. The caller owns the value. Fails with ERR_INVALID, which names line and column, or
 * with ERR_TOO_LARGE if the text exceeds a limit. */
struct jv *yaml_parse(const char *text, size_t size, struct err *e);
/* Prints in block style. A string is quoted if any reader of YAML could read it as a value of a
 * different type. `ascii` has the meaning of JV_ASCII. */
void yaml_print(FILE *out, const struct jv *v, bool ascii);

#endif
