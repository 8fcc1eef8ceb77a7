/* bench_setup: measures, in MB/s, the work that a job does before its first step and between
 * steps. The rows of `checkpoint` and of `load` are printed beside a limit of this machine that is
 * measured in the same run:
 *
 *   random       makes the weights of a Llama of 124 M, by one thread and by two
 *   checkpoint   saves the same model's weights and moments, checks them (both files at the same
 *                time), checks and loads them, and loads them by two threads without a check, as a
 *                job does after it has checked them. The limits are SHA-256 on one core, and
 *                writing and fsyncing the same number of bytes.
 *   load         loads the same model's directory, in fp32 and in bf16, as weights of either
 *                dtype, from files in the page cache to new pages. The limit is reading the same
 *                number of bytes. LAYERS=N in the environment selects a model of N layers.
 *   prepare      turns text of one file, text of many files, and records into tokens, by one
 *                thread and by two, as bytes and with a tokenizer of the GPT-2 kind
 *
 * usage: bench_setup [random|checkpoint|load|prepare] ...; scratch files are written to $TMPDIR.
 * Each figure is the best of a few runs, because other programs can only add time. */
#include <fcntl.h>
#include "api/core/file.h"
#include "tests/bench/passes.h"
#include "tests/bench/peak.h"
#include "tests/lib/checkpoint.h"
#include "worker/ckpt/ckpt.h"
#include "worker/data/data.h"
#include "worker/family/shape.h"
#include "worker/hf/hf.h"
#include "worker/model/host_copy.h"
#include "worker/plan/plan.h"

enum { RUNS = 3 };

static char dir[FILE_PATH_SIZE];
static struct job_spec spec;
static struct err e;

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) fprintf(stderr, "bench_setup:%d: %s: %s\n", __LINE__, #x, e.text), exit(1);      \
    } while (0)

static const char *in_dir(const char *name)
{
    static char path[4][FILE_PATH_SIZE];
    static int k;
    k = (k + 1) % 4;
    MUST(!file_join(path[k], &e, "%s/%s", dir, name));
    return path[k];
}

static void row(const char *what, double bytes, double seconds)
{
    printf("%-52s %8.0f MB/s %8.3f s\n", what, bytes / seconds / 1e6, seconds);
    printf("{\"bench\":\"setup\",\"name\":\"%s\",\"mb_s\":%.1f,\"s\":%.4f}\n", what,
           bytes / seconds / 1e6, seconds);
    fflush(stdout);
}

static float *pages(int64_t n)
{
    float *p = mmap(NULL, (size_t)n * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                    0);
    MUST(p != MAP_FAILED);
    (void)madvise(p, (size_t)n * 4, MADV_HUGEPAGE); /* as for an arena on the CPU */
    return p;
}

/* ---- random weights -------------------------------------------------------------------------- */

static void bench_random(void)
{
    const struct model_shape m = llama_124m;
    const int64_t n = param_count(&m);
    double best[3] = {0, INFINITY, INFINITY};
    /* one thread and two threads alternate; each run uses new pages, as a job does */
    for (int i = 0; i < 2 * RUNS; i++) {
        const int threads = 1 + i % 2;
        struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = threads}, &e);
        MUST(be);
        float *p = pages(n);
        const double start = peak_now_s();
        model_random_part(be, &m, 0, 1, 0, tensor_f32(p, 1, n, n));
        best[threads] = fmin(best[threads], peak_now_s() - start);
        munmap(p, (size_t)n * 4);
        be_close(be);
    }
    row("random weights, fp32, one thread", (double)n * 4, best[1]);
    row("random weights, fp32, two threads", (double)n * 4, best[2]);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static double hash_seconds(const float *p, int64_t n)
{
    struct sha256 s;
    char hex[SHA256_HEX];
    const double start = peak_now_s();
    sha256_init(&s);
    sha256_add(&s, p, (size_t)n * 4);
    sha256_hex(&s, hex);
    return peak_now_s() - start;
}

