/* store.h: opens the store to which a rank of a test offloads activations. */
#ifndef SEQD_TESTS_STORE_H
#define SEQD_TESTS_STORE_H

#include <fcntl.h>
#include <unistd.h>
#include "tests/lib/test.h"
#include "worker/model/offload.h"

/* Opens the store. If the device uses the host's memory, the store is a file in /tmp. The
 * parameter `host` is memory of the plan's host_size bytes. Returns NULL if the plan offloads
 * nothing. */
static inline struct offload *store_open(const struct plan *p, struct be *be, void *host)
{
    struct err e = {0};
    struct offload_options o = {.plan = p, .be = be, .host = host, .fd = -1};
    if (!plan_stores(p)) return NULL;
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
