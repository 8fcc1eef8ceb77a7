/* pass.c: gathers rows on a stage's first rank, sends and receives bytes in messages of limited
 * size, and counts all these messages. */
#include "worker/verify/pass.h"

#include <string.h>
#include "worker/plan/volume.h"

enum { MESSAGE = 1 << 18 }; /* bytes of one message; a bounce buffer has more */

int pass_holders(const struct model *m)
{
    return m->plan->sp * m->plan->tp;
}

bool pass_first(const struct model *m)
{
    return m->rank == 0 && m->tensor_rank == 0;
}

int pass_gather(struct model *m, const void *own, int64_t size, void *all, struct comm_count *moved,
                struct err *e)
{
    if (!m->holders && own != all) memcpy(all, own, (size_t)size);
    if (m->holders && comm_gather(m->holders, PURPOSE_VERIFY, 0, own, size, all, m->bounce, e))
        return -1;
    volume_add(moved, volume_gather(pass_holders(m), size, pass_first(m)), 1);
    return 0;
}

int pass_pieces(const struct shard *sh, int64_t room, pass_rows *fn, void *at, struct err *e)
{
    for (int s = 0; s < sh->n_segs; s++)
        for (int64_t i = 0; i < sh->seg_len; i += room) {
            const int64_t left = sh->seg_len - i;
            if (fn(at, s * sh->seg_len + i, left < room ? left : room, e)) return -1;
        }
    return 0;
}

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
