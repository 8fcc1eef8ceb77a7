/* test_formats: writes token files of every format, byte by byte, and reads them. Also checks
 * headers that contain false values. */
#include "tests/lib/files.h"

#include <math.h>

/* ---- llm.c and nanoGPT ----------------------------------------------------------------------- */

static void test_llmc(void)
{
    static const int64_t ids[] = {50256, 1, 2, 3, 50256, 50256, 7, 65000};
    static const uint64_t ends[] = {4, 5, 8}; /* the second document consists of its end id only */
    llmc_header(20240520, 1, 8);
    add_ints(ids, 8, 2);
    end("a.bin");
    one_source("a.bin", DATA_LLMC, 65001, -1);
    struct data *d = prepare_open();
    check_data(d, ids, 8, ends, 3);
    check_origin(d, 0, 0, 1024);
    check_origin(d, 2, 2, 1024 + 2 * 5);
    CHECK(data_stats(d)->n_bytes == 0 && data_stats(d)->max_token == 65000);
    double h = -(3.0 / 8 * log(3.0 / 8) + 5.0 / 8 * log(1.0 / 8));
    CHECK_MSG(fabs(data_stats(d)->unigram_entropy - h) < 1e-15, "%.17g",
              data_stats(d)->unigram_entropy);
    data_close(d);

    /* a second id that ends documents */
    static const uint64_t other[] = {3, 8};
    one_source("a.bin", DATA_LLMC, 65001, 3);
    d = prepare_open();
    check_data(d, ids, 8, other, 2);
    data_close(d);
}

/* Checks ids that need more than 16 bits. If there is such an id, all tokens of the data must have
 * 4 bytes, including tokens that are read before this id. */
static void test_llmc_wide(void)
{
    static const int64_t ids[] = {128000, 5, 127999, 128000, 9};
    static const uint64_t ends[] = {3, 5, 7};
    static const int64_t all[] = {128000, 5, 127999, 128000, 9, 'x', 256};
    puts_file("text.txt", "x");
    llmc_header(20240801, 7, 5);
    add_ints(ids, 5, 4);
    end("w.bin");
    one_source("w.bin", DATA_LLMC, 128256, -1);
    source_add("text.txt", DATA_TEXT, NULL);
    struct data *d = prepare_open();
    check_data(d, all, 7, ends, 3);
    CHECK(size_of(d, "tokens.bin") == 7 * 4 && size_of(d, "loss.bin") == -1);
    CHECK(data_stats(d)->n_bytes == 1);
    data_close(d);

    one_source("text.txt", DATA_TEXT, 128256, -1); /* the source with wide ids comes second */
    source_add("w.bin", DATA_LLMC, NULL);
    d = prepare_open();
    int32_t got[7];
    CHECK(data_read(d, 0, 7, got, &e) == 0 && got[0] == 'x' && got[2] == 128000 && got[6] == 9);
    CHECK(size_of(d, "tokens.bin") == 7 * 4);
    data_close(d);
}

static void test_llmc_hostile(void)
{
    static const int64_t ids[] = {1, 2, 3, 4};
    one_source("h.bin", DATA_LLMC, 300, -1);
    llmc_header(20240520, 1, 5); /* the count in the header is one token too large */
    add_ints(ids, 4, 2);
    end("h.bin");
    refused(ERR_CORRUPT, "holds 4 tokens, its header says 5");
    llmc_header(20240520, 1, 4);
    add_ints(ids, 4, 2);
    file[size++] = 0; /* half a token */
    end("h.bin");
    refused(ERR_CORRUPT, "9 bytes after its header");
    llmc_header(20240520, 1, -1); /* 2^32 - 1 */
    add_ints(ids, 4, 2);
    end("h.bin");
    refused(ERR_CORRUPT, "its header says 4294967295");
    llmc_header(20240520, 2, 4);
    end("h.bin");
    refused(ERR_UNSUPPORTED, "version 2");
    llmc_header(20240522, 1, 4);
    end("h.bin");
    refused(ERR_INVALID, "evaluation set");
    llmc_header(77, 1, 4);
    end("h.bin");
    refused(ERR_INVALID, "begins with 77");
    for (size_t n = 0; n < 1024; n += 93) {
        llmc_header(20240520, 1, 4);
        size = n;
        end("h.bin");
        refused(ERR_CORRUPT, "inside of the header");
    }
    llmc_header(20240520, 1, 4);
    add_ints(ids, 3, 2);
    add_int(300, 2);
    end("h.bin");
    refused(ERR_INVALID, "h.bin: token 3 is 300: the model's vocabulary has 300 ids");
    llmc_header(20240801, 7, 2);
    add_int(1, 4);
    add_int(0xffffffff, 4);
    end("h.bin");
    refused(ERR_INVALID, "token 1 is 4294967295");
}