/* Returns the time in seconds that the disk alone needs. To measure it, this function writes large
 * pieces of memory and computes no digest. */
static double write_seconds(const float *p, int64_t n)
{
    enum { PIECE = 1 << 20 };
    const char *path = in_dir("plain"), *from = (const char *)p;
    const double start = peak_now_s();
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    MUST(fd >= 0);
    for (int64_t at = 0; at < n * 4; at += PIECE) {
        const size_t size = (size_t)(n * 4 - at < PIECE ? n * 4 - at : PIECE);
        MUST(write(fd, from + at, size) == (ssize_t)size);
    }
    MUST(!fsync(fd) && !close(fd));
    const double end = peak_now_s();
    unlink(path);
    return end - start;
}

/* Writes an array of a training to its offset. */
static int put_array(void *arg, int which, int64_t offset, int64_t n, const float *x,
                     struct err *why)
{
    const int64_t size = param_count(&llama_124m);
    (void)why;
    memcpy((float *)arg + which * size + offset, x, (size_t)n * sizeof *x);
    return 0;
}

static void bench_checkpoint(void)
{
    const struct model_shape m = llama_124m;
    const int64_t n = param_count(&m);
    float *p = pages(3 * n);
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 2}, &e);
    struct ckpt_state state = {.step = 1};
    struct ckpt_arrays a = {.params = p, .dtype = DT_F32, .m = p + n, .v = p + 2 * n};
    const struct ckpt_arrays flow = {
        .dtype = DT_F32, .flow = {.write = put_array, .arg = p, .be = be, .any_order = true}};
    struct ckpt_info info, checked;
    double hash = INFINITY, plain = INFINITY, save = INFINITY, check = INFINITY, load = INFINITY;
    double read = INFINITY;
    MUST(be);
    for (int i = 0; i < 3; i++) model_random_part(be, &m, 0, i, 0, tensor_f32(p + i * n, 1, n, n));
    for (int i = 0; i < RUNS; i++) {
        hash = fmin(hash, hash_seconds(p, n));
        plain = fmin(plain, write_seconds(p, 3 * n));
        double at = peak_now_s();
        MUST(!ckpt_save(dir, 0, &m, &a, &state, &info, &e));
        save = fmin(save, peak_now_s() - at);
        at = peak_now_s();
        MUST(!ckpt_check(info.path, &checked, &e));
        check = fmin(check, peak_now_s() - at);
        at = peak_now_s();
        MUST(!checkpoint_load(info.path, &m, &a, &state, &e));
        load = fmin(load, peak_now_s() - at);
        at = peak_now_s();
        MUST(!ckpt_load_checked(&checked, &m, &flow, &state, &e));
        read = fmin(read, peak_now_s() - at);
        MUST(!file_remove(in_dir("checkpoints"), &e));
    }
    row("SHA-256 of one core", (double)n * 4, hash);
    row("as many bytes written and fsynced", (double)n * 12, plain);
    row("checkpoint saved", (double)info.size, save);
    row("checkpoint checked", (double)info.size, check);
    row("checkpoint checked and loaded", (double)info.size, load);
    row("checkpoint loaded, two threads", (double)info.size, read);
    be_close(be);
    munmap(p, (size_t)n * 12);
}

/* ---- weights of a directory ------------------------------------------------------------------ */

struct read_all { /* a file that threads read into pages, without doing anything else */
    int fd;
    char *to;
    int64_t size;
};

enum { READ = 4 << 20 }; /* bytes of a task */

static void read_task(void *arg, int64_t task, int worker)
{
    const struct read_all *r = arg;
    const int64_t at = task * READ, size = r->size - at < READ ? r->size - at : READ;
    (void)worker;
    MUST(pread(r->fd, r->to + at, (size_t)size, at) == size);
}

static double read_seconds(struct be *be, const char *path, int64_t size)
{
    struct read_all r = {open(path, O_RDONLY | O_CLOEXEC), (char *)pages(size / 4 + 1), size};
    MUST(r.fd >= 0);
    const double start = peak_now_s();
    be_host_run(be, read_task, &r, (size + READ - 1) / READ);
    const double end = peak_now_s();
    MUST(!close(r.fd) && !munmap(r.to, (size_t)(size / 4 + 1) * 4));
    return end - start;
}

