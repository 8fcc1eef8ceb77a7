/* ports.c: adds a domain of Landlock, which has rules for connecting alone. */
#include "worker/rank/ports.h"

#include "api/core/landlock.h"
#include "worker/comm/comm.h"

int ports_confine(const struct rank_blob *blobs, int n, struct err *e)
{
    const struct landlock_options o = {.connect = true};
    struct landlock l;
    int rc = landlock_open(&l, &o, e);
    for (int i = 0; i < n && !rc; i++) {
        const int port = comm_blob_port(&blobs[i]);
        if (port) rc = landlock_allow_connect(&l, port, e);
    }
    if (!rc) rc = landlock_enter_all(&l, e);
    landlock_close(&l);
    return rc;
}
