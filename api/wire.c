/* wire.c: packs and unpacks each kind of message by a pair of functions; wire_*.c have those for
 * specs, GPUs and removals. */
#include "api/wire.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "api/address.h"
#include "api/core/version.h"
#include "api/wire_pack.h"

/* Packing builds the protobuf-c tree of a message in the caller's arena and serialises it there.
 * Unpacking lets protobuf-c allocate from the arena alone, whose limit is the answer to messages
 * that are small on the wire and large in memory; then every count, length and word is checked
 * while the tree is copied to plain structs. Strings and bytes of struct msg stay where protobuf-c
 * put them. */

static_assert((int)MSG_HELLO == (int)SEQD__MSG__BODY_HELLO &&
                  (int)MSG_REMOVED == (int)SEQD__MSG__BODY_REMOVED,
              "enum msg_type numbers the members of Msg.body");

/* ---- attempts -------------------------------------------------------------------------------- */

static Seqd__Attempt *attempt_pack(int64_t job, int64_t epoch, struct arena *a)
{
    Seqd__Attempt *w = message_new(a, &seqd__attempt__descriptor);
    if (!w) return NULL;
    w->job = job;
    w->epoch = epoch;
    return w;
}

static int attempt_unpack(const Seqd__Attempt *w, int64_t *job, int64_t *epoch, struct err *e)
{
    if (!w) return err_field(e, ERR_INVALID, "attempt", "the message names no attempt");
    *job = w->job;
    *epoch = w->epoch;
    if (range_check(w->job, 1, INT64_MAX, "job", e) < 0) return -1;
    return range_check(w->epoch, 1, INT64_MAX, "epoch", e);
}

static int attempts_pack(const struct msg *m, struct arena *a, size_t *n, Seqd__Attempt ***out)
{
    assert(m->n_attempts >= 0 && m->n_attempts <= WIRE_ATTEMPTS);
    *n = (size_t)m->n_attempts;
    *out = pointers_new(a, *n);
    if (!*out) return -1;
    for (size_t i = 0; i < *n; i++) {
        (*out)[i] = attempt_pack(m->attempts[i].job, m->attempts[i].epoch, a);
        if (!(*out)[i]) return -1;
        (*out)[i]->slots = m->attempts[i].slots;
        (*out)[i]->gpus = m->attempts[i].gpus;
    }
    return 0;
}

static int attempts_unpack(size_t n, Seqd__Attempt **in, struct msg *m, struct arena *a,
                           struct err *e)
{
    if (range_check((int64_t)n, 0, WIRE_ATTEMPTS, "attempts", e) < 0) return -1;
    struct wire_attempt *out = arena_alloc(a, (n ? n : 1) * sizeof *out);
    if (!out) return err_set(e, ERR_TOO_LARGE, "no room for %zu attempts", n);
    for (size_t i = 0; i < n; i++) {
        if (attempt_unpack(in[i], &out[i].job, &out[i].epoch, e) < 0) return -1;
        if (range_check(in[i]->slots, 0, JOB_MAX_RANKS, "slots", e) < 0) return -1;
        if (range_check(in[i]->gpus, 0, in[i]->slots, "gpus", e) < 0) return -1;
        out[i].slots = in[i]->slots;
        out[i].gpus = in[i]->gpus;
    }
    m->n_attempts = (int)n;
    m->attempts = out;
    return 0;
}

/* ---- one pair of functions per kind of message ----------------------------------------------- */

static int hello_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Hello *w = body;
    w->abi = m->abi;
    w->node = (char *)m->node;
    w->version = (char *)m->version;
    w->instance = (ProtobufCBinaryData){sizeof m->instance, (uint8_t *)m->instance};
    w->n_slots = m->n_slots;
    w->n_cores = m->n_cores;
    w->memory_size = m->memory_size;
    w->address = (char *)m->address;
    w->emulated = m->emulated;
    if (wire_gpus_pack(m->gpus, m->n_gpus, a, &w->n_gpus, &w->gpus) < 0) return -1;
    return attempts_pack(m, a, &w->n_attempts, &w->attempts);
}

