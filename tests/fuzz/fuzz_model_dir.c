/* sources: worker/family/[a-z]*.c worker/program/[a-z]*.c worker/hf/inspect.c worker/hf/hf.c worker/hf/stored.c worker/hf/compare.c worker/hf/weights.c kernels/half.c worker/hf/safetensors.c worker/hf/files.c worker/hf/tokenizer.c worker/hf/config_write.c worker/hf/list.c worker/hf/mxfp4.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/plan/param.c api/core/spec.c api/core/nearest.c api/core/job.c api/core/job_infer.c api/core/job_text.c api/core/job_train.c api/core/job_merge.c api/core/device.c api/core/err.c api/core/faults.c api/core/file.c api/core/beneath.c api/core/jread.c api/core/jwrite.c api/core/mem.c api/core/sha256.c api/core/room.c worker/hf/embedding.c worker/hf/names.c worker/hf/blocks.c worker/gguf/[a-z]*.c worker/hf/gguf.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads any bytes as a model directory. The input consists of these files, with a byte 0x1e
 * between them: config.json, model.safetensors.index.json, two shards, generation_config.json.
 * Whatever they contain, every fault must be a sentence of one line, and a directory that loads
 * must have all tensors of its shape. If hf_describe accepts a directory with weights, the
 * directory must have no fault that prevents it from loading. A directory without weights may be
 * accepted, because a new model needs none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "worker/hf/hf.h"
#include "worker/hf/inspect.h"

static char dir[64];

static void end(void)
{
    file_remove(dir, NULL);
}

static void begin(void)
{
    if (*dir) return;
    snprintf(dir, sizeof dir, "/dev/shm/seqd-fuzz-model-%d", (int)getpid());
    if (mkdir(dir, 0700)) abort();
    atexit(end);
}

/* Writes a file. If size is 0, no file is written. */
static void put(const char *name, const uint8_t *data, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
    FILE *f = size ? fopen(path, "w") : NULL;
    if (size && (!f || fwrite(data, 1, size, f) != size || fclose(f))) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"config.json", "model.safetensors.index.json",
                                        "1.safetensors", "2.safetensors", "generation_config.json"};
    static struct faults f;
    static char text[16384];
    struct hf_summary s;
    struct err e = {0};
    begin();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const uint8_t *stop = size ? memchr(data, 0x1e, size) : NULL;
        const size_t n = stop ? (size_t)(stop - data) : size;
        put(names[i], data, n);
        data += n + (stop != NULL);
        size -= n + (stop != NULL);
    }
    f.n = 0;
    hf_inspect(dir, &s, &f);
    for (int i = 0; i < faults_kept(&f); i++) {
        assert(f.fault[i].code && *f.fault[i].text);
        assert(!strchr(f.fault[i].text, '\n'));
    }
    assert(s.loads || f.n);
    assert(!s.loads || (s.known && *s.family && s.n_params > 0 && s.weights_size > 0));
    assert(s.weights_size >= 0);
    const int64_t described = hf_describe(dir, text, sizeof text, &e);
    if (described > 0)
        assert(s.loads || !s.weights_size);
    else
        assert(!s.loads || e.code == ERR_TOO_LARGE);
    return 0;
}
