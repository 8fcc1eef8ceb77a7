/* sources: worker/family/[a-z]*.c worker/program/[a-z]*.c worker/hf/inspect.c worker/hf/hf.c worker/hf/stored.c worker/hf/compare.c worker/hf/weights.c kernels/half.c worker/hf/safetensors.c worker/hf/files.c worker/hf/tokenizer.c worker/hf/config_write.c worker/hf/list.c worker/hf/mxfp4.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/plan/param.c api/core/spec.c api/core/nearest.c api/core/job.c api/core/job_infer.c api/core/job_text.c api/core/job_train.c api/core/job_merge.c api/core/device.c api/core/err.c api/core/faults.c api/core/file.c api/core/beneath.c api/core/jread.c api/core/jwrite.c api/core/mem.c api/core/sha256.c api/core/room.c worker/hf/embedding.c worker/hf/names.c worker/hf/blocks.c worker/gguf/[a-z]*.c worker/hf/gguf.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads any bytes as a GGUF file. Accepted keys and tensors must be inside the file and sorted,
 * and no name may occur twice. Every value must be readable. The texts that are made from the
 * file, such as its config.json, must be JSON or must be refused with one sentence. If the report
 * finds no fault, all weights must load. In half of the inputs the first bytes are corrected, so
 * that the fuzzer need not guess them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/jread.h"
#include "worker/gguf/gguf.h"
#include "worker/gguf/gguf_names.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/hf.h"
#include "worker/hf/inspect.h"
#include "worker/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_key(const struct gguf *g, int i)
{
    const struct gguf_key *k = gguf_key(g, i);
    const uint8_t *at = NULL;
    volatile size_t sum = 0;
    int64_t whole;
    double real;
    assert(i == 0 || strcmp(gguf_key(g, i - 1)->name, k->name) < 0);
    assert(gguf_find(g, k->name) == k && (k->array || k->n == 1));
    for (int64_t n = 0; n < k->n; n++) {
        const char *s;
        size_t size;
        if (k->type == GGUF_STRING) {
            gguf_string(k, &at, &s, &size);
            for (size_t b = 0; b < size; b++) sum += (size_t)s[b];
        } else if (gguf_int(k, n, &whole)) {
            assert(gguf_real(k, n, &real));
        }
    }
}

static void check(const struct gguf *g, size_t file_size)
{
    struct err e = {0};
    int64_t total = 0;
    for (int i = 0; i < gguf_keys(g); i++) check_key(g, i);
    const struct gguf_arch *arch = gguf_arch(g, &e);
    for (int i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor(g, i);
        struct gguf_place place;
        assert(i == 0 || strcmp(gguf_tensor(g, i - 1)->name, t->name) < 0);
        assert(t->offset >= 24 && t->size > 0 && t->offset + t->size <= (int64_t)file_size);
        assert(t->n_dims >= 1 && t->n_dims <= GGUF_DIMS);
        if (arch) gguf_place(arch, t->name, &place);
        total += t->size;
    }
    assert(total <= (int64_t)file_size);
}

static void check_texts(const char *path)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json", "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct err e = {0};
        struct model_text t;
        struct jread j;
        enum jtok tok = J_END;
        if (model_file_read(path, names[i], 1 << 24, &t, &e) < 0) {
            assert(e.code && *e.text && !strchr(e.text, '\n') && !t.text);
            continue;
        }
        if (t.text && i < 4) {
            jread_init(&j, t.text, t.size);
            while ((tok = jread_next(&j)) != J_END) assert(tok != J_ERROR);
        }
        model_file_free(&t);
    }
}

static void check_model(const char *path)
{
    enum { SMALL = 1 << 20 };
    static struct faults f;
    struct hf_summary s;
    struct err e = {0};
    f.n = 0;
    hf_inspect(path, &s, &f);
    for (int i = 0; i < faults_kept(&f); i++)
        assert(f.fault[i].code && *f.fault[i].text && !strchr(f.fault[i].text, '\n'));
    assert(s.loads || f.n);
    tokenizer_destroy(tokenizer_open(path, &e));
    if (!s.loads || param_count(&s.shape) > SMALL) return;
    float *x = malloc((size_t)param_count(&s.shape) * sizeof *x);
    if (!x) abort();
    assert(hf_load(path, &s.shape, DT_F32, x, &e) == 0);
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    struct err e = {0};
    static const uint8_t head[8] = {'G', 'G', 'U', 'F', 3};
    if (size < 8) return 0;
    if (fd < 0) fd = memfd_create("fuzz", 0);
    if (ftruncate(fd, 0) < 0) abort();
    if (pwrite(fd, data[7] & 1 ? data : head, 8, 0) != 8) abort();
    if (pwrite(fd, data + 8, size - 8, 8) != (ssize_t)(size - 8)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct gguf *g = gguf_open(path, &e);
    assert(g || (e.code && *e.text && !strchr(e.text, '\n')));
    if (g) {
        check(g, size);
        check_texts(path);
        check_model(path);
    }
    gguf_close(g);
    return 0;
}