static void test_nanogpt(void)
{
    static const int64_t ids[] = {4, 5, 50256, 6, 50256, 50256, 9};
    static const uint64_t ends[] = {3, 5, 6, 7};
    begin();
    add_ints(ids, 7, 2);
    end("n.bin");
    one_source("n.bin", DATA_NANOGPT, 50257, -1);
    struct data *d = prepare_open();
    check_data(d, ids, 7, ends, 4);
    check_origin(d, 3, 3, 12);
    data_close(d);
    file[size++] = 1;
    end("n.bin");
    refused(ERR_CORRUPT, "no whole number of 2-byte tokens");
    begin();
    end("n.bin");
    struct data_stats st;
    CHECK(prepare(&st) == -1 && e.code == ERR_INVALID && !strcmp(e.field, "data.train"));
}

/* Checks ends of documents, and ends of the reader's chunks, at every offset. */
static void test_long_shard(void)
{
    enum { N = 300000 };
    uint16_t *t = malloc(N * sizeof *t);
    int64_t n_documents = 0;
    for (int i = 0; i < N; i++) {
        t[i] = (uint16_t)(i % 4093 == 4092 || i % 8192 == 8191 ? 99 : i % 50);
        n_documents += t[i] == 99;
    }
    t[N - 1] = 99;
    n_documents += (N - 1) % 4093 != 4092;
    put("long.bin", t, N * sizeof *t);
    one_source("long.bin", DATA_NANOGPT, 258, 99);
    struct data *d = prepare_open();
    CHECK(data_stats(d)->n_tokens == N && data_stats(d)->n_documents == n_documents);
    int32_t *ids = malloc(N * sizeof *ids);
    CHECK(data_read(d, 0, N, ids, &e) == 0);
    int bad = 0;
    for (int i = 0; i < N; i++) bad += ids[i] != t[i];
    for (int64_t k = 0; k < n_documents; k++) bad += t[data_documents(d)[k] - 1] != 99;
    CHECK(bad == 0);
    /* reads ranges, whose tokens must equal those of a read of the complete file */
    for (int64_t i = 0; i + 3 < N; i += 9973)
        CHECK(data_read(d, i, 3, ids, &e) == 0 && ids[0] == t[i] && ids[2] == t[i + 2]);
    data_close(d);
    free(ids);
    free(t);
}

/* ---- npy ------------------------------------------------------------------------------------- */

static void npy(int version, const char *header, size_t pad)
{
    const size_t n = strlen(header) + pad + 1;
    begin();
    add("\x93NUMPY", 6);
    add_int(version, 1);
    add_int(0, 1);
    add_int((int64_t)n, version == 1 ? 2 : 4);
    add(header, strlen(header));
    for (size_t i = 0; i < pad; i++) file[size++] = ' ';
    file[size++] = '\n';
}

static void test_npy(void)
{
    static const int64_t ids[] = {1, 2, 99, 100, 99};
    static const uint64_t whole[] = {5}, cut[] = {3, 5};
    static const struct {
        const char *descr;
        int width;
    } types[] = {{"|u1", 1}, {"|i1", 1}, {"<u2", 2}, {"<i2", 2},
                 {"<u4", 4}, {"<i4", 4}, {"<u8", 8}, {"<i8", 8}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int version = 1; version <= 3; version++) {
            char header[128];
            snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': (5,), }",
                     types[t].descr, version == 2 ? "True" : "False");
            npy(version, header, version == 1 ? 0 : 40);
            const uint64_t at = size;
            add_ints(ids, 5, types[t].width);
            end("a.npy");
            one_source("a.npy", DATA_NPY, 258, -1);
            struct data *d = prepare_open();
            check_data(d, ids, 5, whole, 1);
            check_origin(d, 0, 0, at);
            data_close(d);
            one_source("a.npy", DATA_NPY, 258, 99);
            d = prepare_open();
            check_data(d, ids, 5, cut, 2);
            check_origin(d, 1, 1, at + 3 * (uint64_t)types[t].width);
            data_close(d);
        }
}

