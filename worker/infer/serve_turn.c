/* serve_turn.c: chooses among prompts by the tokens that are left, and among waiting requests by
 * age. */
#include "worker/infer/serve_turn.h"

int serve_turn_piece(const struct serve_prompt *p, int n, int64_t n_pieces)
{
    const bool shortest = n_pieces % 2 == 0;
    int next = -1;
    for (int k = 0; k < n; k++) {
        if (!p[k].left) continue;
        const bool less = shortest && next >= 0 && p[k].left != p[next].left;
        if (next < 0 || (less ? p[k].left < p[next].left : p[k].turn < p[next].turn)) next = k;
    }
    return next;
}

/* Counts that a request begins before the older ones that wait. */
static void pass(struct serve_asks *s, const struct serve_request *first)
{
    struct serve_request *q = NULL;
    while ((q = serve_asks_after(s, SERVE_WAITS, q)) != first) q->n_passed++;
}

struct serve_request *serve_turn_request(struct serve_asks *s,
                                         bool (*fits)(void *arg, struct serve_request *q),
                                         void *arg)
{
    struct serve_request *q = NULL;
    for (int i = 0; i < SERVE_TURN_LOOKS; i++) {
        if (!(q = serve_asks_after(s, SERVE_WAITS, q))) return NULL;
        if (fits(arg, q)) {
            pass(s, q);
            return q;
        }
        if (q->n_passed >= SERVE_TURN_PASSED) return NULL;
    }
    return NULL;
}
