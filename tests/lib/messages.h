/* messages.h: makes a message of every kind in which all fields are set, and compares two
 * messages. */
#ifndef SEQD_TESTS_MESSAGES_H
#define SEQD_TESTS_MESSAGES_H

#include <stdlib.h>
#include "api/core/assert.h"
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/removal.h"
#include "api/wire.h"
#include "tests/lib/profile.h"
#include "tests/lib/test.h"

/* Tells whether this word of a field is newer than the field. A peer of the previous version knows
 * the field but refuses the word, so leaving out newer fields does not make a message with this
 * word acceptable to that peer. */
static inline bool is_newer(const struct field *f, int word)
{
    for (const struct field_word *w = f->newer; w && w->word; w++)
        if (!strcmp(w->word, f->words[word])) return true;
    return false;
}

/* Fills a spec with a different value in every row of the table, so that a test notices if two
 * rows are swapped. Words that are newer than their field (is_newer) are not used. */
static inline void fields_fill(struct job_spec *s, const struct field *table, char *base, int salt)
{
    for (int i = 0; table[i].path; i++) {
        const struct field *f = &table[i];
        int64_t v64 = (int64_t)salt * 100000 + i * 7 + 3;
        int32_t v32 = (int32_t)v64;
        double d = (double)v64 + 0.1;
        char text[64];
        spec_ref ref;
        int n_words = 0;
        while (f->type == FIELD_ENUM && f->words[n_words]) n_words++;
        if (f->type == FIELD_ENUM) v32 = is_newer(f, i % n_words) ? 0 : i % n_words;
        if (f->type == FIELD_BOOL) v32 = (i + salt) % 2;
        snprintf(text, sizeof text, "text of %s %d", f->path, salt);
        switch (f->type) {
        case FIELD_INT: memcpy(base + f->offset, &v64, sizeof v64); break;
        case FIELD_DOUBLE: memcpy(base + f->offset, &d, sizeof d); break;
        case FIELD_STRING:
            CHECK(spec_intern(s, text, strlen(text), &ref) == 0);
            memcpy(base + f->offset, &ref, sizeof ref);
            break;
        default: memcpy(base + f->offset, &v32, sizeof v32);
        }
    }
}

static inline size_t field_size(const struct field *f)
{
    return f->type == FIELD_INT ? sizeof(int64_t) : f->type == FIELD_DOUBLE ? sizeof(double) : 4;
}

static inline void fields_compare(const struct job_spec *a, const char *in_a,
                                  const struct job_spec *b, const char *in_b,
                                  const struct field *table)
{
    for (; table->path; table++) {
        if (table->type == FIELD_STRING) {
            spec_ref ra, rb;
            memcpy(&ra, in_a + table->offset, sizeof ra);
            memcpy(&rb, in_b + table->offset, sizeof rb);
            CHECK_MSG(!strcmp(spec_text(a, ra), spec_text(b, rb)), "%s", table->path);
        } else {
            CHECK_MSG(!memcmp(in_a + table->offset, in_b + table->offset, field_size(table)), "%s",
                      table->path);
        }
    }
}

static inline struct job_spec *spec_fill(void)
{
    struct job_spec *s = calloc(1, sizeof *s);
    assert(s);
    s->text_used = 1;
    fields_fill(s, spec_fields, (char *)s, 1);
    s->data.n_train = SPEC_SOURCES;
    for (int i = 0; i < SPEC_SOURCES; i++)
        fields_fill(s, source_fields, (char *)&s->data.train[i], 2 + i);
    s->eval.n_data = 2;
    for (int i = 0; i < 2; i++) fields_fill(s, source_fields, (char *)&s->eval.data[i], 50 + i);
    s->n_stages = SPEC_STAGES;
    for (int i = 0; i < SPEC_STAGES; i++)
        fields_fill(s, stage_fields, (char *)&s->stages[i], 60 + i);
    fields_fill(s, source_fields, (char *)&s->input.source, 99);
    s->n_labels = 3;
    for (int i = 0; i < s->n_labels; i++) {
        spec_intern(s, "key", 3, &s->labels[i].key);
        spec_intern(s, "value", 5, &s->labels[i].value);
    }
    snprintf(s->model.config, sizeof s->model.config, "{\"hidden_size\":64}");
    return s;
}

static inline void spec_compare(const struct job_spec *a, const struct job_spec *b)
{
    fields_compare(a, (const char *)a, b, (const char *)b, spec_fields);
    CHECK(a->data.n_train == b->data.n_train && a->eval.n_data == b->eval.n_data);
    CHECK(a->n_stages == b->n_stages);
    for (int i = 0; i < a->eval.n_data; i++)
        fields_compare(a, (const char *)&a->eval.data[i], b, (const char *)&b->eval.data[i],
                       source_fields);
    for (int i = 0; i < a->n_stages; i++)
        fields_compare(a, (const char *)&a->stages[i], b, (const char *)&b->stages[i],
                       stage_fields);
    for (int i = 0; i < a->data.n_train; i++)
        fields_compare(a, (const char *)&a->data.train[i], b, (const char *)&b->data.train[i],
                       source_fields);
    fields_compare(a, (const char *)&a->input.source, b, (const char *)&b->input.source,
                   source_fields);
    CHECK(a->n_labels == b->n_labels);
    for (int i = 0; i < a->n_labels; i++) {
        CHECK_STR(spec_text(a, a->labels[i].key), spec_text(b, b->labels[i].key));
        CHECK_STR(spec_text(a, a->labels[i].value), spec_text(b, b->labels[i].value));
    }
    CHECK_STR(a->model.config, b->model.config);
}

