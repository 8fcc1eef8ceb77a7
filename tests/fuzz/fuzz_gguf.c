/* sources: worker/gguf/[a-z]*.c api/core/file.c api/core/sha256.c api/core/jread.c api/core/jwrite.c api/core/mem.c api/core/err.c api/core/beneath.c
 *
 * Any bytes as a GGUF file: accepted keys and tensors lie inside it, sorted and each once; every
 * value can be read; each text that it stands for is JSON, or refused in one sentence. Half of the
 * inputs get the right first bytes, so that the fuzzer need not guess them. */
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
    }
    gguf_close(g);
    return 0;
}