static void test_npy_hostile(void)
{
    static const struct {
        const char *header, *want;
        enum err_code code;
    } bad[] = {
        {"{'descr': '>u2', 'fortran_order': False, 'shape': (4,), }", "big-endian", ERR_INVALID},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", "no integers", ERR_INVALID},
        {"{'descr': '<u3', 'fortran_order': False, 'shape': (4,), }", "no integers", ERR_INVALID},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (4,), }", "no integers", ERR_INVALID},
        {"{'descr': [('a','<u2')], 'fortran_order': False, 'shape': (4,), }", "no dictionary",
         ERR_CORRUPT},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (2, 2), }", "2 dimensions",
         ERR_INVALID},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (), }", "0 dimensions", ERR_INVALID},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }", "8 bytes after", ERR_CORRUPT},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775807,), }",
         "no dictionary", ERR_CORRUPT},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999999,), }",
         "no dictionary", ERR_CORRUPT},
        {"{'descr': '<u8', 'fortran_order': False, 'shape': (1152921504606846976,), }",
         "no dictionary", ERR_CORRUPT}, /* 2^60, times 8 bytes 2^63 */
        {"{'descr': '<u8', 'fortran_order': False, 'shape': (1152921504606846960,), }",
         "8 bytes after", ERR_CORRUPT},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (-4,), }", "no dictionary",
         ERR_CORRUPT},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (4,), 'x': 1}", "no dictionary",
         ERR_CORRUPT},
        {"{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (4,)}", "no dictionary",
         ERR_CORRUPT},
        {"{'descr': '<u2', 'shape': (4,)}", "no dictionary", ERR_CORRUPT},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (4,", "no dictionary", ERR_CORRUPT},
        {"", "no dictionary", ERR_CORRUPT},
        {"{}", "no dictionary", ERR_CORRUPT},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (4,)} x", "no dictionary",
         ERR_CORRUPT}};
    static const int64_t ids[] = {1, 2, 3, 4};
    one_source("h.npy", DATA_NPY, 258, -1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        npy(1, bad[i].header, 0);
        add_ints(ids, 4, 2);
        end("h.npy");
        refused(bad[i].code, bad[i].want);
    }
    npy(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (4,)}", 0);
    add_ints(ids, 3, 2);
    add_int(-7, 2);
    end("h.npy");
    refused(ERR_INVALID, "token 3 is -7");
    npy(1, "{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", 0);
    add_int((int64_t)1 << 40, 8);
    end("h.npy");
    refused(ERR_INVALID, "token 0 is 1099511627776");
    npy(2, "{'descr': '<u2', 'fortran_order': False, 'shape': (4,)}", 0);
    const size_t full = size;
    for (size_t n = 0; n < full; n += 3) {
        size = n;
        end("h.npy");
        refused(ERR_CORRUPT, n < 6 ? "header" : ""); /* every truncation is found */
    }
    npy(2, "{}", 0);
    file[10] = 0xff, file[11] = 0x7f; /* a header of 2 GiB */
    end("h.npy");
    refused(ERR_TOO_LARGE, "at most");
    npy(4, "{}", 0);
    end("h.npy");
    refused(ERR_INVALID, "no NumPy array");
}

/* ---- Megatron -------------------------------------------------------------------------------- */

static const int64_t mg_ids[] = {1, 2, 3, 4, 5, 6, 7};
static const int64_t mg_len[] = {2, 1, 0, 4}, mg_doc[] = {0, 2, 2, 4};
static const uint64_t mg_ends[] = {3, 7}; /* The second of the three documents is empty. */

static void megatron(const char *prefix, int code, int width, const int64_t *len,
                     const int64_t *doc, int n_doc)
{
    char name[64];
    int64_t pointer = 0;
    begin();
    add("MMIDIDX\0\0", 9);
    add_int(1, 8);
    add_int(code, 1);
    add_int(4, 8);
    add_int(n_doc, 8);
    add_ints(len, 4, 4);
    for (int i = 0; i < 4; pointer += len[i++] * width) add_int(pointer, 8);
    add_ints(doc, n_doc, 8);
    snprintf(name, sizeof name, "%s.idx", prefix);
    end(name);
    uint8_t idx[512];
    size_t idx_size = size;
    memcpy(idx, file, size);
    begin();
    add_ints(mg_ids, 7, width);
    snprintf(name, sizeof name, "%s.bin", prefix);
    end(name);
    memcpy(file, idx, idx_size); /* a second copy of the index, for cases that damage it */
    size = idx_size;
}