static const struct gpu two_gpus[] = {
    {.uuid = "GPU-1",
     .name = "A",
     .bus = "0000:3B",
     .memory_size = 80,
     .memory_free = 79,
     .major = 9,
     .health = GPU_XID,
     .xid = 79,
     .far = {0, 5}},
    {.uuid = "GPU-2", .minor = 6, .n_processes = 3, .ecc_errors = 2, .far = {5, 0}},
};
static const char *const two_grants[] = {"/up/files/a", "/up/files/b"};
static const char *const two_files[] = {"data.train.0.path:text:/x", "input.path:jsonl:*.x"};
static const char two_uuids[][GPU_UUID_SIZE] = {"GPU-a", "GPU-b"};
static const struct wire_attempt two_attempts[] = {{1, 2, 5, 4}, {(int64_t)1 << 60, 4, 0, 0}};
static struct rank_blob two_blobs[2] = {{0, 5, "hello"}, {1, BLOB_SIZE, ""}};
static struct {
    struct rank_msg head;
    char payload[11];
} record = {{RANK_ABI, RANK_RESULT, 1, 11}, "{\"nll\":1.5}"};

/* Makes a message of the given kind, and sets every field that the kind carries. */
static inline struct msg msg_fill(enum msg_type type, const struct job_spec *spec)
{
    struct msg m = {.type = type, .job = 7, .epoch = 3};
    switch (type) {
    case MSG_HELLO:
        m = (struct msg){.type = type,
                         .abi = WIRE_ABI,
                         .node = "n1",
                         .version = "v1",
                         .n_slots = 8,
                         .n_cores = 2,
                         .memory_size = 1 << 30,
                         .instance = "sixteen bytes..",
                         .address = "fe80::12"};
        m.n_attempts = 2, m.attempts = two_attempts;
        m.shared = (INT64_C(1) << 53) - 1;
        m.emulated = true, m.n_gpus = 2, m.gpus = two_gpus;
        break;
    case MSG_REPORT:
        m.seq = 9, m.oom = true, m.rank = 1, m.data = &record, m.size = sizeof record.head + 11;
        break;
    case MSG_LOG: m.rank = 2, m.offset = 1000, m.data = "a line\n", m.size = 7; break;
    case MSG_DESCRIBED:
        m.job = m.epoch = 0, m.request = 5;
        snprintf(m.config, sizeof m.config, "{\"hidden_size\":64}");
        break;
    case MSG_FETCHED:
        m.job = m.epoch = 0, m.request = 6, m.offset = 65536, m.data = "\0\1\2", m.size = 3;
        m.total = 70000, m.stamp = 77;
        err_field(&m.err, ERR_NOT_FOUND, "path", "no such artifact");
        break;
    case MSG_ASSIGN:
        m.task = TASK_RUN, m.n_ranks = 4, m.first_rank = 2, m.n_local = 2, m.memory_limit = 1 << 20;
        m.submitted_s = 1795000000;
        snprintf(m.prepared_id, sizeof m.prepared_id, "0123abcd");
        for (int i = 0; i < RANK_KEY_SIZE; i++) m.key[i] = (unsigned char)(200 - 7 * i);
        m.spec = spec;
        m.n_uuids = 2, m.uuids = two_uuids;
        m.n_grants = 2, m.grants = two_grants;
        break;
    case MSG_BLOBS: m.n_blobs = 2, m.blobs = two_blobs; break;
    case MSG_SAVE:
    case MSG_STOP: snprintf(m.reason, sizeof m.reason, "cancelled"); break;
    case MSG_ACK: m.seq = 8, m.rank = -1, m.offset = 77; break;
    case MSG_EXPECT:
        m.job = m.epoch = 0, m.n_attempts = 2, m.attempts = two_attempts, m.more = true;
        break;
    case MSG_FETCH: m.epoch = 0, m.request = 4, m.offset = 12, snprintf(m.path, 32, "a.bin"); break;
    case MSG_DESCRIBE:
        m.job = m.epoch = 0, m.request = 4, m.models = m.adapter = true;
        snprintf(m.path, 32, "/m/x");
        m.n_grants = 1, m.grants = two_grants;
        m.n_files = 2, m.files = two_files;
        break;
    case MSG_HEARTBEAT:
        m.job = m.epoch = 0, m.n_gpus = 2, m.gpus = two_gpus, m.shared = 77;
        m.disk = (struct disk_use){(int64_t)5 << 40, 77, (int64_t)9 << 40, 1};
        break;
    case MSG_WELCOME: m.job = m.epoch = 0, m.heartbeat_ms = 250, m.abi = WIRE_ABI; break;
    case MSG_REFUSED:
        m.job = m.epoch = 0, m.retry_ms = 5000, m.abi = WIRE_ABI;
        snprintf(m.reason, sizeof m.reason, "a node of this name is up");
        break;
    case MSG_JOIN:
        m = (struct msg){.type = type, .node = "n1", .token = "seqj_1", .pem = "-----BEGIN"};
        break;
    case MSG_JOINED: m = (struct msg){.type = type, .pem = "-----BEGIN CERTIFICATE"}; break;
    case MSG_FORGET: break;
    case MSG_TYPE_N: break;
    case MSG_LEAVING: m.job = m.epoch = 0, m.end_s = 1795000000, m.margin_s = 120; break;
    case MSG_QUIT:
        m.job = m.epoch = 0, m.code = 75, snprintf(m.reason, sizeof m.reason, "it ends");
        break;
    case MSG_PROVE: m = (struct msg){.type = type, .token = "00ff"}; break;
    case MSG_PROOF: m = (struct msg){.type = type, .token = "ff00"}; break;
    case MSG_ASK:
        m.request = 11, m.endpoint = SERVE_CHAT, m.named = 1, m.more = true;
        m.data = "{\"model\"", m.size = 8;
        snprintf(m.model, sizeof m.model, "mine:law");
        snprintf(m.user, sizeof m.user, "ann");
        break;
    case MSG_ANSWER:
        m.request = 11, m.status = 200, m.stream = m.more = true, m.data = "data: {", m.size = 7;
        break;
    case MSG_CREDIT: m.request = 11, m.total = 4096; break;
    case MSG_DROP: m.request = 11; break;
    case MSG_REMOVE: m.epoch = 0, m.what = REMOVAL_CHECKPOINTS; break;
    case MSG_REMOVED:
        m.epoch = 0, m.what = REMOVAL_JOB, m.total = (int64_t)5 << 40;
        err_set(&m.err, ERR_IO, "remove step-1: input/output error");
        break;
    case MSG_TRACE:
        m.job = m.epoch = 0, m.request = 3;
        snprintf(m.prepared_id, sizeof m.prepared_id, "0123abcd");
        m.trace = (struct wire_trace){4096, 7, 12, 2, 100, "best_fit", "split"};
        break;
    case MSG_PROFILE:
        m.job = m.epoch = 0;
        m.profile = profile_of(1e11, 2e9, 5e9, 6e-6);
        m.profile.linear_back[PROFILE_SIZES - 1] = 7e10;
        break;
    }
    return m;
}

