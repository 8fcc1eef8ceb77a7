/* wire_pack.c: packs and unpacks a message according to the table of its fields. */
#include "api/wire_pack.h"

#include "api/core/assert.h"

/* Packing builds the protobuf-c tree of a message in the caller's arena and serialises the tree
 * there. To unpack, protobuf-c allocates the tree in the arena, too. The arena's limit guards
 * against messages that are small on the wire and large in memory. While the tree is copied to
 * plain structs, every count, length and word is checked. Strings and bytes are not copied; struct
 * msg points to them in the tree. */

/* ---- packing --------------------------------------------------------------------------------- */

static void *part_pack(const struct wire_field *f, const void *record, struct arena *a)
{
    void *part = message_new(a, f->message);
    return part && !wire_fields_pack(f->of, record, a, part) ? part : NULL;
}

static int list_pack(const struct wire_field *f, const char *record, struct arena *a, char *body)
{
    const int n = *(const int *)(record + f->n_at);
    const char *const list = *(const char *const *)(record + f->at);
    assert(n >= 0 && n <= f->max);
    void **out = pointers_new(a, (size_t)n);
    if (!out) return -1;
    for (int i = 0; i < n; i++)
        if (!(out[i] = part_pack(f, list + (size_t)i * f->size, a))) return -1;
    *(size_t *)(body + f->n_pb) = (size_t)n;
    *(void ***)(body + f->pb) = out;
    return 0;
}

static void strings_pack(const struct wire_field *f, const char *record, char *body)
{
    const int n = *(const int *)(record + f->n_at);
    assert(n >= 0 && n <= f->max);
    *(size_t *)(body + f->n_pb) = (size_t)n;
    *(const char *const **)(body + f->pb) = *(const char *const *const *)(record + f->at);
}

static int field_pack(const struct wire_field *f, const char *record, struct arena *a, char *body)
{
    const char *at = record + f->at;
    char *to = body + f->pb;
    ProtobufCBinaryData *bytes = (ProtobufCBinaryData *)to;
    switch (f->type) {
    case WIRE_NUMBER: memcpy(to, at, f->size); break;
    case WIRE_FLAG: *(protobuf_c_boolean *)to = *(const bool *)at; break;
    case WIRE_TEXT: *(char **)to = (char *)at; break;
    case WIRE_LENT: *(const char **)to = *(char *const *)at ? *(const char *const *)at : ""; break;
    case WIRE_BYTES: *bytes = (ProtobufCBinaryData){f->size, (uint8_t *)at}; break;
    case WIRE_DATA:
        bytes->len = *(const size_t *)(record + f->n_at);
        bytes->data = *(uint8_t *const *)at;
        break;
    case WIRE_STRINGS: strings_pack(f, record, body); break;
    case WIRE_PART:
        if (f->when && !f->when(record)) break;
        return (*(void **)to = part_pack(f, record, a)) ? 0 : -1;
    case WIRE_LIST: return list_pack(f, record, a, body);
    case WIRE_CALL: return f->pack ? f->pack(f, record, a, body) : 0;
    case WIRE_END: break;
    }
    return 0;
}

int wire_fields_pack(const struct wire_field *f, const void *record, struct arena *a, void *body)
{
    for (; f->type; f++)
        if (field_pack(f, record, a, body)) return -1;
    return 0;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

static int number_unpack(const struct wire_field *f, const char *from, char *at, struct err *e)
{
    int64_t v;
    int32_t v32;
    memcpy(&v32, from, sizeof v32);
    v = v32;
    if (f->size == sizeof v) memcpy(&v, from, sizeof v);
    memcpy(at, from, f->size);
    return range_check(v, f->min, f->max, f->name, e);
}

static int lent_unpack(const struct wire_field *f, char *text, char *at, struct err *e)
{
    *(const char **)at = text;
    return range_check((int64_t)strlen(text), 0, (int64_t)f->size - 1, f->name, e);
}

static int bytes_unpack(const struct wire_field *f, const ProtobufCBinaryData *from, char *at,
                        struct err *e)
{
    if (from->len != f->size && (from->len || f->min))
        return err_field(e, ERR_INVALID, f->name, "%s has %zu bytes, want %zu", f->name, from->len,
                         f->size);
    if (from->len) memcpy(at, from->data, from->len);
    return 0;
}

static int data_unpack(const struct wire_field *f, const ProtobufCBinaryData *from, char *record,
                       struct err *e)
{
    *(const void **)(record + f->at) = from->data;
    *(size_t *)(record + f->n_at) = from->len;
    return range_check((int64_t)from->len, 0, f->max, f->name, e);
}

static int strings_unpack(const struct wire_field *f, const char *body, char *record, struct err *e)
{
    const size_t n = *(const size_t *)(body + f->n_pb);
    if (range_check((int64_t)n, 0, f->max, f->name, e)) return -1;
    *(int *)(record + f->n_at) = (int)n;
    *(const char *const **)(record + f->at) = *(const char *const *const *)(body + f->pb);
    return 0;
}

static int list_unpack(const struct wire_field *f, const char *body, struct arena *a, char *record,
                       struct err *e)
{
    const size_t n = *(const size_t *)(body + f->n_pb);
    const void *const *in = *(const void *const *const *)(body + f->pb);
    if (range_check((int64_t)n, f->min, f->max, f->name, e)) return -1;
    char *out = arena_alloc(a, (n ? n : 1) * f->size);
    if (!out) return err_set(e, ERR_TOO_LARGE, "no room for %zu %s", n, f->name);
    for (size_t i = 0; i < n; i++)
        if (wire_fields_unpack(f->of, in[i], a, out + i * f->size, e) < 0) return -1;
    *(int *)(record + f->n_at) = (int)n;
    *(void **)(record + f->at) = out;
    return 0;
}

static int part_unpack(const struct wire_field *f, const void *part, struct arena *a, char *record,
                       struct err *e)
{
    if (part) return wire_fields_unpack(f->of, part, a, record, e);
    if (!f->min) return 0;
    return err_field(e, ERR_INVALID, f->name, "the message has no %s", f->name);
}

static int field_unpack(const struct wire_field *f, const char *body, struct arena *a, char *record,
                        struct err *e)
{
    const char *from = body + f->pb;
    char *at = record + f->at, *text;
    switch (f->type) {
    case WIRE_NUMBER: return number_unpack(f, from, at, e);
    case WIRE_FLAG: *(bool *)at = *(const protobuf_c_boolean *)from; return 0;
    case WIRE_TEXT:
    case WIRE_LENT:
        text = *(char *const *)from;
        if (f->type == WIRE_LENT) return lent_unpack(f, text, at, e);
        return text_copy(at, f->size, text, f->name, e);
    case WIRE_BYTES: return bytes_unpack(f, (const ProtobufCBinaryData *)from, at, e);
    case WIRE_DATA: return data_unpack(f, (const ProtobufCBinaryData *)from, record, e);
    case WIRE_STRINGS: return strings_unpack(f, body, record, e);
    case WIRE_PART: return part_unpack(f, *(const void *const *)from, a, record, e);
    case WIRE_LIST: return list_unpack(f, body, a, record, e);
    case WIRE_CALL: return f->unpack(f, body, a, record, e);
    case WIRE_END: break;
    }
    return 0;
}

int wire_fields_unpack(const struct wire_field *f, const void *body, struct arena *a, void *record,
                       struct err *e)
{
    int rc = 0;
    for (; f->type && !rc; f++) rc = field_unpack(f, body, a, record, e);
    return rc;
}
