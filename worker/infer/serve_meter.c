/* serve_meter.c: keeps the counts, and decides when a report is due. The last report before a pause
 * is sent twice, so that seqd computes rates of 0 while nothing happens. */
#include "worker/infer/serve_meter.h"

#include <string.h>
#include "worker/infer/serve.h"

void serve_meter_open(struct serve_meter *m, int64_t now_us)
{
    *m = (struct serve_meter){.begun_us = now_us, .told_us = now_us, .still = true};
}

void serve_meter_begin(struct serve_meter *m, int slot, int64_t n_tokens, int64_t n_kept)
{
    m->now.prompt_tokens += n_tokens - n_kept;
    m->now.kept_tokens += n_kept;
    m->n_seen[slot] = 0;
    m->still = false;
}

void serve_meter_pass(struct serve_meter *m, const struct infer_work *work, int n,
                      const struct infer_steps *steps)
{
    for (int k = 0; k < n; k++) {
        const struct infer_work *w = &work[k];
        if (!w->out) continue;
        const int64_t made = w->out->n_generated + (w->done ? 0 : w->n);
        m->now.tokens += made - m->n_seen[k];
        m->n_seen[k] = made;
        m->still = false;
    }
    m->now.passes += steps->pace.n > m->now.rows;
    m->now.rows = steps->pace.n;
    m->now.pass_us = steps->pace.us;
}

void serve_meter_pages(struct serve_meter *m, int64_t n, int64_t n_used)
{
    m->now.pages = n;
    m->now.pages_used = n_used;
}

int64_t serve_meter_wait_us(const struct serve_meter *m, int64_t now_us)
{
    const int64_t left = m->told_us + SERVE_METER_US - now_us;
    return m->still ? -1 : left > 0 ? left : 0;
}

void serve_meter_result(const struct serve_meter *m, struct serve_result *out)
{
    out->n_prompt_tokens = m->now.prompt_tokens + m->now.kept_tokens;
    out->n_kept_tokens = m->now.kept_tokens;
    out->n_tokens = m->now.tokens;
}

int serve_meter_tell(struct serve_meter *m, const struct serve_door *door,
                     const struct serve_result *out, bool always, struct err *e)
{
    const int64_t now_us = door->now_us(door->arg);
    if (!door->report) return 0;
    m->now.requests = out->n_requests;
    m->now.refused = out->n_refused;
    m->now.dropped = door->asks->n_dropped;
    m->now.at_work = serve_asks_count(door->asks, SERVE_AT_WORK);
    m->now.queued = serve_asks_count(door->asks, SERVE_WAITS) +
                    serve_asks_count(door->asks, SERVE_WHOLE) +
                    serve_asks_count(door->asks, SERVE_READ);
    const bool news = memcmp(&m->now, &m->told, sizeof m->now) != 0;
    if (news) m->still = false;
    if (!always && serve_meter_wait_us(m, now_us) != 0) return 0;
    struct rank_serving report = m->now;
    report.elapsed_us = now_us - m->begun_us;
    m->told = m->now;
    m->told_us = now_us;
    m->still = !news;
    return door->report(door->arg, &report, e);
}