static double load_seconds(struct be *be, const struct model_shape *m, enum dtype dtype)
{
    const int64_t size = param_count(m) * dtype_size(dtype);
    struct device_array there = {be, dtype, pages(size / 4 + 1)};
    const struct hf_sink sink = {.take = device_array_write,
                                 .arg = &there,
                                 .take_half = dtype == DT_F32 ? NULL : device_array_write_half,
                                 .half = dtype,
                                 .be = be,
                                 .any_order = true};
    const double start = peak_now_s();
    MUST(!hf_load_pieces(dir, m, &sink, &e));
    const double end = peak_now_s();
    MUST(!munmap(there.data, (size_t)(size / 4 + 1) * 4));
    return end - start;
}

static int64_t write_model(const struct model_shape *m, enum dtype dtype, struct be *be)
{
    const int64_t n = param_count(m);
    float *p = pages(n);
    model_random_part(be, m, 0, 1, 0, tensor_of(dtype, p, 1, n, n));
    const struct hf_flat flat = {.prefix = "", .data = p, .dtype = dtype};
    MUST(!hf_write_flats(in_dir("model.safetensors"), m, &flat, 1, NULL, &e));
    munmap(p, (size_t)n * 4);
    return n * dtype_size(dtype);
}

static void load_rows(const struct model_shape *m, enum dtype stored, int threads)
{
    static const char *const names[] = {[DT_F32] = "fp32", [DT_BF16] = "bf16"};
    char name[96];
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = threads}, &e);
    MUST(be);
    const double size = (double)write_model(m, stored, be);
    for (int i = 0; i < 3; i++) {
        const enum dtype held = i == 1 ? DT_F32 : DT_BF16;
        double best = INFINITY;
        for (int k = 0; k < RUNS; k++)
            best = fmin(best, i ? load_seconds(be, m, held)
                                : read_seconds(be, in_dir("model.safetensors"), (int64_t)size));
        snprintf(name, sizeof name, "load %s %s, %d thread%s", names[stored],
                 i == 0   ? "read alone"
                 : i == 1 ? "as fp32"
                          : "as bf16",
                 threads, threads > 1 ? "s" : "");
        row(name, size, best);
    }
    be_close(be);
}

static void bench_load(void)
{
    struct model_shape m = llama_124m;
    const char *layers = getenv("LAYERS");
    if (layers) m.n_layers = atoi(layers);
    for (int i = 0; i < 4; i++) load_rows(&m, i < 2 ? DT_F32 : DT_BF16, 1 + i % 2);
}

/* ---- preparation ----------------------------------------------------------------------------- */

/* Writes words with a skewed distribution: as in real texts, a few words make up half of the
 * text. */
static int64_t write_text(const char *path, int64_t size, bool records)
{
    struct file_out f;
    uint64_t x = 1;
    int64_t n_words = 0;
    MUST(!file_out_open(&f, path, &e));
    if (records) MUST(!file_out_add(&f, "{\"text\":\"", 9, &e));
    while (f.size < size) {
        char word[32];
        x = x * 6364136223846793005u + 1442695040888963407u;
        const double u = (double)(x >> 11) / 9007199254740992.0;
        uint32_t rank = (uint32_t)(pow(50000, u)), h = rank * 2654435761u;
        int n = 0;
        for (int k = 2 + (int)(h >> 29); k > 0; k--, h = h * 1664525u + 1013904223u)
            word[n++] = (char)('a' + (h >> 24) % 26);
        word[n++] = n_words % 17 == 16 ? '.' : ' ';
        if (++n_words % 600 == 0)
            n = snprintf(word, sizeof word, "%s", records ? "\"}\n{\"text\":\"" : "\n\n");
        MUST(!file_out_add(&f, word, (size_t)n, &e));
    }
    if (records) MUST(!file_out_add(&f, "\"}\n", 3, &e));
    const int64_t written = f.size;
    MUST(!file_out_close(&f, NULL, &e));
    return written;
}