/* Checks the address at which ranks of other nodes connect. It must be numeric: nodes might resolve
 * a name differently. */
static int address_unpack(const char *in, char out[RANK_ADDRESS_SIZE], struct err *e)
{
    if (text_copy(out, RANK_ADDRESS_SIZE, in, "address", e) < 0) return -1;
    if (!*out || address_is_numeric(out)) return 0;
    return err_field(e, ERR_INVALID, "address", "address %s is not a numeric IP address", out);
}

bool wire_name_good(const char *name)
{
    static const char legal[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:";
    return *name && strlen(name) < NODE_NAME && !name[strspn(name, legal)];
}

static int name_unpack(const char *in, struct msg *m, struct err *e)
{
    if (text_copy(m->node, sizeof m->node, in, "node", e) < 0) return -1;
    if (wire_name_good(m->node)) return 0;
    return err_field(e, ERR_INVALID, "node",
                     "node has a name that is empty or has characters other than letters, "
                     "digits, '.', '_', '-', ':'");
}

static int hello_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Hello *w = body;
    m->abi = w->abi;
    m->n_slots = w->n_slots;
    m->n_cores = w->n_cores;
    m->memory_size = w->memory_size;
    if (name_unpack(w->node, m, e) < 0) return -1;
    if (!wire_speaks(m->abi)) return 0; /* it is refused, and nothing else of it is read */
    if (w->instance.len != sizeof m->instance)
        return err_field(e, ERR_INVALID, "instance", "instance has %zu bytes, want %zu",
                         w->instance.len, sizeof m->instance);
    memcpy(m->instance, w->instance.data, sizeof m->instance);
    if (text_copy(m->version, sizeof m->version, w->version, "version", e) < 0) return -1;
    if (range_check(w->n_slots, 0, 4096, "n_slots", e) < 0) return -1;
    if (address_unpack(w->address, m->address, e) < 0) return -1;
    m->emulated = w->emulated;
    if (wire_gpus_unpack(w->n_gpus, w->gpus, a, m, e) < 0) return -1;
    return attempts_unpack(w->n_attempts, w->attempts, m, a, e);
}

#define HOUR_MS 3600000

static int welcome_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Welcome *w = body;
    w->heartbeat_ms = m->heartbeat_ms;
    w->abi = m->abi;
    return 0;
}

static int welcome_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Welcome *w = body;
    m->heartbeat_ms = w->heartbeat_ms;
    m->abi = w->abi;
    return range_check(w->heartbeat_ms, 1, HOUR_MS, "heartbeat_ms", e);
}

static int refused_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Refused *w = body;
    w->reason = (char *)m->reason;
    w->retry_ms = m->retry_ms;
    w->abi = m->abi;
    return 0;
}

static int refused_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Refused *w = body;
    m->retry_ms = w->retry_ms;
    m->abi = w->abi;
    if (text_copy(m->reason, sizeof m->reason, w->reason, "reason", e) < 0) return -1;
    return range_check(w->retry_ms, 0, HOUR_MS, "retry_ms", e);
}

static int heartbeat_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Heartbeat *w = body;
    if (m->disk.size) {
        if (!(w->disk = message_new(a, &seqd__disk__descriptor))) return -1;
        w->disk->jobs = m->disk.jobs;
        w->disk->prepared = m->disk.prepared;
        w->disk->size = m->disk.size;
        w->disk->free = m->disk.free;
    }
    return wire_gpus_pack(m->gpus, m->n_gpus, a, &w->n_gpus, &w->gpus);
}

static int heartbeat_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Heartbeat *w = body;
    if (w->disk) {
        const Seqd__Disk *d = w->disk;
        m->disk = (struct disk_use){d->jobs, d->prepared, d->size, d->free};
        if (range_check(d->jobs, 0, INT64_MAX, "disk.jobs", e) ||
            range_check(d->prepared, 0, INT64_MAX, "disk.prepared", e) ||
            range_check(d->size, 0, INT64_MAX, "disk.size", e) ||
            range_check(d->free, 0, d->size, "disk.free", e))
            return -1;
    }
    return wire_gpus_unpack(w->n_gpus, w->gpus, a, m, e);
}

