/* exposition.h: a text in Prometheus' text format. The samples of a family follow its head. */
#ifndef SEQD_DAEMON_HTTP_EXPOSITION_H
#define SEQD_DAEMON_HTTP_EXPOSITION_H

#include <stddef.h>

struct exposition {
    char *text; /* owned; the caller frees it */
    size_t n, room;
};

void exposition_add(struct exposition *x, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds the head of a family. `type` is gauge, counter or histogram. */
void exposition_family(struct exposition *x, const char *name, const char *type, const char *help);
/* Adds a family that has one sample without labels. */
void exposition_one(struct exposition *x, const char *name, const char *type, double value,
                    const char *help);

#endif
