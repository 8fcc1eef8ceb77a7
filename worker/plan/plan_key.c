/* plan_key.c: hashes the bytes of a job's spec. It first clears the members that plans do not read,
 * and replaces every reference to a text by the text. */
#include "worker/plan/plan_key.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/mem.h"
#include "api/core/sha256.h"

/* bytes of a spec before its table of texts */
#define HEAD_SIZE offsetof(struct job_spec, text_used)

/* Texts of which a plan reads only whether they are empty. A number stands for "#". */
static const char *const unread_texts[] = {
    "name",         "model.path",   "model.adapter", "model.adapters.#.path", "memory.offload_dir",
    "context.load", "input.prompt", "output.path",   "checkpoint.resume_path"};
/* Numbers that no plan reads. */
static const char *const unread_numbers[] = {"priority", "seed", "sampling.seed"};

static bool is_path(const char *pattern, const char *path)
{
    for (; *pattern; pattern++) {
        const size_t n = *pattern == '#' ? strspn(path, "0123456789") : *path == *pattern;
        if (!n) return false;
        path += n;
    }
    return !*path;
}

static bool has_path(const char *const *list, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (is_path(list[i], path)) return true;
    return false;
}
#define HAS_PATH(list, path) has_path(list, sizeof(list) / sizeof *(list), path)

/* Adds the text, with its NUL, to the digest, and clears the reference. */
static void add_text(struct sha256 *h, const struct job_spec *s, spec_ref *ref)
{
    const char *text = spec_text(s, *ref);
    sha256_add(h, text, strlen(text) + 1);
    *ref = 0;
}

/* Replaces the reference by a number that tells whether there is a text. */
static void keep_whether(const struct job_spec *s, spec_ref *ref)
{
    *ref = *spec_text(s, *ref) != 0;
}

static void normalise_sources(struct sha256 *h, const struct job_spec *s, struct spec_source *src,
                              int n)
{
    for (int i = 0; i < n; i++) {
        keep_whether(s, &src[i].path);
        add_text(h, s, &src[i].text_key);
    }
}

static void normalise_field(struct sha256 *h, const struct job_spec *s, struct job_spec *copy,
                            const struct field *f)
{
    char *at = (char *)copy + f->offset;
    if (f->type == FIELD_STRING) {
        if (HAS_PATH(unread_texts, f->path))
            keep_whether(s, (spec_ref *)at);
        else
            add_text(h, s, (spec_ref *)at);
    } else if (HAS_PATH(unread_numbers, f->path)) {
        memset(at, 0, f->type == FIELD_INT ? sizeof(int64_t) : sizeof(int32_t));
    }
}

static void add_spec(struct sha256 *h, const struct job_spec *s)
{
    struct job_spec *copy = mem_scratch(sizeof *copy);
    const uint64_t prompt = strlen(spec_text(s, s->input.prompt));
    memcpy(copy, s, HEAD_SIZE);
    const size_t config = strnlen(copy->model.config, sizeof copy->model.config);
    memset(copy->model.config + config, 0, sizeof copy->model.config - config);
    memset(copy->labels, 0, sizeof copy->labels);
    copy->n_labels = 0;
    for (const struct field *f = spec_fields; f->path; f++) normalise_field(h, s, copy, f);
    normalise_sources(h, s, copy->data.train, SPEC_SOURCES);
    normalise_sources(h, s, copy->eval.data, SPEC_SOURCES);
    normalise_sources(h, s, &copy->input.source, 1);
    sha256_add(h, &prompt, sizeof prompt);
    sha256_add(h, copy, HEAD_SIZE);
    free(copy);
}

void plan_key(const struct plan_question *q, uint8_t key[PLAN_KEY_SIZE])
{
    const int64_t rest[] = {q->limits->memory, q->limits->ranks, q->shown, q->ungrouped};
    struct sha256 h;
    sha256_init(&h);
    add_spec(&h, q->asked);
    add_spec(&h, q->spec);
    sha256_add(&h, q->machine, sizeof *q->machine);
    sha256_add(&h, rest, sizeof rest);
    sha256_bytes(&h, key);
}