static int report_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Report *w = body;
    w->attempt = attempt_pack(m->job, m->epoch, a);
    w->seq = m->seq;
    w->record = (ProtobufCBinaryData){m->size, (uint8_t *)m->data};
    w->oom = m->oom;
    return w->attempt ? 0 : -1;
}

static int report_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Report *w = body;
    struct rank_msg head;
    m->seq = w->seq;
    m->oom = w->oom;
    m->data = w->record.data;
    m->size = w->record.len;
    if (attempt_unpack(w->attempt, &m->job, &m->epoch, e) < 0) return -1;
    if (range_check(w->seq, 0, INT64_MAX, "seq", e) < 0) return -1;
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

static int log_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Log *w = body;
    w->attempt = attempt_pack(m->job, m->epoch, a);
    w->rank = m->rank;
    w->offset = m->offset;
    w->data = (ProtobufCBinaryData){m->size, (uint8_t *)m->data};
    return w->attempt ? 0 : -1;
}

/* Takes the bytes of a file at an offset, of LOG and FETCHED. */
static int chunk_unpack(ProtobufCBinaryData data, int64_t offset, int64_t max, struct msg *m,
                        struct err *e)
{
    m->offset = offset;
    m->data = data.data;
    m->size = data.len;
    if (range_check((int64_t)data.len, 0, max, "data", e) < 0) return -1;
    return range_check(offset, 0, INT64_MAX - WIRE_CHUNK, "offset", e);
}

static int log_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Log *w = body;
    m->rank = w->rank;
    if (attempt_unpack(w->attempt, &m->job, &m->epoch, e) < 0) return -1;
    if (range_check(w->rank, 0, JOB_MAX_RANKS - 1, "rank", e) < 0) return -1;
    return chunk_unpack(w->data, w->offset, WIRE_CHUNK, m, e);
}

static int described_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Described *w = body;
    w->request = m->request;
    w->config = (char *)m->config;
    w->error = wire_error_pack(&m->err, a);
    return w->error ? 0 : -1;
}

static int described_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Described *w = body;
    m->request = w->request;
    if (text_copy(m->config, sizeof m->config, w->config, "config", e) < 0) return -1;
    return wire_error_unpack(w->error, &m->err, e);
}

static int fetched_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Fetched *w = body;
    w->request = m->request;
    w->offset = m->offset;
    w->data = (ProtobufCBinaryData){m->size, (uint8_t *)m->data};
    w->error = wire_error_pack(&m->err, a);
    w->total = m->total;
    w->stamp = m->stamp;
    return w->error ? 0 : -1;
}

static int fetched_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Fetched *w = body;
    m->request = w->request;
    m->total = w->total;
    m->stamp = w->stamp;
    if (range_check(w->total, 0, INT64_MAX / 2, "total", e) < 0) return -1;
    if (chunk_unpack(w->data, w->offset, WIRE_TRACE_SIZE, m, e) < 0) return -1;
    return wire_error_unpack(w->error, &m->err, e);
}

/* Checks an id that becomes the name of a directory. It is empty where an ASSIGN names no data. */
static int prepared_id_unpack(const char *in, struct msg *m, struct err *e)
{
    if (text_copy(m->prepared_id, sizeof m->prepared_id, in, "prepared_id", e) < 0) return -1;
    if (!*m->prepared_id || prepared_id_good(m->prepared_id)) return 0;
    return err_field(e, ERR_INVALID, "prepared_id",
                     "prepared_id '%s' is not an id of prepared data: want lower-case hex digits",
                     m->prepared_id);
}

static void grants_pack(const struct msg *m, size_t *n, char ***out)
{
    assert(m->n_grants >= 0 && m->n_grants <= WIRE_GRANTS);
    *n = (size_t)m->n_grants;
    *out = (char **)m->grants;
}

