/* wire_pack.h: packing and unpacking of the values inside messages: the job spec (wire_spec.c),
 * GPUs (wire_gpu.c), errors and removals (wire_removal.c), for wire.c, which has the messages. No
 * other file includes it: it shows protobuf-c. */
#ifndef SEQD_API_WIRE_PACK_H
#define SEQD_API_WIRE_PACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "api/cluster.pb-c.h"
#include "api/core/err.h"
#include "api/core/mem.h"
#include "api/wire.h"

struct job_spec;

/* Makes a zeroed message of the given kind; NULL when the arena is full. */
static inline void *message_new(struct arena *a, const ProtobufCMessageDescriptor *d)
{
    ProtobufCMessage *m = arena_alloc(a, d->sizeof_message);
    if (m) d->message_init(m);
    return m;
}

/* Makes room for n pointers; n = 0 gives room for one, so that NULL means "the arena is full"
 * only. */
static inline void *pointers_new(struct arena *a, size_t n)
{
    return arena_alloc(a, (n ? n : 1) * sizeof(void *));
}

static inline int text_copy(char *out, size_t size, const char *in, const char *field,
                            struct err *e)
{
    size_t len = strlen(in);
    if (len >= size)
        return err_field(e, ERR_TOO_LARGE, field, "%s has %zu bytes, at most %zu are allowed",
                         field, len, size - 1);
    memcpy(out, in, len + 1);
    return 0;
}

static inline int range_check(int64_t v, int64_t min, int64_t max, const char *field, struct err *e)
{
    if (v >= min && v <= max) return 0;
    return err_field(e, ERR_INVALID, field, "%s is %lld, allowed are %lld to %lld", field,
                     (long long)v, (long long)min, (long long)max);
}

/* Packs a spec. NULL: the arena is full. */
Seqd__Spec *wire_spec_pack(const struct job_spec *s, struct arena *a);
/* Clears the values for which a peer that speaks abi has no field. */
void wire_spec_cut(Seqd__Spec *w, uint32_t abi);
/* Unpacks a spec. *out lies in the arena. A value for which the peer's version has no field is at
 * its default. fails: ERR_INVALID naming the field, ERR_TOO_LARGE. */
int wire_spec_unpack(const Seqd__Spec *w, struct arena *a, const struct job_spec **out,
                     struct err *e);
/* Pack and unpack m->gpus of HELLO and HEARTBEAT, and m->uuids of ASSIGN, after m->n_local. -1
 * while packing: the arena is full. */
int wire_gpus_pack(const struct gpu *list, int n, struct arena *a, size_t *n_out, Seqd__Gpu ***out);
int wire_gpus_unpack(size_t n, Seqd__Gpu **in, struct arena *a, struct msg *m, struct err *e);
int wire_uuids_pack(const struct msg *m, struct arena *a, size_t *n, char ***out);
int wire_uuids_unpack(size_t n, char **in, struct arena *a, struct msg *m, struct err *e);

/* Packs an error. NULL: the arena is full. A message without an error unpacks as ERR_NONE. */
Seqd__Error *wire_error_pack(const struct err *in, struct arena *a);
int wire_error_unpack(const Seqd__Error *w, struct err *out, struct err *e);
int wire_remove_pack(const struct msg *m, struct arena *a, void *body);
int wire_remove_unpack(const void *body, struct arena *a, struct msg *m, struct err *e);
int wire_removed_pack(const struct msg *m, struct arena *a, void *body);
int wire_removed_unpack(const void *body, struct arena *a, struct msg *m, struct err *e);

#endif
