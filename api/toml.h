/* toml.h: reads a configuration file key by key. Only toml.cc knows the library that parses it. */
#ifndef SEQD_API_TOML_H
#define SEQD_API_TOML_H

#include "api/core/err.h"
#include "api/core/option.h"

#define TOML_MAX_SIZE (256 << 10)

#ifdef __cplusplus
extern "C" {
#endif

/* Called with one key. Texts are borrowed until the call returns. Returns 0, or -1 with *e set. */
typedef int toml_key(void *arg, const char *key, const struct option_value *v, struct err *e);
/* Calls `key` for each key of the root in alphabetical order, until one call fails. An array
 * causes one call for each of its elements; an empty array causes one call. `name` is the name of
 * the file; errors begin with "name:line: ". Fails with ERR_INVALID, or as `key` does. */
int toml_read(const char *text, size_t size, const char *name, toml_key *key, void *arg,
              struct err *e);

#ifdef __cplusplus
}
#endif

#endif