static int grants_unpack(size_t n, char **in, struct msg *m, struct err *e)
{
    if (range_check((int64_t)n, 0, WIRE_GRANTS, "grants", e) < 0) return -1;
    for (size_t i = 0; i < n; i++)
        if (in[i][0] != '/' || strlen(in[i]) >= RANK_PATH_SIZE)
            return err_field(e, ERR_INVALID, "grants",
                             "a grant is no absolute path of at most %d bytes", RANK_PATH_SIZE - 1);
    m->n_grants = (int)n;
    m->grants = (const char *const *)in;
    return 0;
}

static int assign_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Assign *w = body;
    w->attempt = attempt_pack(m->job, m->epoch, a);
    w->task = m->task;
    w->n_ranks = m->n_ranks;
    w->first_rank = m->first_rank;
    w->n_local = m->n_local;
    w->prepared_id = (char *)m->prepared_id;
    w->memory_limit = m->memory_limit;
    w->submitted_s = m->submitted_s;
    w->key = (ProtobufCBinaryData){sizeof m->key, (uint8_t *)m->key};
    w->spec = wire_spec_pack(m->spec, a);
    grants_pack(m, &w->n_grants, &w->grants);
    if (wire_uuids_pack(m, a, &w->n_gpus, &w->gpus) < 0) return -1;
    return w->attempt && w->spec ? 0 : -1;
}

static int assign_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Assign *w = body;
    m->task = w->task;
    m->n_ranks = w->n_ranks;
    m->first_rank = w->first_rank;
    m->n_local = w->n_local;
    m->memory_limit = w->memory_limit;
    m->submitted_s = w->submitted_s;
    if (attempt_unpack(w->attempt, &m->job, &m->epoch, e) < 0) return -1;
    if (range_check(w->task, TASK_PREPARE, TASK_RUN, "task", e) < 0) return -1;
    if (range_check(w->n_ranks, 1, JOB_MAX_RANKS, "n_ranks", e) < 0) return -1;
    if (range_check(w->n_local, 1, w->n_ranks, "n_local", e) < 0) return -1;
    if (range_check(w->first_rank, 0, w->n_ranks - w->n_local, "first_rank", e) < 0) return -1;
    if (range_check(w->memory_limit, 0, INT64_MAX, "memory_limit", e) < 0) return -1;
    if (range_check(w->submitted_s, 0, INT64_MAX / 1000, "submitted_s", e) < 0) return -1;
    if (prepared_id_unpack(w->prepared_id, m, e) < 0) return -1;
    if (w->key.len != 0 && w->key.len != sizeof m->key)
        return err_field(e, ERR_INVALID, "key", "the attempt's key has %zu bytes, want %zu",
                         w->key.len, sizeof m->key);
    if (w->key.len) memcpy(m->key, w->key.data, sizeof m->key);
    if (grants_unpack(w->n_grants, w->grants, m, e) < 0) return -1;
    if (wire_uuids_unpack(w->n_gpus, w->gpus, a, m, e) < 0) return -1;
    return wire_spec_unpack(w->spec, a, &m->spec, e);
}

static int blobs_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Blobs *w = body;
    assert(m->n_blobs >= 0 && m->n_blobs <= JOB_MAX_RANKS);
    w->attempt = attempt_pack(m->job, m->epoch, a);
    w->n_blobs = (size_t)m->n_blobs;
    w->blobs = pointers_new(a, w->n_blobs);
    if (!w->attempt || !w->blobs) return -1;
    for (size_t i = 0; i < w->n_blobs; i++) {
        Seqd__Blob *b = message_new(a, &seqd__blob__descriptor);
        if (!b) return -1;
        const struct rank_blob *in = &m->blobs[i];
        assert(in->size >= 0 && in->size <= BLOB_SIZE);
        b->rank = in->rank;
        b->data = (ProtobufCBinaryData){(size_t)in->size, (uint8_t *)in->data};
        w->blobs[i] = b;
    }
    return 0;
}

