/* target.h: a request target taken apart, strictly and once: /path?name=value&... */
#ifndef SEQD_DAEMON_HTTP_TARGET_H
#define SEQD_DAEMON_HTTP_TARGET_H

#define TARGET_SIZE   2048
#define TARGET_PARAMS 16

struct target {
    char text[TARGET_SIZE]; /* decoded in place: the path, then names and values */
    int n_params;
    const char *name[TARGET_PARAMS], *value[TARGET_PARAMS];
};

/* Parses raw, the target as it was received, of fewer than TARGET_SIZE bytes. -1: not absolute,
 * bad escape, NUL or control byte, "..", or too many parameters. */
int target_parse(struct target *t, const char *raw);
const char *target_query(const struct target *t, const char *name); /* or NULL */

#endif
