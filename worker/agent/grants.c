/* grants.c: makes the list of private directories from seqd's grants and from the job:ID paths
 * of a spec, and replaces each job:ID path by the path of the file on this node. */
#include "worker/agent/grants.h"

#include <stdio.h>
#include <string.h>
#include "api/core/beneath.h"
#include "api/core/job_paths.h"
#include "api/core/log.h"

static bool add(struct grants *g, const char *dir)
{
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->dir[i], dir)) return true;
    if (g->n == RANK_GRANTS || strlen(dir) >= sizeof g->dir[0]) return false;
    snprintf(g->dir[g->n++], sizeof g->dir[0], "%s", dir);
    return true;
}

void grants_take(struct grants *g, const struct state_dir *s, const char *const *list, int n)
{
    char real[FILE_PATH_SIZE];
    struct err e;
    for (int i = 0; i < n; i++) {
        const bool good = !state_dir_beneath(s, list[i], real, &e);
        if (!good && e.code != ERR_NOT_FOUND)
            log_warn("grant.refused", "dir=%s why=\"%s\"", list[i], e.text);
        if (good) add(g, real);
    }
}

static int in_job(const struct state_dir *s, const struct job_ref *r, bool grant, const char *field,
                  char out[FILE_PATH_SIZE], struct err *e)
{
    char below[JOB_REF_BELOW + 64];
    if (job_ref_path(r, grant, below, sizeof below) > 0)
        return file_join(out, e, "%s/jobs/%lld/%s", s->files, (long long)r->job, below);
    return err_field(e, ERR_TOO_LARGE, field, "%s: the path is too long", field);
}

int grants_path(struct grants *g, const struct state_dir *s, const char *path, const char *field,
                char out[FILE_PATH_SIZE], struct err *e)
{
    struct job_ref r;
    if (!job_ref_is(path)) return file_join(out, e, "%s", path);
    if (job_ref_read(path, field, &r, e)) return -1;
    if (!r.job || (!r.step && !r.artifact))
        return err_field(e, ERR_INVALID, field, "%s: %s is not resolved: that is seqd's to do",
                         field, path);
    if (in_job(s, &r, true, field, out, e)) return -1;
    /* grant the directory of the artifact and not the file, because a rank opens files only
     * beneath granted directories */
    if (r.artifact) *strrchr(out, '/') = 0;
    if (!add(g, out))
        return err_field(
            e, ERR_TOO_LARGE, field,
            "%s: a job may name %d uploads, checkpoints and jobs with artifacts, and a "
            "path may have %d bytes",
            field, RANK_GRANTS, RANK_PATH_SIZE - 1);
    return in_job(s, &r, false, field, out, e);
}

int grants_spec(struct grants *g, const struct state_dir *s, struct job_spec *spec, struct err *e)
{
    struct spec_path path[SPEC_PATHS];
    char out[FILE_PATH_SIZE];
    const int n = job_paths(spec, path);
    for (int i = 0; i < n; i++) {
        const char *text = spec_text(spec, *path[i].ref);
        if (!job_ref_is(text)) continue;
        if (grants_path(g, s, text, path[i].field, out, e)) return -1;
        if (spec_intern(spec, out, strlen(out), path[i].ref))
            return err_field(e, ERR_TOO_LARGE, path[i].field, "the spec's strings exceed %d bytes",
                             SPEC_TEXT_SIZE);
    }
    return 0;
}
