/* postponed.c: a list of reports, the oldest first. */
#include "daemon/loop/postponed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct postponed_report {
    struct postponed_report *next;
    char node[NODE_NAME];
    int64_t job, epoch, seq;
    int32_t rank;
    bool oom;
    size_t size;
    char data[];
};

void postponed_init(struct postponed *p)
{
    *p = (struct postponed){.first = NULL};
    p->last = &p->first;
}

void postponed_fini(struct postponed *p)
{
    for (struct postponed_report *r = p->first, *next; r; r = next) {
        next = r->next;
        free(r);
    }
}

bool postponed_keep(struct postponed *p, const char *node, const struct msg *m)
{
    const size_t size = sizeof(struct postponed_report) + m->size;
    if (p->size + size > POSTPONED_SIZE) return false;
    struct postponed_report *r = malloc(size);
    if (!r) abort();
    *r = (struct postponed_report){.job = m->job,
                                   .epoch = m->epoch,
                                   .seq = m->seq,
                                   .rank = m->rank,
                                   .oom = m->oom,
                                   .size = m->size};
    snprintf(r->node, sizeof r->node, "%s", node);
    if (m->size) memcpy(r->data, m->data, m->size);
    *p->last = r;
    p->last = &r->next;
    p->size += size;
    return true;
}

/* Takes the oldest report of the job out of the list. Returns NULL if there is none. */
static struct postponed_report *take_one(struct postponed *p, int64_t job)
{
    struct postponed_report **at = &p->first, *r;
    while (*at && (*at)->job != job) at = &(*at)->next;
    if (!(r = *at)) return NULL;
    *at = r->next;
    if (p->last == &r->next) p->last = at;
    p->size -= sizeof *r + r->size;
    return r;
}

void postponed_take(struct postponed *p, int64_t job, postponed_call *call, void *arg)
{
    for (struct postponed_report *r; (r = take_one(p, job));) {
        const struct msg m = {.type = MSG_REPORT,
                              .job = r->job,
                              .epoch = r->epoch,
                              .seq = r->seq,
                              .rank = r->rank,
                              .oom = r->oom,
                              .data = r->data,
                              .size = r->size};
        call(arg, r->node, &m);
        free(r);
    }
}
