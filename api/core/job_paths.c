/* job_paths.c: lists the paths of a spec, and reads and writes the forms of job:ID by hand-written
 * scanners. */
#include "api/core/job_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/beneath.h"
#include "api/core/manifest.h"

static const char prefix[] = "job:";
enum { PREFIX = sizeof prefix - 1 };
static const char artifacts[] = "artifacts/";
static const char digits[] = "0123456789";

static int add(struct spec_path *out, int n, spec_ref *ref, const char *field)
{
    if (!*ref) return n;
    out[n].ref = ref;
    out[n].source = NULL;
    snprintf(out[n].field, sizeof out[n].field, "%s", field);
    return n + 1;
}

static int add_source(struct spec_path *out, int n, struct spec_source *source, const char *field)
{
    const int more = add(out, n, &source->path, field);
    if (more > n) out[n].source = source;
    return more;
}

static int add_sources(struct spec_path *out, int n, struct spec_source *list, int n_list,
                       const char *what)
{
    char field[48];
    for (int i = 0; i < n_list; i++) {
        snprintf(field, sizeof field, "%s.%d.path", what, i);
        n = add_source(out, n, &list[i], field);
    }
    return n;
}

const char *job_adapter_field(const struct job_spec *s, int i, char out[JOB_ADAPTER_FIELD])
{
    snprintf(out, JOB_ADAPTER_FIELD, "model.adapters.%.64s",
             spec_text(s, s->model.adapters[i].name));
    return out;
}

static int add_adapters(struct spec_path *out, int n, struct job_spec *s)
{
    char field[JOB_ADAPTER_FIELD];
    for (int i = 0; i < SPEC_ADAPTERS; i++)
        n = add(out, n, &s->model.adapters[i].path, job_adapter_field(s, i, field));
    return n;
}

int job_paths(struct job_spec *s, struct spec_path out[SPEC_PATHS])
{
    int n = add(out, 0, &s->model.path, "model.path");
    n = add(out, n, &s->model.adapter, "model.adapter");
    n = add_adapters(out, n, s);
    if (s->checkpoint.resume == RESUME_PATH)
        n = add(out, n, &s->checkpoint.resume_path, "checkpoint.resume");
    n = add_source(out, n, &s->input.source, "input.path");
    n = add(out, n, &s->context.load, "context.load");
    n = add_sources(out, n, s->data.train, s->data.n_train, "data.train");
    return add_sources(out, n, s->eval.data, s->eval.n_data, "eval.data");
}

bool job_ref_is(const char *path)
{
    return !strncmp(path, prefix, PREFIX);
}

/* Reads a number of at most 18 digits. Returns 0 if there is none. *end gets the rest of the
 * text. */
static int64_t read_number(const char *text, const char **end)
{
    const size_t n = strspn(text, digits);
    *end = text + n;
    return n && n <= 18 ? strtoll(text, NULL, 10) : 0;
}

static bool read_below(const char *below, struct job_ref *out)
{
    if (strlen(below) >= sizeof out->below || !beneath_name_good(below)) return false;
    memcpy(out->below, below, strlen(below) + 1);
    return true;
}

/* Reads the part of a reference after its job, such as "step-20", "step-20/hf" or
 * "artifacts/a.bin". */
static bool read_part(const char *part, struct job_ref *out)
{
    const size_t n = sizeof artifacts - 1;
    if (!strncmp(part, artifacts, n)) {
        out->artifact = true;
        return !strchr(part + n, '/') && read_below(part + n, out);
    }
    if (strncmp(part, "step-", 5)) return false;
    out->step = read_number(part + 5, &part);
    if (!out->step) return false;
    return !*part || (*part == '/' && read_below(part + 1, out));
}

int job_ref_read(const char *path, const char *field, struct job_ref *out, struct err *e)
{
    const char *text = path + PREFIX, *part = strchr(text, '/'), *end;
    const size_t n = part ? (size_t)(part - text) : strlen(text);
    bool good = n > 0 && n < sizeof out->name;
    *out = (struct job_ref){0};
    if (good && strspn(text, digits) == n)
        good = (out->job = read_number(text, &end)) > 0;
    else if (good)
        memcpy(out->name, text, n);
    if (good && (!part || read_part(part + 1, out))) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s: %s: want job:ID, job:ID/step-N, job:ID/step-N/hf, "
                     "job:ID/step-N/adapter or job:ID/artifacts/NAME",
                     field, path);
}

static int fits(int n, size_t size)
{
    return n < 0 || (size_t)n >= size ? -1 : n;
}

int job_ref_write(const struct job_ref *r, char *out, size_t size)
{
    const long long job = r->job;
    if (r->artifact) return fits(snprintf(out, size, "job:%lld/artifacts/%s", job, r->below), size);
    return fits(snprintf(out, size, "job:%lld/step-%lld%s%s", job, (long long)r->step,
                         *r->below ? "/" : "", r->below),
                size);
}

int job_ref_path(const struct job_ref *r, bool grant, char *out, size_t size)
{
    const char *below = grant ? "" : r->below;
    if (r->artifact) return fits(snprintf(out, size, "artifacts/%s", r->below), size);
    return fits(snprintf(out, size, "checkpoints/" MANIFEST_STEP "%s%s", (long long)r->step,
                         *below ? "/" : "", below),
                size);
}

bool job_ref_guess(const char *path, struct job_ref *out, size_t *len)
{
    static const char jobs[] = "/jobs/", checkpoints[] = "/checkpoints/step-";
    for (const char *p = path; (p = strstr(p, jobs)); p++) {
        const char *rest = p + sizeof jobs - 1;
        *out = (struct job_ref){.job = read_number(rest, &rest)};
        if (!out->job || strncmp(rest, checkpoints, sizeof checkpoints - 1)) continue;
        out->step = read_number(rest + sizeof checkpoints - 1, &rest);
        if (!out->step || (*rest && *rest != '/')) continue;
        *len = (size_t)(rest - path);
        while (*rest == '/') rest++;
        if (!*rest || read_below(rest, out)) return true;
    }
    return false;
}

bool job_path_tidy(const char *path, char *out, size_t size)
{
    size_t len = 0;
    if (*path != '/' || size < 2) return false;
    for (const char *p = path; *p;) {
        p += strspn(p, "/");
        const size_t n = strcspn(p, "/");
        const bool up = n == 2 && p[0] == '.' && p[1] == '.';
        if (up)
            while (len && out[--len] != '/') continue;
        else if (n && !(n == 1 && *p == '.')) {
            if (len + n + 2 > size) return false;
            out[len] = '/';
            memcpy(out + len + 1, p, n);
            len += n + 1;
        }
        p += n;
    }
    if (!len) out[len++] = '/';
    out[len] = 0;
    return true;
}
