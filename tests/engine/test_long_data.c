/* test_long_data: checks data files that are longer than the pieces in which they are read,
 * written and counted. A piece is 4,096 ids, 8 KiB of an index, the mask bits of 4,096 or of
 * 32,768 tokens, or 256 files. */
#include "tests/lib/files.h"
#include "worker/data/ids.h"

/* Returns the id of token i. The period of the ids is not near the length of a piece. */
static int64_t id_at(int64_t i)
{
    return i % 4093 * 7 % 60000;
}

/* Reads tokens [0, n) in one call, and checks that they equal id_at. */
static void check_ids(const struct data *d, int64_t n)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    int64_t bad = 0;
    CHECK(data_stats(d)->n_tokens == n);
    if (!ids || data_stats(d)->n_tokens != n) abort();
    CHECK(!data_read(d, 0, n, ids, &e));
    for (int64_t i = 0; i < n; i++) bad += ids[i] != id_at(i);
    CHECK_MSG(!bad, "%lld of %lld ids differ", (long long)bad, (long long)n);
    free(ids);
}

/* ---- Megatron -------------------------------------------------------------------------------- */

/* The index has parts of 12,000 and 24,000 bytes. */
enum { SEQUENCES = 3000, LONG_ONE = 2 * IDS_CHUNK + 5 };

/* Returns the length of a sequence: sequence 1,500 is long, and all others have 1 to 3 tokens. */
static int64_t sequence_length(int k)
{
    return k == SEQUENCES / 2 ? LONG_ONE : 1 + k % 3;
}

/* Returns the index of the first sequence of document k. Every second document has one sequence,
 * and the documents between them have two. */
static int document_begin(int k)
{
    return k / 2 * 3 + k % 2;
}

static int64_t megatron_write(void)
{
    int64_t n = 0;
    const int n_indices = SEQUENCES / 3 * 2 + 1;
    begin();
    add("MMIDIDX\0\0", 9);
    add_int(1, 8), add_int(8, 1), add_int(SEQUENCES, 8), add_int(n_indices, 8);
    for (int k = 0; k < SEQUENCES; k++) add_int(sequence_length(k), 4);
    for (int k = 0; k < SEQUENCES; n += sequence_length(k++)) add_int(2 * n, 8);
    for (int k = 0; k < n_indices; k++) add_int(document_begin(k), 8);
    end("long.idx");
    begin();
    for (int64_t i = 0; i < n; i++) add_int(id_at(i), 2);
    end("long.bin");
    return n;
}

static void test_megatron(void)
{
    const int64_t n = megatron_write();
    int64_t at = 0, bad = 0;
    one_source("long", DATA_MEGATRON, 60000, -1);
    struct data *d = prepare_open();
    check_ids(d, n);
    CHECK(data_stats(d)->n_documents == SEQUENCES / 3 * 2);
    for (int k = 0; k < data_stats(d)->n_documents; k++) {
        for (int s = document_begin(k); s < document_begin(k + 1); s++) at += sequence_length(s);
        bad += data_documents(d)[k] != (uint64_t)at;
    }
    CHECK_MSG(!bad && at == n, "%lld documents end elsewhere", (long long)bad);
    data_close(d);
}

/* ---- records --------------------------------------------------------------------------------- */

enum { PLAIN = 32768 + 8 * 4096 + 13, MASKED = 9001, RECORD_IDS = PLAIN + MASKED };

/* Tells whether a token may be learnt. The first record has no mask, so its bits are written only
 * when the second record has a mask. */
static bool may_learn(int64_t i)
{
    return i < PLAIN || i % 5 < 3;
}

static void records_write(void)
{
    char *text = malloc(RECORD_IDS * 10), *at = text;
    if (!text) abort();
    at += sprintf(at, "{\"input_ids\":[0");
    for (int64_t i = 1; i < PLAIN; i++) at += sprintf(at, ",%lld", (long long)id_at(i));
    at += sprintf(at, "]}\n{\"input_ids\":[%lld", (long long)id_at(PLAIN));
    for (int64_t i = PLAIN + 1; i < RECORD_IDS; i++)
        at += sprintf(at, ",%lld", (long long)id_at(i));
    at += sprintf(at, "],\"loss_mask\":[%d", may_learn(PLAIN));
    for (int64_t i = PLAIN + 1; i < RECORD_IDS; i++) at += sprintf(at, ",%d", may_learn(i));
    at += sprintf(at, "]}\n");
    put("long.jsonl", text, (size_t)(at - text));
    free(text);
}

