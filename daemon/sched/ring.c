/* ring.c: walks from each GPU to its nearest neighbours, and keeps the shortest ring. */
#include "daemon/sched/ring.h"

#include <string.h>

/* Returns the GPU nearest to `from` that `left` marks. If several GPUs are equally near, returns
 * the first of these. Returns -1 if no GPU is left. */
static int nearest(const struct sched_gpu *gpus, const bool *left, int n, int from)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (left[i] && (best < 0 || gpus[from].far[i] < gpus[from].far[best])) best = i;
    return best;
}

/* Walks from `start` over `want` GPUs. Returns the length of the closed walk, or -1 if there are
 * too few GPUs. */
static int walk(const struct sched_gpu *gpus, const bool *may, int n, int start, int want,
                uint8_t *out)
{
    bool left[GPU_MAX];
    int length = 0, at = start;
    memcpy(left, may, (size_t)n * sizeof *left);
    for (int i = 0; i < want; i++) {
        if (at < 0) return -1;
        out[i] = (uint8_t)at;
        left[at] = false;
        if (i > 0) length += gpus[out[i - 1]].far[at];
        at = nearest(gpus, left, n, at);
    }
    return length + gpus[out[want - 1]].far[start];
}

bool ring_pick(const struct sched_gpu *gpus, const bool *may, int n, int want, uint8_t *out)
{
    uint8_t way[GPU_MAX];
    int shortest = -1;
    for (int start = 0; start < n && want <= n; start++) {
        const int length = may[start] ? walk(gpus, may, n, start, want, way) : -1;
        if (length < 0 || (shortest >= 0 && length >= shortest)) continue;
        shortest = length;
        memcpy(out, way, (size_t)want);
    }
    return shortest >= 0;
}
