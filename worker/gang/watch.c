/* watch.c: counts the time without progress from samples of all ranks, finds the slowest rank, and
 * describes its position. */
#include "worker/gang/watch.h"

#include <stdio.h>

/* A rank that uses less than BUSY_PERCENT of a core is treated as waiting. However, a rank
 * that is runnable is treated as busy even if it uses less, because other processes are using
 * the cores. While a rank is busy, only one BUSY_PATIENCE-th of the time is counted. */
enum { BUSY_PERCENT = 5, BUSY_PATIENCE = 10 };

static bool is_stopped(const struct watch_sample *s)
{
    return s->state == 'T' || s->state == 't';
}

/* Returns true if a rank works, or would work if it had a processor. The parameter cpu_ms is
 * the CPU time that the rank has used in the last dt_ms. */
static bool is_busy(const struct watch_sample *s, int64_t cpu_ms, int64_t dt_ms)
{
    return s->runnable || s->state == 'D' || (s->on_gpu && s->state != 'Z') ||
           cpu_ms * 100 >= dt_ms * BUSY_PERCENT;
}

void watch_tick(struct watch *w, const struct watch_sample *s, int n, int64_t dt_ms)
{
    bool moved = false, busy = false, stopped = false;
    for (int i = 0; i < n; i++) {
        moved = moved || s[i].op.n_ops != w->n_ops[i] || s[i].op.n_tasks != w->n_tasks[i] ||
                s[i].moved > w->moved[i];
        stopped = stopped || is_stopped(&s[i]);
        busy = busy || is_busy(&s[i], s[i].cpu_ms - w->cpu_ms[i], dt_ms);
        w->n_ops[i] = s[i].op.n_ops;
        w->n_tasks[i] = s[i].op.n_tasks;
        w->cpu_ms[i] = s[i].cpu_ms;
        w->moved[i] = s[i].moved;
    }
    if (moved)
        w->quiet_ms = 0;
    else
        w->quiet_ms += busy && !stopped ? (dt_ms + BUSY_PATIENCE - 1) / BUSY_PATIENCE : dt_ms;
}

int watch_slowest(const struct watch_sample *s, int n)
{
    int least = -1;
    for (int i = 0; i < n; i++) {
        if (is_stopped(&s[i])) return i;
        if (s[i].state == 'Z') continue; /* has exited */
        if (least < 0 || s[i].op.n_ops < s[least].op.n_ops) least = i;
    }
    return least < 0 ? 0 : least;
}

void watch_where(const struct rank_lastop *op, char *out, size_t size)
{
    char layer[32] = "", hop[32] = "", peer[48] = "";
    if (op->n_ops == 0) {
        snprintf(out, size, "before its first operation");
        return;
    }
    if (op->layer >= 0) snprintf(layer, sizeof layer, ", layer %d", op->layer);
    if (op->hop >= 0) snprintf(hop, sizeof hop, ", hop %d", op->hop);
    if (op->peer >= 0) snprintf(peer, sizeof peer, ", awaiting rank %d", op->peer);
    const char *purpose = op->purpose >= 0 && op->purpose < PURPOSE_N ? purpose_name(op->purpose)
                                                                      : "no transfer";
    snprintf(out, size, "step %lld%s%s, %s%s", (long long)op->step, layer, hop, purpose, peer);
}

int64_t watch_reached(const struct watch_sample *s)
{
    return is_stopped(s) ? 1 : 2 + s->op.n_ops;
}

void watch_sentence(const struct watch *w, const struct watch_sample *s, int n, int first_rank,
                    char *out, size_t size)
{
    char where[160];
    int i = watch_slowest(s, n);
    bool stopped = is_stopped(&s[i]);
    watch_where(&s[i].op, where, sizeof where);
    snprintf(out, size,
             "no rank has moved for %lld s; rank %d is the slowest%s: %s, after %lld operations. "
             "Every rank's last operation is in its log",
             (long long)w->quiet_ms / 1000, first_rank + i,
             stopped ? " (its process is stopped)" : "", where, (long long)s[i].op.n_ops);
}
