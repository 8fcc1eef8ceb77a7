/* The GPUs of a node, and those of an assignment. */
#include "api/wire_pack.h"

#include <assert.h>

static Seqd__Gpu *gpu_pack(const struct gpu *g, int n, struct arena *a)
{
    Seqd__Gpu *w = message_new(a, &seqd__gpu__descriptor);
    if (!w) return NULL;
    w->uuid = (char *)g->uuid;
    w->name = (char *)g->name;
    w->bus = (char *)g->bus;
    w->memory_size = g->memory_size;
    w->memory_free = g->memory_free;
    w->major = g->major;
    w->minor = g->minor;
    w->health = g->health;
    w->xid = g->xid;
    w->n_processes = g->n_processes;
    w->ecc_errors = g->ecc_errors;
    w->far = (ProtobufCBinaryData){(size_t)n, (uint8_t *)g->far};
    return w;
}

int wire_gpus_pack(const struct gpu *list, int n, struct arena *a, size_t *n_out, Seqd__Gpu ***out)
{
    assert(n >= 0 && n <= GPU_MAX);
    *n_out = (size_t)n;
    *out = pointers_new(a, *n_out);
    if (!*out) return -1;
    for (int i = 0; i < n; i++)
        if (!((*out)[i] = gpu_pack(&list[i], n, a))) return -1;
    return 0;
}

static int gpu_unpack(const Seqd__Gpu *w, size_t n, struct gpu *g, struct err *e)
{
    *g = (struct gpu){.memory_size = w->memory_size,
                      .memory_free = w->memory_free,
                      .major = w->major,
                      .minor = w->minor,
                      .health = w->health,
                      .xid = w->xid,
                      .n_processes = w->n_processes,
                      .ecc_errors = w->ecc_errors};
    if (text_copy(g->uuid, sizeof g->uuid, w->uuid, "gpu.uuid", e) < 0 ||
        text_copy(g->name, sizeof g->name, w->name, "gpu.name", e) < 0 ||
        text_copy(g->bus, sizeof g->bus, w->bus, "gpu.bus", e) < 0)
        return -1;
    if (w->far.len != n)
        return err_field(e, ERR_INVALID, "gpu.far", "a GPU of %zu knows %zu distances", n,
                         w->far.len);
    memcpy(g->far, w->far.data, n);
    return gpu_check(g, e);
}

int wire_gpus_unpack(size_t n, Seqd__Gpu **in, struct arena *a, struct msg *m, struct err *e)
{
    if (range_check((int64_t)n, 0, GPU_MAX, "gpus", e) < 0) return -1;
    struct gpu *out = arena_alloc(a, (n ? n : 1) * sizeof *out);
    if (!out) return err_set(e, ERR_TOO_LARGE, "no room for %zu GPUs", n);
    for (size_t i = 0; i < n; i++) {
        if (gpu_unpack(in[i], n, &out[i], e) < 0) return -1;
        if (gpu_find(out, (int)i, out[i].uuid) >= 0)
            return err_field(e, ERR_INVALID, "gpu.uuid", "two GPUs have the uuid %s", out[i].uuid);
    }
    m->n_gpus = (int)n;
    m->gpus = out;
    return 0;
}

int wire_uuids_pack(const struct msg *m, struct arena *a, size_t *n, char ***out)
{
    assert(m->n_uuids >= 0 && m->n_uuids <= JOB_MAX_RANKS);
    *n = (size_t)m->n_uuids;
    *out = pointers_new(a, *n);
    if (!*out) return -1;
    for (size_t i = 0; i < *n; i++) (*out)[i] = (char *)m->uuids[i];
    return 0;
}

int wire_uuids_unpack(size_t n, char **in, struct arena *a, struct msg *m, struct err *e)
{
    if (n && n != (size_t)m->n_local)
        return err_field(e, ERR_INVALID, "gpus", "%zu GPUs for %d ranks", n, m->n_local);
    char(*out)[GPU_UUID_SIZE] = arena_alloc(a, (n ? n : 1) * sizeof *out);
    if (!out) return err_set(e, ERR_TOO_LARGE, "no room for %zu GPUs", n);
    for (size_t i = 0; i < n; i++) {
        struct gpu g = {0};
        if (text_copy(g.uuid, sizeof g.uuid, in[i], "gpus", e) < 0 || gpu_check(&g, e) < 0)
            return -1;
        memcpy(out[i], g.uuid, sizeof out[i]);
    }
    m->n_uuids = (int)n;
    m->uuids = out;
    return 0;
}
