/* gang_start.c: reads and writes start, cpus and oom_kills. The file of a start record ends after
 * the last string of the spec, but is not shorter than a record of 0.2.0. */
#include "api/core/gang_start.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/version.h"

/* Size of a record of 0.2.0, which is the only size that the agent of 0.2.0 accepts. Unused room
 * for the spec's strings is not written. So a record has this size unless its spec has many
 * strings. */
#define SIZE_BEFORE 94368
static_assert(offsetof(struct gang_start, version) == 14576, "as in 0.2.0");
static_assert(sizeof(struct gang_start) >= SIZE_BEFORE, "it is written whole");

int gang_start_write(const char *path, struct gang_start *start, struct err *e)
{
    const struct job_spec *s = &start->spec;
    const size_t strings = sizeof s->text - s->text_used;
    size_t size = sizeof *start - strings;
    snprintf(start->version, sizeof start->version, "%s", SEQD_VERSION);
    start->spec_size = sizeof *s;
    if (size < SIZE_BEFORE) size = SIZE_BEFORE;
    return file_write_private(path, start, size, e);
}

struct gang_start *gang_start_read(const char *path, bool *whole, struct err *e)
{
    size_t size;
    struct gang_start *out = calloc(1, sizeof *out);
    char *data = file_read(path, sizeof *out, &size, e);
    assert(out);
    if (!data) {
        free(out);
        return NULL;
    }
    memcpy(out, data, size);
    explicit_bzero(data, size);
    free(data);
    if (size < SIZE_BEFORE || out->abi != RANK_ABI) {
        err_set(e, ERR_CORRUPT, "%s has %zu bytes and abi %u, want at least %d and %u", path, size,
                out->abi, SIZE_BEFORE, RANK_ABI);
        explicit_bzero(out->key, sizeof out->key);
        free(out);
        return NULL;
    }
    *whole = out->spec_size == (int64_t)sizeof out->spec &&
             !strncmp(out->version, SEQD_VERSION, sizeof out->version);
    return out;
}

int gang_cpus_write(const char *dir, const cpu_set_t *cpus, int n, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/cpus", dir) < 0) return -1;
    return file_write(path, cpus, (size_t)n * sizeof *cpus, e);
}

bool gang_cpus_read(const char *dir, cpu_set_t *cpus, int n)
{
    char path[FILE_PATH_SIZE];
    size_t size = 0;
    const size_t want = (size_t)n * sizeof *cpus;
    if (file_join(path, NULL, "%s/cpus", dir) < 0) return false;
    char *data = file_read(path, (int64_t)want, &size, NULL);
    const bool good = data && size == want;
    if (good) memcpy(cpus, data, want);
    free(data);
    return good;
}

int gang_kills_write(const char *dir, int64_t kills, struct err *e)
{
    char path[FILE_PATH_SIZE], text[32];
    if (file_join(path, e, "%s/oom_kills", dir) < 0) return -1;
    const int n = snprintf(text, sizeof text, "%lld\n", (long long)kills);
    return file_write(path, text, (size_t)n, e);
}

int64_t gang_kills_read(const char *dir)
{
    char path[FILE_PATH_SIZE];
    long long kills = -1;
    if (file_join(path, NULL, "%s/oom_kills", dir) < 0) return -1;
    char *text = file_read(path, 32, NULL, NULL);
    const bool good = text && sscanf(text, "%lld", &kills) == 1 && kills >= 0;
    free(text);
    return good ? kills : -1;
}
