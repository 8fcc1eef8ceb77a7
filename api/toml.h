/* toml.h: a configuration file, key by key. Only toml.cc knows the library that reads it. */
#ifndef SEQD_API_TOML_H
#define SEQD_API_TOML_H

#include "api/core/err.h"
#include "api/core/option.h"

#define TOML_MAX_SIZE (256 << 10)

#ifdef __cplusplus
extern "C" {
#endif

/* Takes one key. Texts are borrowed until the call returns. Returns 0, or -1 and *e. */
typedef int toml_key(void *arg, const char *key, const struct option_value *v, struct err *e);
/* Calls `key` for each key of the root in the order of the alphabet, until one call fails. It
 * calls once per element of an array, and once for an empty array. name: the name of the file,
 * with which errors begin: "name:line: ". fails: ERR_INVALID; as `key`. */
int toml_read(const char *text, size_t size, const char *name, toml_key *key, void *arg,
              struct err *e);

#ifdef __cplusplus
}
#endif

#endif
