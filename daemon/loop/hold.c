/* hold.c: decides once a second whether an attempt must save and stop. */
#include "daemon/loop/hold.h"

#include <string.h>
#include "daemon/state/wall.h"

/* Tells whether a node of the job is being drained. In that case the job's ranks save and stop,
 * and the job is queued. The pass that places the job again finds out whether the job must run on
 * the node that has its checkpoint or data. */
static bool drain_due(const struct cluster *k, const struct job *j, int64_t now_ms,
                      struct event *ev)
{
    struct cordon why;
    for (int i = 0; attempt_alive(j) && i < j->attempt->n_parts; i++) {
        const struct attempt_part *p = &j->attempt->parts[i];
        const struct node *n = node_find((struct nodes *)&k->nodes, p->place.node);
        if (p->ended || !n || !cordon_of(k->cordons, n, now_ms, &why) || !why.drains) continue;
        *ev = (struct event){.type = EV_DRAIN, .rank = -1};
        memcpy(ev->node, p->place.node, sizeof ev->node);
        cordon_note(&why, ev->detail, sizeof ev->detail);
        return true;
    }
    return false;
}

void hold_tick(const struct cluster *k, struct job *j, int64_t now_ms, int64_t grace_ms,
               struct verdict *v)
{
    struct err e;
    if (attempt_save_late(j, now_ms, grace_ms)) {
        err_set(&e, ERR_TIMEOUT, "it took longer than the %lld s of --save-grace",
                (long long)((grace_ms + 999) / 1000));
        attempt_note_unsaved(j->attempt, &e);
        v->type = VERDICT_STOP;
    } else if (wall_due(j, now_ms, &v->ev) || drain_due(k, j, now_ms, &v->ev)) {
        v->type = VERDICT_EVENT;
    }
}
