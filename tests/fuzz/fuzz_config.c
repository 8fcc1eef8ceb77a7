/* sources: worker/family/[a-z]*.c worker/program/[a-z]*.c worker/hf/config_write.c worker/hf/list.c worker/plan/param.c api/core/spec.c api/core/nearest.c api/core/job.c api/core/job_infer.c api/core/job_text.c api/core/job_train.c api/core/job_merge.c api/core/device.c api/core/err.c api/core/faults.c api/core/file.c api/core/beneath.c api/core/jread.c api/core/jwrite.c api/core/mem.c api/core/sha256.c api/core/room.c worker/gguf/[a-z]*.c
 *
 * Reads any bytes as a config.json. The planner must be able to multiply the sizes of an accepted
 * shape without overflow, and reading the shape's description must give the same shape. A
 * description may be sent many times, like a job's model.config. Whether a user or transformers
 * wrote it, it must either be refused with a field's name, or give the same shape each time. If a
 * config.json with the job's changes is written for new weights, reading it must give the job's
 * shape. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "worker/family/config.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"

static char dir[64], from[80], to[80];

static void end(void)
{
    file_remove(dir, NULL);
}

static void begin(void)
{
    if (*dir) return;
    snprintf(dir, sizeof dir, "/dev/shm/seqd-fuzz-config-%d", (int)getpid());
    snprintf(from, sizeof from, "%s/from", dir);
    snprintf(to, sizeof to, "%s/to", dir);
    if (mkdir(dir, 0700) || mkdir(from, 0700) || mkdir(to, 0700)) abort();
    atexit(end);
}

static void shape_of_bytes(const uint8_t *data, size_t size, struct model_shape *m)
{
    char path[96];
    struct model_shape back;
    struct err e = {0};
    const struct hf_beside b = {.from = from, .bytes = size % 2};
    begin();
    snprintf(path, sizeof path, "%s/config.json", from);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) abort();
    if (size % 3 == 0 && (m->family == FAMILY_LLAMA || m->family == FAMILY_MINIMAX))
        m->rope_theta = 54321;
    assert(hf_config_write(to, m, DT_F32, &b, &e) == 0);
    assert(config_read_dir(to, &back, &e) == 0 && !hf_shape_diff(m, &back));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct job_spec job;
    struct model_shape m;
    struct err e = {0};
    spec_defaults(&job);
    assert(!spec_intern(&job, "/m", 2, &job.model.path));
    if (config_take(&job, (const char *)data, size, CONFIG_KEPT, &e)) {
        assert(e.code && *e.field && *e.text);
    } else {
        m = job.model.shape;
        assert(config_open(&job, &e) == 0 && !memcmp(&m, &job.model.shape, sizeof m));
    }
    spec_defaults(&job);
    if (config_take(&job, (const char *)data, size, CONFIG_JOB, &e)) {
        assert(e.code && *e.text);
    } else {
        m = job.model.shape;
        assert(config_open(&job, &e) == 0 && !memcmp(&m, &job.model.shape, sizeof m));
    }
    spec_defaults(&job);
    assert(!spec_intern(&job, "/m", 2, &job.model.path));
    if (config_parse((const char *)data, size, "config.json", &m, &e) < 0) {
        assert(e.code && e.text[0]);
        return 0;
    }
    assert(m.n_heads % m.n_kv_heads == 0 && m.head_dim % 2 == 0 && m.width > 0);
    assert(m.vocab >= 258 || family_diffusion(&m));
    assert(hf_shape_json(&m, job.model.config, sizeof job.model.config) > 0);
    assert(config_open(&job, &e) == 0 && !memcmp(&m, &job.model.shape, sizeof m));
    shape_of_bytes(data, size, &m);
    return 0;
}