static inline void msg_compare(const struct msg *a, const struct msg *b)
{
    struct msg flat_a = *a, flat_b = *b;
    CHECK_MSG(a->n_attempts == b->n_attempts && a->n_blobs == b->n_blobs && a->size == b->size,
              "type %d", (int)a->type);
    for (int i = 0; i < a->n_attempts; i++)
        CHECK(!memcmp(&a->attempts[i], &b->attempts[i], sizeof a->attempts[i]));
    for (int i = 0; i < a->n_blobs; i++)
        CHECK(a->blobs[i].rank == b->blobs[i].rank && a->blobs[i].size == b->blobs[i].size &&
              !memcmp(a->blobs[i].data, b->blobs[i].data, (size_t)a->blobs[i].size));
    CHECK(!a->size || !memcmp(a->data, b->data, a->size));
    if (a->spec) spec_compare(a->spec, b->spec);
    CHECK(a->n_gpus == b->n_gpus && a->n_uuids == b->n_uuids);
    CHECK(!a->n_gpus || !memcmp(a->gpus, b->gpus, (size_t)a->n_gpus * sizeof *a->gpus));
    CHECK(!a->n_uuids || !memcmp(a->uuids, b->uuids, (size_t)a->n_uuids * sizeof *a->uuids));
    CHECK(a->n_grants == b->n_grants);
    for (int i = 0; i < a->n_grants; i++) CHECK_STR(b->grants[i], a->grants[i]);
    CHECK(a->n_files == b->n_files);
    for (int i = 0; i < a->n_files; i++) CHECK_STR(b->files[i], a->files[i]);
    CHECK(!a->token == !b->token && !a->pem == !b->pem);
    if (a->token) CHECK_STR(b->token, a->token);
    if (a->pem) CHECK_STR(b->pem, a->pem);
    flat_a.token = flat_b.token = flat_a.pem = flat_b.pem = NULL;
    flat_a.attempts = flat_b.attempts = NULL;
    flat_a.blobs = flat_b.blobs = NULL;
    flat_a.data = flat_b.data = NULL;
    flat_a.spec = flat_b.spec = NULL;
    flat_a.gpus = flat_b.gpus = NULL;
    flat_a.uuids = flat_b.uuids = NULL;
    flat_a.grants = flat_b.grants = flat_a.files = flat_b.files = NULL;
    CHECK_MSG(!memcmp(&flat_a, &flat_b, sizeof flat_a), "type %d", (int)a->type);
}

#endif
