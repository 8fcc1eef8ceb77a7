/* section_offload.c: asks for copies of a stream or a record at fixed points of a pass, and waits
 * for the previous copy. */
#include "worker/model/section_offload.h"

#include "api/core/mutant.h"
#include "worker/model/model.h"
#include "worker/model/offload.h"

/* The memory of this rank's rows of a stream, or of a layer's record, that is to be copied. If
 * there is none, size is 0. */
struct kept {
    char *buf;
    int64_t size, at;
    int64_t *ticket;
};

/* Returns the part of the stream at border b that is offloaded. */
static struct kept stream_of(struct model *m, int b)
{
    const struct plan *p = m->plan;
    const int n = b - plan_layers_before(p);
    if (n < plan_streams_passed(p) || n >= p->offload.n_out) return (struct kept){0};
    const int k = plan_stream(p, n);
    return (struct kept){m->prog.streams + k * p->stream_size,
                         m->sp.shard.T / p->tp * p->offload.row_size,
                         m->prog.stored + plan_stored_stream(p, n), &m->prog.copies.stream[k]};
}

/* Returns the record of layer b if it is offloaded. */
static struct kept record_of(struct model *m, int b)
{
    const struct plan *p = m->plan;
    const int n = b - plan_layers_before(p);
    if (n < 1 || n > p->offload.n_records_out) return (struct kept){0};
    return (struct kept){
        m->prog.kept + plan_record(&m->shape, p, b), p->kept[family_layer_kind(&m->shape, b - 1)],
        m->prog.stored + plan_stored_record(&m->shape, p, b), &m->prog.copies.record[b % 2]};
}

static int settle(struct model *m, const struct kept *k, struct err *e)
{
    if (!k->size) return 0;
    if (offload_wait(m->offload, *k->ticket, e)) return -1;
    *k->ticket = 0;
    return 0;
}

int section_send_out(struct model *m, int b, struct err *e)
{
    const struct kept before[] = {stream_of(m, b - 1), record_of(m, b - 1)};
    const struct kept all[] = {stream_of(m, b), record_of(m, b)};
    for (int i = 0; i < 2; i++)
        if (settle(m, &before[i], e)) return -1;
    for (int i = 0; i < 2; i++)
        if (all[i].size)
            *all[i].ticket = offload_out(m->offload, all[i].buf, all[i].size, all[i].at);
    return 0;
}

static void fetch(struct model *m, const struct kept *k, int64_t size)
{
    if (k->size) *k->ticket = offload_back(m->offload, k->buf, size, k->at);
}

/* Returns the number of bytes to copy back. Usually it is the whole size. Under the fault
 * MUTANT_STALE_OFFLOAD, it is half of the size on rank 0. */
static int64_t size_back(const struct model *m, const struct kept *k)
{
    return mutant_on(MUTANT_STALE_OFFLOAD) && m->rank == 0 ? k->size / 2 : k->size;
}

int section_bring_back(struct model *m, int b, struct err *e)
{
    const struct kept stream = stream_of(m, b - 1), record = record_of(m, b);
    const struct kept next = stream_of(m, b - 2), before = record_of(m, b - 1);
    if (settle(m, &stream, e) || settle(m, &record, e)) return -1;
    fetch(m, &next, size_back(m, &next));
    fetch(m, &before, before.size);
    return 0;
}
