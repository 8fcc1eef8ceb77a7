/* store.h: the store to which a test's rank offloads. */
#ifndef SEQD_TESTS_STORE_H
#define SEQD_TESTS_STORE_H

#include <fcntl.h>
#include <unistd.h>
#include "tests/lib/test.h"
#include "worker/model/offload.h"

/* Opens the store, with a file in /tmp if the device's memory is the host's; NULL: the plan
 * offloads nothing. host: the memory of the plan's host part. */
static inline struct offload *store_open(const struct plan *p, struct be *be, void *host)
{
    struct err e = {0};
    struct offload_options o = {.plan = p, .be = be, .host = host, .fd = -1};
    if (!p->offload.on) return NULL;
    if (!p->own_memory) {
        const int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        o.fd = offload_file(dir, p->offload.disk_size, &e);
        CHECK_MSG(dir >= 0 && o.fd >= 0, "%s", e.text);
        close(dir);
    }
    struct offload *s = offload_open(&o, &e);
    CHECK_MSG(s, "%s", e.text);
    return s;
}

#endif
