/* sources.c: lists the files of a job's data and the directory to which it offloads, and asks one
 * node after another for them. */
#include "daemon/http/sources.h"

#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job_paths.h"
#include "api/core/rank.h"
#include "api/core/sha256.h"

/* ---- the list -------------------------------------------------------------------------------- */

/* Tells whether nodes must be asked for the file. They are not asked for files of a different job,
 * because these are on the node of that job. */
static bool is_file(const struct job_spec *spec, const struct spec_path *p)
{
    return p->source && !job_ref_is(spec_text(spec, *p->ref));
}

/* Adds FIELD:FORMAT:PATH to the list, whose texts have `used` bytes. Returns the bytes with it. */
static size_t add(struct sources *s, size_t used, const char *field, const char *format,
                  const char *path)
{
    assert(s->n < WIRE_FILES);
    s->file[s->n++] = s->text + used;
    used += (size_t)snprintf(s->text + used, sizeof s->text - used, "%s:%s:%s", field, format,
                             path) +
            1;
    assert(used <= sizeof s->text);
    return used;
}

static void list(struct sources *s, const struct job_spec *spec)
{
    struct spec_path path[SPEC_PATHS];
    const int n = job_paths((struct job_spec *)spec, path);
    const char *dir = spec_text(spec, spec->memory.offload_dir);
    struct sha256 sha;
    size_t used = 0;
    s->n = 0;
    for (int i = 0; i < n; i++)
        if (is_file(spec, &path[i]))
            used = add(s, used, path[i].field, spec_data_format_name(path[i].source->format),
                       spec_text(spec, *path[i].ref));
    if (*dir) used = add(s, used, "memory.offload_dir", RANK_WRITABLE, dir);
    uint8_t bytes[32];
    sha256_init(&sha);
    sha256_add(&sha, s->text, used);
    sha256_bytes(&sha, bytes);
    memcpy(&s->digest, bytes, sizeof s->digest);
}

static uint64_t *place(struct sources *s)
{
    return &s->found[s->digest % SOURCES_FOUND];
}

/* ---- the nodes ------------------------------------------------------------------------------- */

static void finish(struct sources *s, bool known, const struct err *e)
{
    s->unsure = s->unsure || !known;
    s->done(s->arg, e);
}

static const struct node *next_node(const struct sources *s)
{
    const struct nodes *t = control_nodes(s->control);
    const struct node *next = NULL;
    for (int i = 0; i < t->n; i++) {
        const struct node *n = &t->node[i];
        if (n->up && strcmp(n->name, s->node) > 0 && (!next || strcmp(n->name, next->name) < 0))
            next = n;
    }
    return next;
}

/* Tells whether the node's error is about one of the files that it was asked for. */
static bool refuses(const struct sources *s, const struct err *e)
{
    const size_t n = strlen(e->field);
    for (int i = 0; e->code == ERR_INVALID && n && i < s->n; i++)
        if (!strncmp(s->file[i], e->field, n) && s->file[i][n] == ':') return true;
    return false;
}

static void ask_next(struct sources *s);

static void on_found(void *arg, const struct msg *m, const struct err *e)
{
    struct sources *s = arg;
    if (!e) {
        *place(s) = s->digest;
        finish(s, true, NULL);
    } else if (refuses(s, e)) {
        s->why = *e;
        s->refused = true;
        ask_next(s);
    } else if (e->code == ERR_INTERNAL) {
        ask_next(s);
    } else {
        finish(s, false, NULL);
    }
}

static void ask_next(struct sources *s)
{
    const struct node *next = next_node(s);
    if (!next) {
        finish(s, s->refused, s->refused ? &s->why : NULL);
        return;
    }
    if (control_now_ms(s->control) - s->begun_ms >= SOURCES_MS) {
        finish(s, false, NULL);
        return;
    }
    snprintf(s->node, sizeof s->node, "%s", next->name);
    const struct msg m = {.type = MSG_DESCRIBE,
                          .n_files = s->n,
                          .files = s->file,
                          .n_grants = s->grants->n,
                          .grants = s->grants->list};
    control_ask(s->control, s->node, &m, on_found, s);
}

void sources_find(struct sources *s, const struct job_spec *spec)
{
    list(s, spec);
    if (!s->n || s->unsure || *place(s) == s->digest) {
        s->done(s->arg, NULL);
        return;
    }
    s->begun_ms = control_now_ms(s->control);
    s->node[0] = 0;
    s->refused = false;
    ask_next(s);
}
