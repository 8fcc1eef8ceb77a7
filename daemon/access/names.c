/* names.c: turns upload:NAME into a path, refuses paths of seqd's own files, and lists the uploads
 * that a job may read. */
#include "daemon/access/names.h"

#include <stdio.h>
#include <string.h>
#include "api/core/beneath.h"
#include "api/core/job_paths.h"
#include "daemon/upload/uploads.h"

static const char prefix[] = "upload:";
enum { PREFIX = sizeof prefix - 1 };

/* Copies the first part of path. Returns false if that part is too long for an upload's name. */
static bool first_part(const char *path, char out[64])
{
    const size_t n = strcspn(path, "/");
    snprintf(out, 64, "%.*s", (int)n, path);
    return n < 64;
}

static bool owns(const struct names_of *n, const struct principal *who, const char *path,
                 char name[64])
{
    const char *owner = first_part(path, name) ? uploads_owner(n->uploads, name) : NULL;
    return owner && principal_owns(who, owner);
}

static int resolve(struct job_spec *s, const struct spec_path *p, const struct names_of *names,
                   const struct principal *who, struct err *e)
{
    char path[RANK_PATH_SIZE], name[64];
    const char *text = spec_text(s, *p->ref) + PREFIX, *field = p->field;
    if (!names->uploads)
        return err_field(e, ERR_INVALID, field,
                         "%s: this seqd takes no uploads: it runs without --uploads DIR", field);
    if (!beneath_name_good(text))
        return err_field(e, ERR_INVALID, field,
                         "%s: want upload:NAME or upload:NAME/FILE, without . and .. among its "
                         "parts",
                         field);
    if (!owns(names, who, text, name))
        return err_field(e, ERR_INVALID, field,
                         "%s: there is no complete upload \"%s\" of %s: seqctl push brings it",
                         field, name, who->user);
    if (p->source && !strchr(text, '/'))
        return err_field(e, ERR_INVALID, field,
                         "%s: upload:%s is a directory, even if one file was pushed: name its "
                         "files, as upload:%s/*.jsonl",
                         field, text, text);
    const int n = snprintf(path, sizeof path, "%s/%s", uploads_files(names->uploads), text);
    if (n >= (int)sizeof path || spec_intern(s, path, (size_t)n, p->ref))
        return err_field(e, ERR_TOO_LARGE, field, "%s: the path is too long", field);
    return 0;
}

/* Checks the text of a plain path. Only the node can check where the symlinks of the path lead. */
static int check_plain(const char *text, const char *field, const struct names_of *names,
                       const struct principal *who, struct err *e)
{
    char path[RANK_PATH_SIZE], name[64];
    struct job_ref guess;
    size_t len;
    if (!job_path_tidy(text, path, sizeof path)) return 0;
    const char *files = names->uploads ? uploads_files(names->uploads) : NULL;
    const char *upload = files ? beneath_rest(files, path) : NULL;
    if (upload && owns(names, who, upload, name)) return 0;
    if (upload)
        return err_field(e, ERR_INVALID, field,
                         "%s: %s lies among the uploads, and is none of %s's: name one of yours by "
                         "upload:NAME",
                         field, text, who->user);
    if (!names->state_dir || !beneath_rest(names->state_dir, path)) return 0;
    /* refs.c checks to which user the job belongs */
    if (job_ref_guess(path, &guess, &len)) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s: %s lies in seqd's state, which no job reads: name an upload of yours by "
                     "upload:NAME, what a job left by job:ID/step-N or job:ID/artifacts/NAME",
                     field, text);
}

static bool add(struct names_grants *g, const char *dir)
{
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->dir[i], dir)) return true;
    if (g->n == RANK_GRANTS) return false;
    snprintf(g->dir[g->n], sizeof g->dir[0], "%s", dir);
    g->list[g->n] = g->dir[g->n];
    g->n++;
    return true;
}

