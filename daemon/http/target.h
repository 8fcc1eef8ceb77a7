/* target.h: splits the target of a request, /path?name=value&..., strictly and only once. */
#ifndef SEQD_DAEMON_HTTP_TARGET_H
#define SEQD_DAEMON_HTTP_TARGET_H

#define TARGET_SIZE   2048
#define TARGET_PARAMS 16

struct target {
    char text[TARGET_SIZE]; /* the target, decoded in place: the path, then names and values */
    int n_params;
    const char *name[TARGET_PARAMS], *value[TARGET_PARAMS];
};

/* Parses raw, which is the target as it was received and has fewer than TARGET_SIZE bytes. Returns
 * -1 if the target is not absolute, has a bad escape, a NUL, a control byte or "..", or has too
 * many parameters. */
int target_parse(struct target *t, const char *raw);
const char *target_query(const struct target *t, const char *name); /* or NULL */

#endif