static void test_megatron(void)
{
    static const struct {
        int code, width;
    } types[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    static const char *const paths[] = {"m_document", "m_document.idx", "m_document.bin", "m_docu*",
                                        "m_*.bin"};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
            megatron("m_document", types[t].code, types[t].width, mg_len, mg_doc, 4);
            one_source(paths[p], DATA_MEGATRON, 258, -1);
            struct data *d = prepare_open();
            check_data(d, mg_ids, 7, mg_ends, 2);
            check_origin(d, 0, 0, 0);
            check_origin(d, 1, 2, 3 * (uint64_t)types[t].width);
            CHECK(data_stats(d)->n_skipped == 1);
            data_close(d);
        }
    struct data_stats a, b;
    one_source("m_document", DATA_MEGATRON, 258, -1);
    CHECK(prepare(&a) == 0);
    begin(); /* other tokens with the same index are different data */
    add_ints(mg_ids, 6, 2);
    add_int(9, 2);
    end("m_document.bin");
    CHECK(prepare(&b) == 0 && strcmp(a.id, b.id));
}

static void break_index(size_t at, int64_t value, int width, enum err_code code, const char *want)
{
    megatron("bad", 8, 2, mg_len, mg_doc, 4);
    const size_t full = size;
    size = at;
    add_int(value, width);
    size = full;
    end("bad.idx");
    one_source("bad", DATA_MEGATRON, 258, -1);
    refused(code, want);
}

static void test_megatron_hostile(void)
{
    break_index(0, 'X', 1, ERR_INVALID, "no Megatron index");
    break_index(9, 2, 8, ERR_UNSUPPORTED, "version 2");
    break_index(17, 6, 1, ERR_INVALID, "real numbers");
    break_index(17, 7, 1, ERR_INVALID, "real numbers");
    break_index(17, 0, 1, ERR_CORRUPT, "dtype 0");
    break_index(17, 9, 1, ERR_CORRUPT, "dtype 9");
    /* the width of tokens in the header is not that of the file */
    break_index(17, 4, 1, ERR_INVALID, "token 0 is 131073");
    break_index(18, 5, 8, ERR_CORRUPT, "cannot hold");
    break_index(18, -1, 8, ERR_CORRUPT, "cannot hold");
    break_index(18, (int64_t)1 << 61, 8, ERR_CORRUPT, "cannot hold");
    break_index(26, (int64_t)1 << 61, 8, ERR_CORRUPT, "cannot hold");
    break_index(26, 0, 8, ERR_CORRUPT, "cannot hold");
    break_index(34, -1, 4, ERR_CORRUPT, "-1 tokens");
    break_index(34 + 12, 5, 4, ERR_CORRUPT, "inside of its tokens");
    break_index(34 + 12, 3, 4, ERR_CORRUPT, "its index describes");
    break_index(34 + 12, INT32_MAX, 4, ERR_CORRUPT, "inside of its tokens");
    break_index(34 + 16, 2, 8, ERR_CORRUPT, "want it to begin");
    break_index(34 + 48, 1, 8, ERR_CORRUPT, "begins with sequence 1");
    break_index(34 + 56, 5, 8, ERR_CORRUPT, "document 0 is sequences [0, 5) of 4");
    break_index(34 + 64, 1, 8, ERR_CORRUPT, "document 1 is sequences [2, 1)");
    break_index(34 + 72, 3, 8, ERR_CORRUPT, "hold 3 of 4");
    break_index(34 + 72, -1, 8, ERR_CORRUPT, "document 2");
    megatron("bad", 8, 2, mg_len, mg_doc, 4);
    const size_t full = size;
    for (size_t n = 0; n < full; n += 5) { /* cut anywhere */
        size = n;
        end("bad.idx");
        refused(ERR_CORRUPT, "bad.idx");
    }
    size = full;
    add("\0\0\0\0", 4); /* a mode for each sequence */
    end("bad.idx");
    refused(ERR_UNSUPPORTED, "multimodal");
    megatron("bad", 8, 2, mg_len, mg_doc, 4);
    unlink(in_dir("bad.bin"));
    refused(ERR_NOT_FOUND, "bad.bin");
    CHECK(symlink("/etc/passwd", in_dir("bad.bin")) == 0);
    refused(ERR_INVALID, "leads outside");
}

int main(void)
{
    datadir_begin("formats");
    RUN(test_llmc);
    RUN(test_llmc_wide);
    RUN(test_llmc_hostile);
    RUN(test_nanogpt);
    RUN(test_long_shard);
    RUN(test_npy);
    RUN(test_npy_hostile);
    RUN(test_megatron);
    RUN(test_megatron_hostile);
    return datadir_end("formats");
}
