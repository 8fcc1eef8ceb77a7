/* wire_pack.h: describes a message as a list of its fields, which wire_pack.c packs and unpacks.
 * The lists are in wire.c. The job spec (wire_spec.c) and the values of GPUs (wire_gpu.c) have
 * functions of their own. Only wire*.c include this header, because it exposes protobuf-c. */
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

enum wire_type {
    WIRE_END,
    WIRE_NUMBER,  /* an integer that has the same size in the plain struct and in the struct of
                   * protobuf-c */
    WIRE_FLAG,    /* bool member */
    WIRE_TEXT,    /* char[size] member */
    WIRE_LENT,    /* const char * member in the arena, shorter than size; NULL is packed as "" */
    WIRE_BYTES,   /* unsigned char[size] member; if min is 0, the field may be left out */
    WIRE_DATA,    /* const void * member in the arena, at most max bytes; the size_t member at n_at
                   * has its size */
    WIRE_STRINGS, /* const char *const * member in the arena, at most max strings; the int member
                   * at n_at has their number */
    WIRE_PART,    /* a message described by the rows `of`; its members are in the struct that has
                   * this field. If min is 0, the message may be missing */
    WIRE_LIST,    /* an array in the arena of min to max structs of `size` bytes. The rows `of`
                   * describe the message of each struct. The int member at n_at has the number of
                   * structs */
    WIRE_CALL,    /* a pair of functions; if pack is NULL, it is a rule about the fields above this
                   * row */
};

/* One field, with its offset `at` in a plain struct and its offset `pb` in the struct of
 * protobuf-c. */
struct wire_field {
    enum wire_type type;
    const char *name; /* in errors */
    size_t at, pb, size;
    size_t n_at, n_pb; /* WIRE_DATA, WIRE_STRINGS, WIRE_LIST: offsets of the count */
    int64_t min, max;
    const struct wire_field *of; /* WIRE_PART, WIRE_LIST */
    const ProtobufCMessageDescriptor *message;
    bool (*when)(const void *record); /* WIRE_PART: tells whether to pack the part; if NULL, the
                                       * part is always packed */
    /* The functions of WIRE_CALL. pack returns -1 if the arena is full. unpack returns -1 on an
     * error. It returns 1 if the message is of an unknown version; the rows after this row are
     * then not read. */
    int (*pack)(const struct wire_field *f, const void *record, struct arena *a, void *body);
    int (*unpack)(const struct wire_field *f, const void *body, struct arena *a, void *record,
                  struct err *e);
};

/* Packs the members of a record into body, a message of protobuf-c. Returns -1 if the arena is
 * full. */
int wire_fields_pack(const struct wire_field *f, const void *record, struct arena *a, void *body);
/* Unpacks and checks the fields in the order of the rows. Returns 1 if a row ended the reading
 * early. Fails with ERR_INVALID or ERR_TOO_LARGE, and the error names the field. */
int wire_fields_unpack(const struct wire_field *f, const void *body, struct arena *a, void *record,
                       struct err *e);

/* Makes a zeroed message of the given kind. Returns NULL if the arena is full. */
static inline void *message_new(struct arena *a, const ProtobufCMessageDescriptor *d)
{
    ProtobufCMessage *m = arena_alloc(a, d->sizeof_message);
    if (m) d->message_init(m);
    return m;
}

/* Makes room for n pointers. If n is 0, makes room for one pointer, so that NULL always means that
 * the arena is full. */
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

/* Packs a spec. Returns NULL if the arena is full. */
Seqd__Spec *wire_spec_pack(const struct job_spec *s, struct arena *a);
/* Clears values for which a peer that speaks abi has no field. */
void wire_spec_cut(Seqd__Spec *w, uint32_t abi);
/* Unpacks a spec. *out is memory of the arena. If the peer's version has no field for a value, the
 * value gets its default. Fails with ERR_INVALID, which names the field, or with ERR_TOO_LARGE. */
int wire_spec_unpack(const Seqd__Spec *w, struct arena *a, const struct job_spec **out,
                     struct err *e);

/* Pack and unpack two values of a struct msg: the UUIDs of ASSIGN, and the distances between the
 * GPUs of HELLO and HEARTBEAT, whose list is at pb and n_pb. The rows of these two values come
 * after the rows that they depend on. */
int wire_far_pack(const struct wire_field *f, const void *record, struct arena *a, void *body);
int wire_far_unpack(const struct wire_field *f, const void *body, struct arena *a, void *record,
                    struct err *e);
int wire_uuids_pack(const struct wire_field *f, const void *record, struct arena *a, void *body);
int wire_uuids_unpack(const struct wire_field *f, const void *body, struct arena *a, void *record,
                      struct err *e);

#endif
