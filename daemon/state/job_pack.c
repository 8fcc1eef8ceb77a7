/* job_pack.c: keeps the spec of a job that waits in few bytes. Most bytes of a spec are those of
 * the defaults, so only its differences to them are packed. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "api/core/device.h"
#include "api/core/job.h"
#include "api/core/mem.h"
#include "daemon/state/job_after.h"
#include "daemon/state/job_pack.h"
#include "daemon/state/jobs.h"

enum {
    LEAST_ZEROS = 4, /* fewer zeros take as many bytes as the lengths of two runs */
    HEAD = offsetof(struct job_spec, text)
};

static uint8_t *put_length(uint8_t *to, size_t n)
{
    for (; n >= 128; n >>= 7) *to++ = (uint8_t)(n | 128);
    *to++ = (uint8_t)n;
    return to;
}

static const uint8_t *get_length(const uint8_t *from, size_t *n)
{
    int shift = 0;
    *n = 0;
    for (; *from & 128; shift += 7) *n |= (size_t)(*from++ & 127) << shift;
    *n |= (size_t)*from << shift;
    return from + 1;
}

static size_t zeros_at(const uint8_t *from, size_t size)
{
    size_t n = 0;
    while (n + 8 <= size && !memcmp(from + n, (const char[8]){0}, 8)) n += 8;
    while (n < size && !from[n]) n++;
    return n;
}

/* Returns the length of the run of bytes that ends before the next long run of zeros. */
static size_t bytes_at(const uint8_t *from, size_t size)
{
    size_t n = 0, zeros = 0;
    for (; n < size && zeros < LEAST_ZEROS; n++) zeros = from[n] ? 0 : zeros + 1;
    return n - (zeros == LEAST_ZEROS || n == size ? zeros : 0);
}

/* Replaces the first bytes of a spec by their difference to the defaults, or restores them. */
static void differ(uint8_t *spec, size_t size)
{
    static struct job_spec base;
    const uint8_t *as = (const uint8_t *)&base;
    if (!base.text_used) spec_defaults(&base);
    const size_t n = size < HEAD ? size : HEAD;
    for (size_t i = 0; i < n; i++) spec[i] ^= as[i];
}

uint8_t *job_pack_bytes(const uint8_t *from, size_t size, size_t *packed_size)
{
    const uint8_t *end = from + size;
    uint8_t *packed = mem_scratch(size + size / 2 + 16), *to = put_length(packed, size);
    while (from < end) {
        const size_t zeros = zeros_at(from, (size_t)(end - from));
        from += zeros;
        const size_t n = bytes_at(from, (size_t)(end - from));
        to = put_length(put_length(to, zeros), n);
        memcpy(to, from, n);
        to += n;
        from += n;
    }
    *packed_size = (size_t)(to - packed);
    uint8_t *out = malloc(*packed_size);
    if (!out) abort();
    memcpy(out, packed, *packed_size);
    free(packed);
    return out;
}

uint8_t *job_pack_open(const uint8_t *from, size_t *size)
{
    size_t zeros, n;
    from = get_length(from, size);
    uint8_t *out = calloc(1, *size), *to = out;
    if (!out) abort();
    while (to < out + *size) {
        from = get_length(get_length(from, &zeros), &n);
        to += zeros;
        memcpy(to, from, n);
        to += n;
        from += n;
    }
    assert(to == out + *size);
    return out;
}

size_t job_pack_size(const uint8_t *packed)
{
    const uint8_t *from = packed;
    size_t left, zeros, n;
    for (from = get_length(from, &left); left; left -= zeros + n) {
        from = get_length(get_length(from, &zeros), &n);
        from += n;
    }
    return (size_t)(from - packed);
}

static uint8_t *pack(const struct job_spec *s)
{
    size_t size = offsetof(struct job_spec, text) + s->text_used;
    uint8_t *copy = mem_scratch(size);
    memcpy(copy, s, size);
    differ(copy, size);
    uint8_t *packed = job_pack_bytes(copy, size, &size);
    free(copy);
    return packed;
}

static struct job_spec *unpack(const uint8_t *from)
{
    size_t size;
    uint8_t *out = job_pack_open(from, &size);
    differ(out, size);
    return (struct job_spec *)out;
}

const struct job_spec *job_spec(const struct job *j)
{
    if (!j->spec) ((struct job *)j)->spec = unpack(j->packed);
    return j->spec;
}

struct job_spec *job_spec_edit(struct job *j)
{
    job_spec(j);
    free(j->packed);
    j->packed = NULL;
    return j->spec;
}

/* Sets the jobs for which j waits. */
static void set_after(struct job *j, const struct job_spec *s)
{
    if (j->after || !s->n_after) return; /* no order changes the jobs of a spec */
    struct job_after *a = calloc(1, sizeof *a + (size_t)s->n_after * sizeof *a->of);
    if (!a) abort();
    a->n = s->n_after;
    for (int i = 0; i < a->n; i++)
        a->of[i] = (struct job_dependency){s->after[i].job, s->after[i].any, false};
    j->after = a;
}

void job_set_facts(struct job *j)
{
    const struct job_spec *s = job_spec(j);
    const struct device_kind *k = device_find(spec_text(s, s->resources.device));
    set_after(j, s);
    j->is = (struct job_facts){
        .kind = s->kind,
        .priority = s->priority,
        .n_ranks = s->resources.ranks,
        .share = job_tp(s),
        .ring = s->parallel.sp * job_tp(s),
        .takes_gpus = k->is_gpu,
        .own_memory = k->own_memory,
        .one_node = s->parallel.transport == TRANSPORT_SHM,
        .resumes = s->checkpoint.resume != RESUME_NONE,
        .no_data = job_generates(s) || s->kind == JOB_MERGE || s->kind == JOB_SERVE,
        .wall_s = s->limits.wall_s,
        .n_after = s->n_after,
        .newer = s->n_after || spec_needs(s, WIRE_ABI_BEFORE),
    };
}

void job_rest(struct job *j)
{
    if (!j->spec) return;
    if (!j->packed) {
        job_set_facts(j);
        j->packed = pack(j->spec);
    }
    free(j->spec);
    j->spec = NULL;
    free(j->plan);
    j->plan = NULL;
}