static int blobs_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Blobs *w = body;
    if (attempt_unpack(w->attempt, &m->job, &m->epoch, e) < 0) return -1;
    if (range_check((int64_t)w->n_blobs, 1, JOB_MAX_RANKS, "blobs", e) < 0) return -1;
    struct rank_blob *out = arena_alloc(a, w->n_blobs * sizeof *out);
    if (!out) return err_set(e, ERR_TOO_LARGE, "no room for %zu blobs", w->n_blobs);
    for (size_t i = 0; i < w->n_blobs; i++) {
        const Seqd__Blob *b = w->blobs[i];
        if (range_check(b->rank, 0, JOB_MAX_RANKS - 1, "blobs.rank", e) < 0) return -1;
        if (range_check((int64_t)b->data.len, 0, BLOB_SIZE, "blobs.data", e) < 0) return -1;
        out[i].rank = b->rank;
        out[i].size = (int32_t)b->data.len;
        if (b->data.len) memcpy(out[i].data, b->data.data, b->data.len);
    }
    m->n_blobs = (int)w->n_blobs;
    m->blobs = out;
    return 0;
}

static int stop_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Stop *w = body;
    w->attempt = attempt_pack(m->job, m->epoch, a);
    w->reason = (char *)m->reason;
    return w->attempt ? 0 : -1;
}

static int stop_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Stop *w = body;
    if (text_copy(m->reason, sizeof m->reason, w->reason, "reason", e) < 0) return -1;
    return attempt_unpack(w->attempt, &m->job, &m->epoch, e);
}

static int ack_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Ack *w = body;
    w->attempt = attempt_pack(m->job, m->epoch, a);
    w->seq = m->seq;
    w->rank = m->rank;
    w->offset = m->offset;
    return w->attempt ? 0 : -1;
}

static int ack_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Ack *w = body;
    m->seq = w->seq;
    m->rank = w->rank;
    m->offset = w->offset;
    if (range_check(w->seq, 0, INT64_MAX, "seq", e) < 0) return -1;
    if (range_check(w->rank, -1, JOB_MAX_RANKS - 1, "rank", e) < 0) return -1;
    if (range_check(w->offset, 0, INT64_MAX, "offset", e) < 0) return -1;
    return attempt_unpack(w->attempt, &m->job, &m->epoch, e);
}

static int expect_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Expect *w = body;
    w->more = m->more;
    return attempts_pack(m, a, &w->n_attempts, &w->attempts);
}

static int expect_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Expect *w = body;
    m->more = w->more;
    return attempts_unpack(w->n_attempts, w->attempts, m, a, e);
}

static int fetch_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Fetch *w = body;
    w->request = m->request;
    w->job = m->job;
    w->path = (char *)m->path;
    w->offset = m->offset;
    return 0;
}

static int fetch_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Fetch *w = body;
    m->request = w->request;
    m->job = w->job;
    m->offset = w->offset;
    if (range_check(w->job, 1, INT64_MAX, "job", e) < 0) return -1;
    if (range_check(w->offset, 0, INT64_MAX - WIRE_CHUNK, "offset", e) < 0) return -1;
    return text_copy(m->path, sizeof m->path, w->path, "path", e);
}

static int describe_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Describe *w = body;
    w->request = m->request;
    assert(m->n_files >= 0 && m->n_files <= WIRE_FILES);
    w->models = m->models;
    w->path = (char *)m->path;
    w->n_files = (size_t)m->n_files;
    w->files = (char **)m->files;
    grants_pack(m, &w->n_grants, &w->grants);
    return 0;
}

static int describe_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Describe *w = body;
    m->request = w->request;
    m->models = w->models;
    if (grants_unpack(w->n_grants, w->grants, m, e) < 0) return -1;
    if (range_check((int64_t)w->n_files, 0, WIRE_FILES, "files", e) < 0) return -1;
    m->n_files = (int)w->n_files;
    m->files = (const char *const *)w->files;
    return text_copy(m->path, sizeof m->path, w->path, "path", e);
}

