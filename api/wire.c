/* wire.c: the fields of each kind of message as a list, and the functions that pack and unpack
 * whole messages. */
#include "api/wire.h"

#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/address.h"
#include "api/core/adapter.h"
#include "api/core/removal.h"
#include "api/core/shared.h"
#include "api/core/version.h"
#include "api/join_key.h"
#include "api/wire_pack.h"

static_assert((int)MSG_HELLO == (int)SEQD__MSG__BODY_HELLO &&
                  (int)MSG_PROOF == (int)SEQD__MSG__BODY_PROOF,
              "enum msg_type numbers the members of Msg.body");

#define HOUR_MS 3600000

/* ---- rules that are not ranges, and values that are not fields of a struct ------------------- */

bool wire_name_good(const char *name)
{
    static const char legal[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:";
    return *name && *name != '-' && strlen(name) < NODE_NAME && !name[strspn(name, legal)];
}

static int node_rule(const struct wire_field *f, const void *body, struct arena *a, void *record,
                     struct err *e)
{
    const struct msg *m = record;
    if (!wire_name_good(m->node))
        return err_field(e, ERR_INVALID, "node",
                         "node has a name that is empty, begins with '-' or has characters other "
                         "than letters, digits, '.', '_', '-', ':'");
    return 0;
}

/* Ends the reading of a HELLO if its ABI is refused. */
static int abi_rule(const struct wire_field *f, const void *body, struct arena *a, void *record,
                    struct err *e)
{
    const struct msg *m = record;
    return wire_speaks(m->abi) ? 0 : 1;
}

/* Checks the address at which ranks of other nodes connect. It must be numeric, because nodes
 * might resolve a name differently. */
static int address_rule(const struct wire_field *f, const void *body, struct arena *a, void *record,
                        struct err *e)
{
    const struct msg *m = record;
    if (!*m->address || address_is_numeric(m->address)) return 0;
    return err_field(e, ERR_INVALID, "address", "address %s is not a numeric IP address",
                     m->address);
}

static int attempt_gpus_rule(const struct wire_field *f, const void *body, struct arena *a,
                             void *record, struct err *e)
{
    const struct wire_attempt *attempt = record;
    return range_check(attempt->gpus, 0, attempt->slots, "gpus", e);
}

static bool has_disk(const void *record)
{
    const struct msg *m = record;
    return m->disk.size;
}

static int disk_rule(const struct wire_field *f, const void *body, struct arena *a, void *record,
                     struct err *e)
{
    const struct msg *m = record;
    return range_check(m->disk.free, 0, m->disk.size, "disk.free", e);
}

static int record_rule(const struct wire_field *f, const void *body, struct arena *a, void *record,
                       struct err *e)
{
    struct msg *m = record;
    struct rank_msg head;
    if (m->size < sizeof head)
        return err_field(e, ERR_INVALID, "record", "record has %zu bytes, its head alone %zu",
                         m->size, sizeof head);
    memcpy(&head, m->data, sizeof head);
    if (head.abi != RANK_ABI || head.size != m->size - sizeof head)
        return err_field(e, ERR_INVALID, "record",
                         "record of abi %u and %u payload bytes in %zu bytes, want abi %u",
                         head.abi, head.size, m->size, RANK_ABI);
    m->rank = head.rank;
    return range_check(head.rank, RANK_GANG, JOB_MAX_RANKS - 1, "record.rank", e);
}

/* Checks an id that becomes the name of a directory. The id is empty if an ASSIGN names no
 * data. */
static int prepared_rule(const struct wire_field *f, const void *body, struct arena *a,
                         void *record, struct err *e)
{
    const struct msg *m = record;
    if (!*m->prepared_id || rank_prepared_id_good(m->prepared_id)) return 0;
    return err_field(e, ERR_INVALID, "prepared_id",
                     "prepared_id '%s' is not an id of prepared data: want lower-case hex digits",
                     m->prepared_id);
}

static int grants_rule(const struct wire_field *f, const void *body, struct arena *a, void *record,
                       struct err *e)
{
    const struct msg *m = record;
    for (int i = 0; i < m->n_grants; i++)
        if (m->grants[i][0] != '/' || strlen(m->grants[i]) >= RANK_PATH_SIZE)
            return err_field(e, ERR_INVALID, "grants",
                             "a grant is no absolute path of at most %d bytes", RANK_PATH_SIZE - 1);
    return 0;
}

/* Checks `offset`, the index of the first model to list. Only a request for a list of models may
 * have an offset. */
static int first_rule(const struct wire_field *f, const void *body, struct arena *a, void *record,
                      struct err *e)
{
    const struct msg *m = record;
    if (m->models || !m->offset) return 0;
    return err_field(e, ERR_INVALID, "offset",
                     "offset %lld is of no list of models: set models, or leave offset 0",
                     (long long)m->offset);
}

static int ranks_rule(const struct wire_field *f, const void *body, struct arena *a, void *record,
                      struct err *e)
{
    const struct msg *m = record;
    if (range_check(m->n_local, 1, m->n_ranks, "n_local", e)) return -1;
    return range_check(m->first_rank, 0, m->n_ranks - m->n_local, "first_rank", e);
}

static int spec_pack(const struct wire_field *f, const void *record, struct arena *a, void *body)
{
    Seqd__Assign *w = body;
    return (w->spec = wire_spec_pack(((const struct msg *)record)->spec, a)) ? 0 : -1;
}

static int spec_unpack(const struct wire_field *f, const void *body, struct arena *a, void *record,
                       struct err *e)
{
    return wire_spec_unpack(((const Seqd__Assign *)body)->spec, a, &((struct msg *)record)->spec,
                            e);
}

static int blob_pack(const struct wire_field *f, const void *record, struct arena *a, void *body)
{
    const struct rank_blob *blob = record;
    assert(blob->size >= 0 && blob->size <= BLOB_SIZE);
    ((Seqd__Blob *)body)->data = (ProtobufCBinaryData){(size_t)blob->size, (uint8_t *)blob->data};
    return 0;
}

static int blob_unpack(const struct wire_field *f, const void *body, struct arena *a, void *record,
                       struct err *e)
{
    const ProtobufCBinaryData *data = &((const Seqd__Blob *)body)->data;
    struct rank_blob *blob = record;
    if (range_check((int64_t)data->len, 0, BLOB_SIZE, "blobs.data", e)) return -1;
    blob->size = (int32_t)data->len;
    if (data->len) memcpy(blob->data, data->data, data->len);
    return 0;
}

static int profile_pack(const struct wire_field *f, const void *record, struct arena *a, void *body)
{
    const struct msg *m = record;
    Seqd__Profile *w = body;
    w->n_number = (size_t)PROFILE_NUMBERS;
    w->number = arena_alloc(a, sizeof m->profile);
    if (!w->number) return -1;
    memcpy(w->number, &m->profile, sizeof m->profile);
    return 0;
}

static int profile_unpack(const struct wire_field *f, const void *body, struct arena *a,
                          void *record, struct err *e)
{
    const Seqd__Profile *w = body;
    struct msg *m = record;
    if (w->n_number != (size_t)PROFILE_NUMBERS)
        return err_set(e, ERR_INVALID, "the profile has %zu numbers, want %d", w->n_number,
                       PROFILE_NUMBERS);
    memcpy(&m->profile, w->number, sizeof m->profile);
    return profile_check(&m->profile, e);
}

/* ---- the fields of each kind, in the order in which they are checked ------------------------- */

/* clang-format off */
#define BODY(kind, field)  ((Seqd__##kind *)0)->field
#define IN(member)         ((RECORD *)0)->member
#define BOTH(kind, field, member) IN_NAME #field, offsetof(RECORD, member), offsetof(Seqd__##kind, field)
#define SAME(a, b)         (sizeof(a) * sizeof(char[sizeof(a) == sizeof(b) ? 1 : -1]))
#define END                {WIRE_END}
#define NUMBER(kind, field, member, lo, hi) {WIRE_NUMBER, BOTH(kind, field, member), SAME(BODY(kind, field), IN(member)), .min = lo, .max = hi}
#define ANY(kind, field, member)       NUMBER(kind, field, member, INT64_MIN, INT64_MAX)
#define FLAG(kind, field, member)      {WIRE_FLAG, BOTH(kind, field, member), SAME(IN(member), bool)}
#define TEXT(kind, field, member)      {WIRE_TEXT, BOTH(kind, field, member), sizeof IN(member)}
#define LENT(kind, field, member, room) {WIRE_LENT, BOTH(kind, field, member), room}
#define BYTES(kind, field, member, needed) {WIRE_BYTES, BOTH(kind, field, member), sizeof IN(member), .min = needed}
#define DATA(kind, field, most)        {WIRE_DATA, BOTH(kind, field, data), .n_at = offsetof(RECORD, size), .max = most}
#define COUNT(kind, field, n)          .n_at = offsetof(RECORD, n), .n_pb = offsetof(Seqd__##kind, n_##field)
#define STRINGS(kind, field, member, n, most) {WIRE_STRINGS, BOTH(kind, field, member), COUNT(kind, field, n), .max = most}
#define PART(kind, field, rows, d, ...) {WIRE_PART, #field, .pb = offsetof(Seqd__##kind, field), .of = rows, .message = &d, __VA_ARGS__}
#define LIST(kind, field, member, n, least, most, rows, d) {WIRE_LIST, BOTH(kind, field, member), sizeof *IN(member), COUNT(kind, field, n), .min = least, .max = most, .of = rows, .message = &d}
#define CALL(p, u)                     {WIRE_CALL, .pack = p, .unpack = u}
#define RULE(u)                        CALL(NULL, u)
#define ATTEMPT(kind)                  PART(kind, attempt, attempt_rows, seqd__attempt__descriptor, .min = 1)
#define ERROR(kind)                    PART(kind, error, error_rows, seqd__error__descriptor)
#define GPUS(kind)                     LIST(kind, gpus, gpus, n_gpus, 0, GPU_MAX, gpu_rows, seqd__gpu__descriptor), \
                                       {WIRE_CALL, .pb = offsetof(Seqd__##kind, gpus), .n_pb = offsetof(Seqd__##kind, n_gpus), .pack = wire_far_pack, .unpack = wire_far_unpack}
#define ATTEMPTS(kind)                 LIST(kind, attempts, attempts, n_attempts, 0, WIRE_ATTEMPTS, attempts_rows, seqd__attempt__descriptor)
#define GRANTS(kind)                   STRINGS(kind, grants, grants, n_grants, WIRE_GRANTS), RULE(grants_rule)

#define IN_NAME ""
#define RECORD struct wire_attempt
static const struct wire_field attempts_rows[] = {
    NUMBER(Attempt, job, job, 1, INT64_MAX), NUMBER(Attempt, epoch, epoch, 1, INT64_MAX),
    NUMBER(Attempt, slots, slots, 0, JOB_MAX_RANKS), ANY(Attempt, gpus, gpus), RULE(attempt_gpus_rule), END};
#undef IN_NAME
#undef RECORD
#define IN_NAME "gpu."
#define RECORD struct gpu
static const struct wire_field gpu_rows[] = {
    TEXT(Gpu, uuid, uuid), TEXT(Gpu, name, name), TEXT(Gpu, bus, bus),
    ANY(Gpu, memory_size, memory_size), ANY(Gpu, memory_free, memory_free), ANY(Gpu, major, major), ANY(Gpu, minor, minor),
    ANY(Gpu, health, health), ANY(Gpu, xid, xid), ANY(Gpu, n_processes, n_processes), ANY(Gpu, ecc_errors, ecc_errors), END};
#undef IN_NAME
#undef RECORD
#define IN_NAME "blobs."
#define RECORD struct rank_blob
static const struct wire_field blob_rows[] = {NUMBER(Blob, rank, rank, 0, JOB_MAX_RANKS - 1), CALL(blob_pack, blob_unpack), END};
#undef IN_NAME
#undef RECORD
#define RECORD struct msg
#define IN_NAME "error."
static const struct wire_field error_rows[] = {NUMBER(Error, code, err.code, 0, ERR_N - 1), TEXT(Error, field, err.field), TEXT(Error, text, err.text), END};
#undef IN_NAME
#define IN_NAME "disk."
static const struct wire_field disk_rows[] = {
    NUMBER(Disk, jobs, disk.jobs, 0, INT64_MAX), NUMBER(Disk, prepared, disk.prepared, 0, INT64_MAX),
    NUMBER(Disk, size, disk.size, 0, INT64_MAX), ANY(Disk, free, disk.free), RULE(disk_rule), END};
#undef IN_NAME
#define IN_NAME ""
static const struct wire_field attempt_rows[] = {NUMBER(Attempt, job, job, 1, INT64_MAX), NUMBER(Attempt, epoch, epoch, 1, INT64_MAX), END};

static const struct wire_field hello[] = {
    ANY(Hello, abi, abi), TEXT(Hello, node, node), RULE(node_rule), RULE(abi_rule), BYTES(Hello, instance, instance, 1), TEXT(Hello, version, version),
    NUMBER(Hello, n_slots, n_slots, 0, 4096), ANY(Hello, n_cores, n_cores), ANY(Hello, memory_size, memory_size),
    TEXT(Hello, address, address), RULE(address_rule), FLAG(Hello, emulated, emulated), TEXT(Hello, sandbox, sandbox), NUMBER(Hello, shared, shared, 0, SHARED_ID_MAX), GPUS(Hello), ATTEMPTS(Hello), END};
static const struct wire_field welcome[] = {NUMBER(Welcome, heartbeat_ms, heartbeat_ms, 1, HOUR_MS), ANY(Welcome, abi, abi), END};
static const struct wire_field refused[] = {TEXT(Refused, reason, reason), NUMBER(Refused, retry_ms, retry_ms, 0, HOUR_MS), ANY(Refused, abi, abi), END};
static const struct wire_field heartbeat[] = {
    PART(Heartbeat, disk, disk_rows, seqd__disk__descriptor, .when = has_disk), NUMBER(Heartbeat, shared, shared, 0, SHARED_ID_MAX), GPUS(Heartbeat), END};
static const struct wire_field report[] = {
    ATTEMPT(Report), NUMBER(Report, seq, seq, 0, INT64_MAX), DATA(Report, record, INT64_MAX), RULE(record_rule), FLAG(Report, oom, oom), END};
static const struct wire_field log_fields[] = {
    ATTEMPT(Log), NUMBER(Log, rank, rank, 0, JOB_MAX_RANKS - 1), DATA(Log, data, WIRE_CHUNK), NUMBER(Log, offset, offset, 0, INT64_MAX - WIRE_CHUNK), END};
static const struct wire_field described[] = {ANY(Described, request, request), TEXT(Described, config, config), ERROR(Described), END};
static const struct wire_field fetched[] = {
    ANY(Fetched, request, request), NUMBER(Fetched, total, total, 0, INT64_MAX / 2), ANY(Fetched, stamp, stamp),
    DATA(Fetched, data, WIRE_TRACE_SIZE), NUMBER(Fetched, offset, offset, 0, INT64_MAX - WIRE_CHUNK), ERROR(Fetched), END};
static const struct wire_field assign[] = {
    ATTEMPT(Assign), NUMBER(Assign, task, task, TASK_PREPARE, TASK_RUN), NUMBER(Assign, n_ranks, n_ranks, 1, JOB_MAX_RANKS),
    ANY(Assign, n_local, n_local), ANY(Assign, first_rank, first_rank), RULE(ranks_rule),
    NUMBER(Assign, memory_limit, memory_limit, 0, INT64_MAX), NUMBER(Assign, submitted_s, submitted_s, 0, INT64_MAX / 1000),
    NUMBER(Assign, held, held, 0, INT64_MAX / 4), TEXT(Assign, prepared_id, prepared_id), RULE(prepared_rule), BYTES(Assign, key, key, 0), GRANTS(Assign),
    CALL(wire_uuids_pack, wire_uuids_unpack), CALL(spec_pack, spec_unpack), END};
static const struct wire_field blobs[] = {ATTEMPT(Blobs), LIST(Blobs, blobs, blobs, n_blobs, 1, JOB_MAX_RANKS, blob_rows, seqd__blob__descriptor), END};
static const struct wire_field stop[] = {TEXT(Stop, reason, reason), ATTEMPT(Stop), END};
static const struct wire_field ack[] = {
    NUMBER(Ack, seq, seq, 0, INT64_MAX), NUMBER(Ack, rank, rank, -1, JOB_MAX_RANKS - 1), NUMBER(Ack, offset, offset, 0, INT64_MAX), ATTEMPT(Ack), END};
static const struct wire_field expect[] = {FLAG(Expect, more, more), ATTEMPTS(Expect), END};
static const struct wire_field fetch[] = {
    ANY(Fetch, request, request), NUMBER(Fetch, job, job, 1, INT64_MAX), NUMBER(Fetch, offset, offset, 0, INT64_MAX - WIRE_CHUNK), TEXT(Fetch, path, path), END};
static const struct wire_field describe[] = {
    ANY(Describe, request, request), FLAG(Describe, models, models), FLAG(Describe, adapter, adapter), NUMBER(Describe, offset, offset, 0, INT32_MAX), RULE(first_rule), GRANTS(Describe), STRINGS(Describe, files, files, n_files, WIRE_FILES), TEXT(Describe, path, path), END};
static const struct wire_field trace[] = {
    ANY(Trace, request, request), NUMBER(Trace, seq_len, trace.seq_len, 1, JOB_MAX_SEQ), NUMBER(Trace, seed, trace.seed, 0, INT64_MAX),
    NUMBER(Trace, first, trace.first, 0, INT64_MAX / 2), NUMBER(Trace, count, trace.count, 1, 65536), NUMBER(Trace, max_fragments, trace.max_fragments, 0, 1 << 20),
    TEXT(Trace, packing, trace.packing), TEXT(Trace, overlong, trace.overlong), TEXT(Trace, prepared_id, prepared_id), RULE(prepared_rule), END};
static const struct wire_field forget[] = {ATTEMPT(Forget), END};
static const struct wire_field profile[] = {CALL(profile_pack, profile_unpack), END};
static const struct wire_field join[] = {
    TEXT(Join, node, node), RULE(node_rule), LENT(Join, token, token, WIRE_TOKEN_SIZE), LENT(Join, csr, pem, PKI_PEM_SIZE), END};
static const struct wire_field joined[] = {LENT(Joined, cert, pem, PKI_PEM_SIZE), END};
static const struct wire_field removal[] = {NUMBER(Remove, job, job, 1, INT64_MAX), NUMBER(Remove, what, what, 0, REMOVAL_N - 1), END};
static const struct wire_field removed[] = {
    NUMBER(Removed, size, total, 0, INT64_MAX), ERROR(Removed), NUMBER(Removed, job, job, 1, INT64_MAX), NUMBER(Removed, what, what, 0, REMOVAL_N - 1), END};
static const struct wire_field leaving[] = {NUMBER(Leaving, end_s, end_s, 0, WIRE_MAX_TIME_S), NUMBER(Leaving, margin_s, margin_s, 0, WIRE_MAX_TIME_S), END};
static const struct wire_field quit[] = {TEXT(Quit, reason, reason), NUMBER(Quit, code, code, 0, 255), END};
static const struct wire_field prove[] = {LENT(Prove, nonce, token, JOIN_NONCE_HEX), END};
static const struct wire_field proof[] = {LENT(Proof, proof, token, JOIN_NONCE_HEX), END};
static const struct wire_field ask[] = {
    ATTEMPT(Ask), NUMBER(Ask, request, request, 1, INT64_MAX), NUMBER(Ask, endpoint, endpoint, 0, SERVE_MODELS - 1),
    NUMBER(Ask, named, named, -1, SPEC_ADAPTERS - 1), TEXT(Ask, model, model), TEXT(Ask, user, user), FLAG(Ask, more, more), DATA(Ask, data, WIRE_CHUNK), END};
static const struct wire_field answer[] = {
    ATTEMPT(Answer), NUMBER(Answer, request, request, 1, INT64_MAX), NUMBER(Answer, status, status, 0, 599),
    FLAG(Answer, stream, stream), FLAG(Answer, more, more), DATA(Answer, data, WIRE_CHUNK),
    NUMBER(Answer, tokens, total, 0, INT32_MAX), END};
static const struct wire_field credit[] = {
    ATTEMPT(Credit), NUMBER(Credit, request, request, 1, INT64_MAX), NUMBER(Credit, total, total, 1, WIRE_WINDOW), END};
static const struct wire_field drop[] = {ATTEMPT(Drop), NUMBER(Drop, request, request, 1, INT64_MAX), END};
/* clang-format on */

static const struct row {
    uint32_t since; /* ABI */
    const ProtobufCMessageDescriptor *body;
    const struct wire_field *fields;
} rows[] = {
    [MSG_HELLO] = {6, &seqd__hello__descriptor, hello},
    [MSG_HEARTBEAT] = {6, &seqd__heartbeat__descriptor, heartbeat},
    [MSG_REPORT] = {6, &seqd__report__descriptor, report},
    [MSG_LOG] = {6, &seqd__log__descriptor, log_fields},
    [MSG_DESCRIBED] = {6, &seqd__described__descriptor, described},
    [MSG_FETCHED] = {6, &seqd__fetched__descriptor, fetched},
    [MSG_WELCOME] = {6, &seqd__welcome__descriptor, welcome},
    [MSG_ASSIGN] = {6, &seqd__assign__descriptor, assign},
    [MSG_BLOBS] = {6, &seqd__blobs__descriptor, blobs},
    [MSG_STOP] = {6, &seqd__stop__descriptor, stop},
    [MSG_ACK] = {6, &seqd__ack__descriptor, ack},
    [MSG_EXPECT] = {6, &seqd__expect__descriptor, expect},
    [MSG_FETCH] = {6, &seqd__fetch__descriptor, fetch},
    [MSG_DESCRIBE] = {6, &seqd__describe__descriptor, describe},
    [MSG_FORGET] = {6, &seqd__forget__descriptor, forget},
    [MSG_TRACE] = {6, &seqd__trace__descriptor, trace},
    [MSG_PROFILE] = {6, &seqd__profile__descriptor, profile},
    [MSG_REFUSED] = {6, &seqd__refused__descriptor, refused},
    [MSG_JOIN] = {7, &seqd__join__descriptor, join},
    [MSG_JOINED] = {7, &seqd__joined__descriptor, joined},
    [MSG_REMOVE] = {7, &seqd__remove__descriptor, removal},
    [MSG_REMOVED] = {7, &seqd__removed__descriptor, removed},
    [MSG_SAVE] = {7, &seqd__stop__descriptor, stop},
    [MSG_LEAVING] = {7, &seqd__leaving__descriptor, leaving},
    [MSG_QUIT] = {7, &seqd__quit__descriptor, quit},
    [MSG_ASK] = {7, &seqd__ask__descriptor, ask},
    [MSG_ANSWER] = {7, &seqd__answer__descriptor, answer},
    [MSG_CREDIT] = {7, &seqd__credit__descriptor, credit},
    [MSG_DROP] = {7, &seqd__drop__descriptor, drop},
    [MSG_PROVE] = {7, &seqd__prove__descriptor, prove},
    [MSG_PROOF] = {7, &seqd__proof__descriptor, proof},
};
_Static_assert(WIRE_CHUNK == RANK_PIECE_SIZE, "a piece is one message");
_Static_assert(sizeof rows / sizeof rows[0] == MSG_TYPE_N, "every message has its row");
#define N_ROWS ((int)(sizeof rows / sizeof rows[0]))

/* ---- versions -------------------------------------------------------------------------------- */

bool wire_speaks(uint32_t abi)
{
    return abi == WIRE_ABI || abi == WIRE_ABI_BEFORE;
}

bool wire_knows(uint32_t abi, enum msg_type type)
{
    return (int)type > 0 && (int)type < N_ROWS && rows[type].since <= abi;
}

uint32_t wire_choose(uint32_t theirs)
{
    return theirs < WIRE_ABI ? WIRE_ABI_BEFORE : WIRE_ABI;
}

void wire_refusal(uint32_t abi, char *out, size_t size)
{
    const char *fix = abi > WIRE_ABI ? "upgrade seqd, and seqw after it" : "upgrade seqw";
    snprintf(out, size,
             "seqw speaks another version of the protocol: %u, and this seqd, %s, speaks %u and "
             "%u: %s",
             abi, SEQD_VERSION, WIRE_ABI_BEFORE, WIRE_ABI, fix);
}

/* ---- whole messages -------------------------------------------------------------------------- */

void *wire_pack(const struct msg *m, struct arena *a, size_t *size)
{
    return wire_pack_for(m, WIRE_ABI, a, size);
}

void *wire_pack_for(const struct msg *m, uint32_t abi, struct arena *a, size_t *size)
{
    assert((int)m->type > 0 && (int)m->type < N_ROWS);
    const struct row *row = &rows[m->type];
    Seqd__Msg w = SEQD__MSG__INIT;
    if (!wire_knows(abi, m->type)) return NULL;
    void *body = message_new(a, row->body);
    if (!body || wire_fields_pack(row->fields, m, a, body)) return NULL;
    if (m->type == MSG_ASSIGN) wire_spec_cut(((Seqd__Assign *)body)->spec, abi);
    w.body_case = (Seqd__Msg__BodyCase)m->type;
    w.hello = body; /* every member of the union is a pointer to a message */
    *size = seqd__msg__get_packed_size(&w);
    if (*size > WIRE_MAX_SIZE) return NULL;
    uint8_t *out = arena_alloc(a, *size ? *size : 1);
    if (out) seqd__msg__pack(&w, out);
    return out;
}

static void *unpack_alloc(void *arena, size_t size)
{
    return arena_alloc(arena, size ? size : 1);
}

static void unpack_free(void *arena, void *p)
{
}

int wire_unpack(const void *data, size_t size, struct arena *a, struct msg *m, struct err *e)
{
    memset(m, 0, sizeof *m);
    if (size > WIRE_MAX_SIZE)
        return err_set(e, ERR_TOO_LARGE, "the message has %zu bytes, at most %d are allowed", size,
                       WIRE_MAX_SIZE);
    ProtobufCAllocator from_arena = {unpack_alloc, unpack_free, a};
    const Seqd__Msg *w = seqd__msg__unpack(&from_arena, size, data);
    if (!w)
        return err_set(e, ERR_INVALID, "a message of %zu bytes is malformed or too large", size);
    int type = (int)w->body_case;
    if (type <= 0 || type >= N_ROWS)
        return err_set(e, ERR_INVALID, "the message is of a kind that this version does not know");
    m->type = (enum msg_type)type;
    return wire_fields_unpack(rows[type].fields, w->hello, a, m, e) < 0 ? -1 : 0;
}
