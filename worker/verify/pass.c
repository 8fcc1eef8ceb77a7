/* pass.c: sends and receives in messages of bounded size, and counts them. */
#include "worker/verify/pass.h"

#include <string.h>
#include "worker/plan/volume.h"

enum { MESSAGE = 1 << 18 }; /* bytes at a time: less than a bounce buffer has */

static int exchange(struct model *m, struct comm_xfer *x, struct err *e)
{
    struct comm_ticket t;
    x->purpose = PURPOSE_VERIFY;
    x->channel = CHANNEL_HOST;
    return comm_sendrecv(m->line, x, &t, e) || comm_wait(m->line, &t, e) ? -1 : 0;
}

static int64_t message_size(int64_t left)
{
    return left < MESSAGE ? left : MESSAGE;
}

int pass_send(struct model *m, int stage, const void *x, int64_t size, struct comm_count *moved,
              struct err *e)
{
    void *bounce = comm_bounce(m->line, m->bounce);
    for (int64_t at = 0; at < size; at += MESSAGE) {
        const int64_t n = message_size(size - at);
        struct comm_xfer one = {.send_to = stage, .recv_from = -1, .send = bounce, .send_size = n};
        memcpy(bounce, (const char *)x + at, (size_t)n);
        if (exchange(m, &one, e)) return -1;
        volume_add(moved, (struct comm_count){n, 0, 1, 0}, 1);
    }
    return 0;
}

int pass_receive(struct model *m, int stage, void *x, int64_t size, struct comm_count *moved,
                 struct err *e)
{
    for (int64_t at = 0; at < size; at += MESSAGE) {
        const int64_t n = message_size(size - at);
        struct comm_xfer one = {
            .send_to = -1, .recv_from = stage, .recv = (char *)x + at, .recv_size = n};
        if (exchange(m, &one, e)) return -1;
        volume_add(moved, (struct comm_count){0, n, 0, 1}, 1);
    }
    return 0;
}