static int trace_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Trace *w = body;
    w->request = m->request;
    w->prepared_id = (char *)m->prepared_id;
    w->seq_len = m->trace.seq_len;
    w->seed = m->trace.seed;
    w->first = m->trace.first;
    w->count = m->trace.count;
    w->max_fragments = m->trace.max_fragments;
    w->packing = (char *)m->trace.packing;
    w->overlong = (char *)m->trace.overlong;
    return 0;
}

static int trace_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Trace *w = body;
    struct wire_trace *t = &m->trace;
    *t = (struct wire_trace){w->seq_len, w->seed, w->first, w->count, w->max_fragments, "", ""};
    m->request = w->request;
    if (range_check(t->seq_len, 1, JOB_MAX_SEQ, "seq_len", e) < 0 ||
        range_check(t->seed, 0, INT64_MAX, "seed", e) < 0 ||
        range_check(t->first, 0, INT64_MAX / 2, "first", e) < 0 ||
        range_check(t->count, 1, 65536, "count", e) < 0 ||
        range_check(t->max_fragments, 0, 1 << 20, "max_fragments", e) < 0)
        return -1;
    if (text_copy(t->packing, sizeof t->packing, w->packing, "packing", e) < 0 ||
        text_copy(t->overlong, sizeof t->overlong, w->overlong, "overlong", e) < 0)
        return -1;
    return prepared_id_unpack(w->prepared_id, m, e);
}

static int forget_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Forget *w = body;
    w->attempt = attempt_pack(m->job, m->epoch, a);
    return w->attempt ? 0 : -1;
}

static int forget_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Forget *w = body;
    return attempt_unpack(w->attempt, &m->job, &m->epoch, e);
}

static int profile_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Profile *w = body;
    w->n_number = (size_t)PROFILE_NUMBERS;
    w->number = arena_alloc(a, sizeof m->profile);
    if (!w->number) return -1;
    memcpy(w->number, &m->profile, sizeof m->profile);
    return 0;
}

static int profile_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Profile *w = body;
    if (w->n_number != (size_t)PROFILE_NUMBERS)
        return err_set(e, ERR_INVALID, "a profile of %zu numbers: want %d", w->n_number,
                       PROFILE_NUMBERS);
    memcpy(&m->profile, w->number, sizeof m->profile);
    return profile_check(&m->profile, e);
}

static int length_check(const char *text, size_t size, const char *field, struct err *e)
{
    return range_check((int64_t)strlen(text), 0, (int64_t)size - 1, field, e);
}

static int join_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Join *w = body;
    w->node = (char *)m->node;
    w->token = (char *)(m->token ? m->token : "");
    w->csr = (char *)(m->pem ? m->pem : "");
    return 0;
}

static int join_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Join *w = body;
    m->token = w->token;
    m->pem = w->csr;
    if (name_unpack(w->node, m, e) < 0) return -1;
    if (length_check(w->token, WIRE_TOKEN_SIZE, "token", e) < 0) return -1;
    return length_check(w->csr, PKI_PEM_SIZE, "csr", e);
}

static int joined_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Joined *w = body;
    w->cert = (char *)(m->pem ? m->pem : "");
    return 0;
}

static int joined_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Joined *w = body;
    m->pem = w->cert;
    return length_check(w->cert, PKI_PEM_SIZE, "cert", e);
}

static int leaving_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Leaving *w = body;
    w->end_s = m->end_s;
    w->margin_s = m->margin_s;
    return 0;
}

static int leaving_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Leaving *w = body;
    m->end_s = w->end_s;
    m->margin_s = w->margin_s;
    if (range_check(w->end_s, 0, WIRE_MAX_TIME_S, "end_s", e) < 0) return -1;
    return range_check(w->margin_s, 0, WIRE_MAX_TIME_S, "margin_s", e);
}

static int quit_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Quit *w = body;
    w->reason = (char *)m->reason;
    return 0;
}