/* Adds to g the upload that contains the path `text`. A path that is in no upload needs no grant.
 * Returns false if g is full. */
static bool add_grant(struct names_grants *g, const char *files, const char *text)
{
    char path[RANK_PATH_SIZE], dir[RANK_PATH_SIZE + 80];
    const char *rest = files && job_path_tidy(text, path, sizeof path) ? beneath_rest(files, path)
                                                                       : NULL;
    if (!rest || *rest == '.') return true;
    const int n = snprintf(dir, sizeof dir, "%s/%.*s", files, (int)strcspn(rest, "/"), rest);
    return n >= RANK_PATH_SIZE || add(g, dir);
}

void names_grants(const struct job_spec *s, const char *files, struct names_grants *out)
{
    struct spec_path path[SPEC_PATHS];
    const int n = job_paths((struct job_spec *)s, path);
    *out = (struct names_grants){0};
    for (int i = 0; i < n; i++) add_grant(out, files, spec_text(s, *path[i].ref));
}

void names_own(const struct uploads *uploads, const struct principal *who, struct names_grants *out)
{
    const struct upload_name *u;
    char dir[RANK_PATH_SIZE];
    *out = (struct names_grants){0};
    for (int i = 0; uploads && (u = uploads_at(uploads, i)); i++) {
        if (strcmp(u->owner, who->user)) continue;
        const int n = snprintf(dir, sizeof dir, "%s/%s", uploads_files(uploads), u->name);
        if (n < (int)sizeof dir && !add(out, dir)) return;
    }
}

/* Checks that the spec names at most RANK_GRANTS uploads and jobs. Uploads and jobs are counted
 * together, because a rank has one list for all of them. */
static int check_room(struct job_spec *s, const struct spec_path *path, int n, const char *files,
                      struct err *e)
{
    struct names_grants g = {0};
    for (int i = 0; i < n; i++) {
        const char *text = spec_text(s, *path[i].ref);
        const bool good = job_ref_is(text) ? add(&g, text) : add_grant(&g, files, text);
        if (!good)
            return err_field(e, ERR_TOO_LARGE, path[i].field,
                             "%s: a job may name %d different uploads and jobs: push files "
                             "together, as one directory",
                             path[i].field, RANK_GRANTS);
    }
    return 0;
}

bool names_grants_same(const struct names_grants *a, const struct names_grants *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++) same = !strcmp(a->dir[i], b->dir[i]);
    return same;
}

/* Checks the path of a directory to which the job writes, as far as seqd can do so without asking
 * a node. */
static int check_written(const char *text, const char *field, const struct names_of *names,
                         const struct principal *who, struct err *e)
{
    const bool name = job_ref_is(text) || !strncmp(text, prefix, PREFIX);
    if (!*text) return 0;
    if (name || !beneath_name_good(text + (*text == '/')))
        return err_field(e, ERR_INVALID, field,
                         "%s: %s: want a directory beneath a writable root of the node, without . "
                         "and .. among its parts",
                         field, text);
    return check_plain(text, field, names, who, e);
}

int names_resolve(struct job_spec *s, const struct names_of *names, const struct principal *who,
                  struct err *e)
{
    struct spec_path path[SPEC_PATHS];
    const int n = job_paths(s, path);
    struct job_ref ref;
    for (int i = 0; i < n; i++) {
        const char *text = spec_text(s, *path[i].ref);
        const int rc = !strncmp(text, prefix, PREFIX) ? resolve(s, &path[i], names, who, e)
                       : job_ref_is(text)             ? job_ref_read(text, path[i].field, &ref, e)
                                          : check_plain(text, path[i].field, names, who, e);
        if (rc) return -1;
    }
    if (check_written(spec_text(s, s->output.path), "output.path", names, who, e) ||
        check_written(spec_text(s, s->memory.offload_dir), "memory.offload_dir", names, who, e))
        return -1;
    return check_room(s, path, n, names->uploads ? uploads_files(names->uploads) : NULL, e);
}