/* Writes the same text into files of 4 KiB. */
static void split_text(const char *path, const char *to)
{
    enum { PIECE = 4096 };
    size_t n;
    char *text = file_read(path, 64 << 20, &n, &e), name[64];
    MUST(text && !file_make_dir(to, &e));
    for (size_t at = 0; at < n; at += PIECE) {
        snprintf(name, sizeof name, "small/%06zu.txt", at / PIECE);
        MUST(!file_write(in_dir(name), text + at, n - at < PIECE ? n - at : PIECE, &e));
    }
    free(text);
}

static double prepare_seconds(const char *file, enum data_format format, int threads, bool own)
{
    const char *const roots[] = {dir};
    struct data_stats st;
    double best = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        spec_defaults(&spec);
        shape_defaults(&spec.model.shape);
        spec.kind = JOB_TRAIN;
        spec.model.shape.vocab = own ? llama_124m.vocab : 258;
        spec.model.shape.tokenizer = own ? TOKENIZER_OWN : TOKENIZER_BYTE;
        spec.resources.threads = threads;
        spec.data.n_train = 1;
        spec.data.train[0] = (struct spec_source){.format = format, .eod = -1};
        const char *path = in_dir(file), *to = in_dir("prepared");
        MUST(!spec_intern(&spec, path, strlen(path), &spec.data.train[0].path));
        const struct data_model model = {in_dir("model"), 0};
        MUST(!file_remove(to, &e) && !file_make_dir(to, &e));
        const double start = peak_now_s();
        MUST(!data_prepare(&spec, own ? &model : NULL, roots, 1, to, NULL, &st, &e));
        best = fmin(best, peak_now_s() - start);
    }
    return best;
}

static void prepare_row(const char *what, const char *file, enum data_format format, bool own,
                        int64_t size)
{
    char name[96];
    for (int threads = 1; threads <= 2; threads++) {
        snprintf(name, sizeof name, "prepare %s, %d thread%s", what, threads,
                 threads > 1 ? "s" : "");
        row(name, (double)size, prepare_seconds(file, format, threads, own));
    }
}

static void bench_prepare(void)
{
    const int64_t size = 32 << 20;
    const int64_t text = write_text(in_dir("text.txt"), size, false);
    const int64_t records = write_text(in_dir("text.jsonl"), size, true);
    split_text(in_dir("text.txt"), in_dir("small"));
    size_t n;
    char *tokenizer = file_read("tests/golden/tokenizers/gpt2.json", 64 << 20, &n, &e);
    MUST(tokenizer && !file_make_dir(in_dir("model"), &e));
    MUST(!file_write(in_dir("model/tokenizer.json"), tokenizer, n, &e));
    free(tokenizer);
    prepare_row("bytes, text", "text.txt", DATA_TEXT, false, text);
    prepare_row("bytes, small files", "small/*", DATA_TEXT, false, text);
    prepare_row("bytes, jsonl", "text.jsonl", DATA_JSONL, false, records);
    prepare_row("tokenizer, text", "text.txt", DATA_TEXT, true, text);
    prepare_row("tokenizer, small files", "small/*", DATA_TEXT, true, text);
    prepare_row("tokenizer, jsonl", "text.jsonl", DATA_JSONL, true, records);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"random", bench_random},
                 {"checkpoint", bench_checkpoint},
                 {"load", bench_load},
                 {"prepare", bench_prepare}};
    const char *tmp = getenv("TMPDIR");
    pin_open();
    MUST(!file_join(dir, &e, "%s/seqd-bench-XXXXXX", tmp ? tmp : "/tmp"));
    MUST(mkdtemp(dir));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++) wanted = wanted || !strcmp(argv[k], parts[i].name);
        if (wanted) parts[i].run();
    }
    file_remove(dir, NULL);
    return 0;
}
