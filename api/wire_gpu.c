/* wire_gpu.c: packs and unpacks the distances between the GPUs of a node, and the GPUs of an
 * assignment. */
#include "api/core/assert.h"
#include "api/wire_pack.h"

int wire_far_pack(const struct wire_field *f, const void *record, struct arena *a, void *body)
{
    const struct msg *m = record;
    Seqd__Gpu **list = *(Seqd__Gpu ***)((char *)body + f->pb);
    const size_t n = (size_t)m->n_gpus;
    for (size_t i = 0; i < n; i++)
        list[i]->far = (ProtobufCBinaryData){n, (uint8_t *)m->gpus[i].far};
    return 0;
}

int wire_far_unpack(const struct wire_field *f, const void *body, struct arena *a, void *record,
                    struct err *e)
{
    const struct msg *m = record;
    Seqd__Gpu *const *list = *(Seqd__Gpu *const *const *)((const char *)body + f->pb);
    struct gpu *out = (struct gpu *)m->gpus; /* in the arena */
    const size_t n = (size_t)m->n_gpus;
    for (size_t i = 0; i < n; i++) {
        if (list[i]->far.len != n)
            return err_field(e, ERR_INVALID, "gpu.far", "a GPU of %zu knows %zu distances", n,
                             list[i]->far.len);
        memcpy(out[i].far, list[i]->far.data, n);
        if (gpu_check(&out[i], e)) return -1;
        if (gpu_find(out, (int)i, out[i].uuid) >= 0)
            return err_field(e, ERR_INVALID, "gpu.uuid", "two GPUs have the uuid %s", out[i].uuid);
    }
    return 0;
}

int wire_uuids_pack(const struct wire_field *f, const void *record, struct arena *a, void *body)
{
    const struct msg *m = record;
    Seqd__Assign *w = body;
    assert(m->n_uuids >= 0 && m->n_uuids <= JOB_MAX_RANKS);
    w->n_gpus = (size_t)m->n_uuids;
    w->gpus = pointers_new(a, w->n_gpus);
    if (!w->gpus) return -1;
    for (size_t i = 0; i < w->n_gpus; i++) w->gpus[i] = (char *)m->uuids[i];
    return 0;
}

int wire_uuids_unpack(const struct wire_field *f, const void *body, struct arena *a, void *record,
                      struct err *e)
{
    const Seqd__Assign *w = body;
    struct msg *m = record;
    const size_t n = w->n_gpus;
    if (n && n != (size_t)m->n_local)
        return err_field(e, ERR_INVALID, "gpus", "gpus has %zu GPUs, want one for each of %d ranks",
                         n, m->n_local);
    char(*out)[GPU_UUID_SIZE] = arena_alloc(a, (n ? n : 1) * sizeof *out);
    if (!out) return err_set(e, ERR_TOO_LARGE, "there is no memory for the message's %zu GPUs", n);
    for (size_t i = 0; i < n; i++) {
        struct gpu g = {0};
        if (text_copy(g.uuid, sizeof g.uuid, w->gpus[i], "gpus", e) < 0 || gpu_check(&g, e) < 0)
            return -1;
        memcpy(out[i], g.uuid, sizeof out[i]);
    }
    m->n_uuids = (int)n;
    m->uuids = out;
    return 0;
}
