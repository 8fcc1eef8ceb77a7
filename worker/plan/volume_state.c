/* volume_state.c: the formulas of volume.h for states of linear attention. A ring and a scan pass
 * states from rank to rank, a scan in pieces; all_gather gathers them. */
#include "api/core/assert.h"
#include "worker/plan/volume.h"

struct comm_count volume_state(enum exchange_id x, int P, int r, int64_t H, int64_t Dk, int64_t Dv,
                               int n, int pieces, bool backward)
{
    const int64_t size = H * Dk * Dv * 4;
    const bool sends = backward ? r > 0 : r < P - 1, receives = backward ? r < P - 1 : r > 0;
    struct comm_count c = {0};
    if (x == EXCHANGE_ALL_GATHER) {
        const int64_t n_messages = (int64_t)(P - 1) * n;
        return (struct comm_count){n_messages * size, n_messages * size, n_messages, n_messages};
    }
    assert(x == EXCHANGE_RING || x == EXCHANGE_SCAN);
    if (sends) volume_add(&c, (struct comm_count){size, 0, pieces, 0}, 1);
    if (receives) volume_add(&c, (struct comm_count){0, size, 0, pieces}, 1);
    return c;
}

struct comm_count volume_state_edge(enum exchange_id x, const struct shard *sh, int64_t H,
                                    int64_t Dk, int64_t Dv, bool backward)
{
    const int64_t size = H * Dk * Dv * 4;
    const int with_last_token = (int)((sh->S - 1) / sh->T), last = sh->P - 1;
    struct comm_count c = {0};
    if (x != EXCHANGE_ALL_GATHER || with_last_token == last) return c;
    const int from = backward ? last : with_last_token, to = backward ? with_last_token : last;
    if (sh->r == from) volume_add(&c, (struct comm_count){size, 0, 1, 0}, 1);
    if (sh->r == to) volume_add(&c, (struct comm_count){0, size, 0, 1}, 1);
    return c;
}
