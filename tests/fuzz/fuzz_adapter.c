/* sources: worker/family/[a-z]*.c worker/program/[a-z]*.c worker/hf/[a-z]*.c kernels/half.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/plan/param.c api/core/spec.c api/core/nearest.c api/core/job.c api/core/job_infer.c api/core/job_text.c api/core/job_train.c api/core/job_merge.c api/core/device.c api/core/err.c api/core/faults.c api/core/file.c api/core/beneath.c api/core/jread.c api/core/jwrite.c api/core/mem.c api/core/sha256.c api/core/room.c api/core/record.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 * Reads any bytes as the directory of an adapter: adapter_config.json and, after a byte 0x1e,
 * adapter_model.safetensors. A directory is either loaded whole, or refused with a sentence of one
 * line that has no control character. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/thread.h"
#include "kernels/backend.h"
#include "worker/family/family.h"
#include "worker/hf/adapter.h"
#include "worker/program/adapt.h"

/* Neither of these is called, because the sink has no backend and no file of tensors is written. */
void be_host_run(struct be *be, void (*fn)(void *arg, int64_t task, int worker), void *arg,
                 int64_t n_tasks)
{
    (void)be, (void)fn, (void)arg, (void)n_tasks;
    abort();
}

int thread_start(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg,
                 struct err *e)
{
    (void)t, (void)attr, (void)run, (void)arg, (void)e;
    abort();
}

static char dir[64];

static void end(void)
{
    file_remove(dir, NULL);
}

static void begin(void)
{
    if (*dir) return;
    snprintf(dir, sizeof dir, "/dev/shm/seqd-fuzz-adapter-%d", (int)getpid());
    if (mkdir(dir, 0700)) abort();
    atexit(end);
}

static void put(const char *name, const uint8_t *data, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) abort();
}

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    int64_t *sum = arg;
    (void)offset, (void)x, (void)e;
    *sum += n;
    return 0;
}

/* Makes a Llama of one layer with an adapter of rank 1 of each product. If `saves` is set, its
 * embedding and its head are trained whole. */
static void make_shape(struct model_shape *m, bool saves)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_hidden_layers\":1,\"vocab_size\":4,"
        "\"num_attention_heads\":1,\"num_key_value_heads\":1,\"intermediate_size\":4,"
        "\"rms_norm_eps\":1e-6,\"max_position_embeddings\":8,\"tie_word_embeddings\":true}";
    struct err e = {0};
    assert(!config_parse(config, sizeof config - 1, "config", m, &e));
    struct family *f = family_new(m);
    m->adapter.rank = 1;
    m->adapter.alpha = m->adapter.scale = 8;
    m->tied = !saves;
    m->adapter.saves = saves ? ADAPTER_SAVES_EMBEDDING | ADAPTER_SAVES_HEAD : 0;
    for (int i = 0; i < f->layer[0].n_weights; i++)
        if (prog_adapts(&f->layer[0], i)) m->adapter.on[0][i / 64] |= (uint64_t)1 << i % 64;
    family_free(f);
}

static void check(int rc, const struct err *e)
{
    assert(!rc || (e->code && *e->text));
    for (const char *c = e->text; rc && *c; c++) assert((unsigned char)*c >= ' ' && *c != 127);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model_shape shapes[2];
    const uint8_t *stop = size ? memchr(data, 0x1e, size) : NULL;
    const size_t n = stop ? (size_t)(stop - data) : size;
    struct err e = {0};
    int64_t sum = 0, want = 0;
    begin();
    for (int i = 0; i < 2 && !shapes[i].width; i++) make_shape(&shapes[i], i);
    const struct model_shape *const m = &shapes[size && memmem(data, n, "_to_save", 8)];
    put("adapter_config.json", data, n);
    put("adapter_model.safetensors", data + n + (stop != NULL), size - n - (stop != NULL));
    char json[4096];
    check(adapter_describe(dir, json, sizeof json, &e) < 0 ? -1 : 0, &e);
    e = (struct err){0};
    const int rc = adapter_load(dir, m, &(struct hf_sink){.take = take, .arg = &sum}, &e);
    check(rc, &e);
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        if (p.adapter || p.saved) want += p.count;
    }
    assert(rc || sum == want);
    return 0;
}