static void check_mask(const struct data *d)
{
    static uint8_t learn[RECORD_IDS];
    int64_t bad = 0, masked = 0;
    CHECK(!data_read_mask(d, 0, RECORD_IDS, learn, &e));
    for (int64_t i = 0; i < RECORD_IDS; i++) {
        bad += learn[i] != may_learn(i);
        masked += !may_learn(i);
    }
    CHECK_MSG(!bad && data_stats(d)->n_masked == masked, "%lld bits differ", (long long)bad);
}

/* Checks the rows of the masked record on one rank. A row must have the next id as its target if
 * this id may be learnt, and otherwise no target. */
static void check_rows(const struct data_order *o)
{
    static int32_t ids[PLAIN], targets[PLAIN];
    static int64_t pos[PLAIN], lo[PLAIN], hi[PLAIN];
    struct batch b = {.ids = ids, .targets = targets, .pos = pos, .lo = lo, .hi = hi};
    struct shard sh;
    int64_t bad = 0;
    CHECK(!shard_init(&sh, PLAIN, 1, 0, LAYOUT_CONTIGUOUS, false, &e));
    CHECK_MSG(!data_batch(o, &sh, 1, &b, &e) && b.n_tokens == MASKED, "%s", e.text);
    for (int64_t i = 0; i < MASKED; i++) {
        const int64_t next = PLAIN + i + 1;
        bad += ids[i] != id_at(PLAIN + i) || pos[i] != i;
        bad += targets[i] != (i + 1 < MASKED && may_learn(next) ? id_at(next) : -1);
    }
    CHECK_MSG(!bad, "%lld rows differ", (long long)bad);
}

/* Checks the number of targets. There are two samples, each of which is a record, in the order of
 * the file. */
static void check_targets(const struct data *d)
{
    struct order_options oo = data_order_options(spec, SET_TRAIN, PLAIN);
    int64_t want = 0;
    oo.packing = PACKING_NONE;
    oo.in_order = true;
    struct data_order *o = order_open(d, &oo);
    for (int64_t i = PLAIN + 1; i < RECORD_IDS; i++) want += may_learn(i);
    CHECK(data_order_samples(o) == 2 && data_targets(o, 0, &e) == PLAIN - 1);
    CHECK_MSG(data_targets(o, 1, &e) == want, "%lld targets, want %lld",
              (long long)data_targets(o, 1, &e), (long long)want);
    struct order_learnt learnt;
    CHECK(!data_order_learnt(o, &learnt, &e) && learnt.tokens == PLAIN - 1 + want);
    check_rows(o);
    data_order_close(o);
}

static void test_records(void)
{
    int64_t n = 0;
    records_write();
    one_source("long.jsonl", DATA_JSONL, 60000, -1);
    struct data *d = prepare_open();
    check_ids(d, RECORD_IDS);
    check_mask(d);
    check_targets(d);
    for (int64_t i = 0; i < RECORD_IDS; i++) n += id_at(i) == 35;
    CHECK(n > 10 && data_count_id(d, 35, false, RECORD_IDS, &e) == n);
    CHECK(data_count_id(d, 35, true, RECORD_IDS, &e) == 0); /* no two neighbouring ids are equal */
    data_close(d);
}

/* ---- files ----------------------------------------------------------------------------------- */

enum { FILES = 2 * 256 + 3 };

/* Checks many files. Each is one document, which consists of the file's number in four digits. */
static void test_files(void)
{
    char name[32], text[8];
    int32_t ids[5];
    struct data_stats other;
    CHECK(!file_make_dir(in_dir("many"), &e));
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many/%04d.txt", i);
        snprintf(text, sizeof text, "%04d", i);
        puts_file(name, text);
    }
    one_source("many/*.txt", DATA_TEXT, 258, -1);
    struct data *d = prepare_open();
    CHECK(data_stats(d)->n_tokens == 5 * FILES && data_stats(d)->n_documents == FILES);
    for (int i = 0; i < FILES; i++) {
        struct data_origin at;
        snprintf(text, sizeof text, "%04d", i);
        CHECK(!data_read(d, 5 * i, 5, ids, &e) && !data_origin(d, i, &at, &e));
        CHECK(at.file == (uint32_t)i && strstr(data_file(d, at.file), text));
        for (int k = 0; k < 4; k++) CHECK(ids[k] == text[k]);
    }
    puts_file("many/0514.txt", "0515"); /* the last file is included in the data's id */
    CHECK(!prepare(&other) && strcmp(other.id, data_stats(d)->id));
    data_close(d);
}

int main(void)
{
    datadir_begin("long_data");
    RUN(test_megatron);
    RUN(test_records);
    RUN(test_files);
    return datadir_end("long_data");
}