static int quit_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Quit *w = body;
    return text_copy(m->reason, sizeof m->reason, w->reason, "reason", e);
}

static const struct row {
    uint32_t since; /* ABI */
    const ProtobufCMessageDescriptor *body;
    int (*pack)(const struct msg *m, struct arena *a, void *body);
    int (*unpack)(const void *body, struct arena *a, struct msg *m, struct err *e);
} rows[] = {
    [MSG_HELLO] = {6, &seqd__hello__descriptor, hello_pack, hello_unpack},
    [MSG_HEARTBEAT] = {6, &seqd__heartbeat__descriptor, heartbeat_pack, heartbeat_unpack},
    [MSG_REPORT] = {6, &seqd__report__descriptor, report_pack, report_unpack},
    [MSG_LOG] = {6, &seqd__log__descriptor, log_pack, log_unpack},
    [MSG_DESCRIBED] = {6, &seqd__described__descriptor, described_pack, described_unpack},
    [MSG_FETCHED] = {6, &seqd__fetched__descriptor, fetched_pack, fetched_unpack},
    [MSG_WELCOME] = {6, &seqd__welcome__descriptor, welcome_pack, welcome_unpack},
    [MSG_ASSIGN] = {6, &seqd__assign__descriptor, assign_pack, assign_unpack},
    [MSG_BLOBS] = {6, &seqd__blobs__descriptor, blobs_pack, blobs_unpack},
    [MSG_STOP] = {6, &seqd__stop__descriptor, stop_pack, stop_unpack},
    [MSG_ACK] = {6, &seqd__ack__descriptor, ack_pack, ack_unpack},
    [MSG_EXPECT] = {6, &seqd__expect__descriptor, expect_pack, expect_unpack},
    [MSG_FETCH] = {6, &seqd__fetch__descriptor, fetch_pack, fetch_unpack},
    [MSG_DESCRIBE] = {6, &seqd__describe__descriptor, describe_pack, describe_unpack},
    [MSG_FORGET] = {6, &seqd__forget__descriptor, forget_pack, forget_unpack},
    [MSG_TRACE] = {6, &seqd__trace__descriptor, trace_pack, trace_unpack},
    [MSG_PROFILE] = {6, &seqd__profile__descriptor, profile_pack, profile_unpack},
    [MSG_REFUSED] = {6, &seqd__refused__descriptor, refused_pack, refused_unpack},
    [MSG_JOIN] = {7, &seqd__join__descriptor, join_pack, join_unpack},
    [MSG_JOINED] = {7, &seqd__joined__descriptor, joined_pack, joined_unpack},
    [MSG_REMOVE] = {7, &seqd__remove__descriptor, wire_remove_pack, wire_remove_unpack},
    [MSG_REMOVED] = {7, &seqd__removed__descriptor, wire_removed_pack, wire_removed_unpack},
    [MSG_SAVE] = {7, &seqd__stop__descriptor, stop_pack, stop_unpack},
    [MSG_LEAVING] = {7, &seqd__leaving__descriptor, leaving_pack, leaving_unpack},
    [MSG_QUIT] = {7, &seqd__quit__descriptor, quit_pack, quit_unpack},
};
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
    if (!body || row->pack(m, a, body) < 0) return NULL;
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
        return err_set(e, ERR_TOO_LARGE, "a message of %zu bytes, at most %d are allowed", size,
                       WIRE_MAX_SIZE);
    ProtobufCAllocator from_arena = {unpack_alloc, unpack_free, a};
    const Seqd__Msg *w = seqd__msg__unpack(&from_arena, size, data);
    if (!w)
        return err_set(e, ERR_INVALID, "a message of %zu bytes is malformed or too large", size);
    int type = (int)w->body_case;
    if (type <= 0 || type >= N_ROWS)
        return err_set(e, ERR_INVALID, "a message of a kind this version does not know");
    m->type = (enum msg_type)type;
    return rows[type].unpack(w->hello, a, m, e);
}
