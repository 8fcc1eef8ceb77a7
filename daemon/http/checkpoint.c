/* checkpoint.c: GET /v1/jobs/{id}/checkpoints/{n}, .../files/{name} and .../{n}.tar. They send the
 * list of a checkpoint's files, one file, and all files. seqd has no copy of a checkpoint. For
 * each request it asks the node whose attempt wrote the checkpoint for the manifest, which has the
 * name, size and digest of every file. A file's digest is its entity tag, so a client that was
 * disconnected can continue its download. If the checkpoint has been written again in the
 * meantime, the client begins again. ?path= selects only the files beneath that path. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/beneath.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/manifest.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/http/tar.h"
#include "daemon/http/transfer.h"
#include "daemon/state/event.h"

#define ENTRY_JSON                                                                                 \
    (6 * MANIFEST_PATH_SIZE + 256) /* largest number of bytes of a file's JSON in
                                                   * the list */

struct checkpoint {
    struct routes *R;
    struct http_req *r;
    void (*use)(struct checkpoint *k); /* answers with the list; frees k or hands it over */
    int64_t job, step, epoch, stamp;
    char node[NODE_NAME];
    char part[MANIFEST_PATH_SIZE]; /* "" for all files */
    char name[MANIFEST_PATH_SIZE]; /* name of one file */
    char top[32];                  /* "step-00000500" */
    char *text;                    /* owns; the manifest's text until it is parsed */
    size_t size;                   /* size of text so far */
    char weights_sha256[SHA256_HEX], sha256[SHA256_HEX];
    bool model; /* the checkpoint has a model */
    int n;
    /* sorted by name, including the manifest itself */
    struct manifest_file file[MANIFEST_FILES + 1];
    struct tar_file tar_file[MANIFEST_FILES + 1];
    struct tar tar;
};

static void destroy(void *arg)
{
    struct checkpoint *k = arg;
    free(k->text);
    free(k);
}

static void fail(struct checkpoint *k, const struct err *e)
{
    reply_fail(k->r, e);
    destroy(k);
}

static void refuse(struct checkpoint *k, enum err_code code, const char *field, const char *what)
{
    struct err e;
    err_field(&e, code, field, "checkpoint %lld of job %lld %s", (long long)k->step,
              (long long)k->job, what);
    fail(k, &e);
}

static void path_of(const struct checkpoint *k, const char *name, char out[RANK_PATH_SIZE])
{
    snprintf(out, RANK_PATH_SIZE, "checkpoints/%s/%s", k->top, name);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void tag_of(char out[80], const char *kind, const struct checkpoint *k)
{
    char hex[SHA256_HEX];
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, k->sha256, strlen(k->sha256));
    sha256_add(&sha, k->part, strlen(k->part));
    sha256_hex(&sha, hex);
    snprintf(out, 80, "\"%s-%.48s\"", kind, hex);
}

static void put_files(struct jwrite *w, const struct checkpoint *k)
{
    int64_t size = 0;
    jwrite_array(w, "files");
    for (int i = 0; i < k->n; i++) {
        jwrite_object(w, NULL);
        jwrite_str(w, "name", k->file[i].path);
        jwrite_int(w, "size", k->file[i].size);
        jwrite_str(w, "sha256", k->file[i].sha256);
        jwrite_end(w);
        size += k->file[i].size;
    }
    jwrite_end(w);
    jwrite_int(w, "size", size);
}

static void use_list(struct checkpoint *k)
{
    const size_t size = (size_t)k->n * ENTRY_JSON + 2048;
    char *out = malloc(size), etag[80];
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "job", k->job);
    jwrite_int(&w, "step", k->step);
    jwrite_int(&w, "epoch", k->epoch);
    jwrite_str(&w, "node", k->node);
    jwrite_str(&w, "weights_sha256", k->weights_sha256);
    put_files(&w, k);
    jwrite_int(&w, "tar_size", tar_size(&k->tar));
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    tag_of(etag, "list", k);
    http_set_header(k->r, "ETag", etag);
    reply_json(k->r, 200, out);
    free(out);
    destroy(k);
}

static void run_file(void *arg, int64_t at, struct transfer_run *out)
{
    const struct checkpoint *k = arg;
    out->offset = at;
    out->total = k->file[0].size;
    out->size = out->total - at;
    path_of(k, k->file[0].path, out->path);
}

/* Starts the transfer of one file. Copies the file's entry to file[0], because run_file reads it
 * there. */
static void use_file(struct checkpoint *k)
{
    int i = 0;
    while (i < k->n && strcmp(k->file[i].path, k->name)) i++;
    if (i == k->n) {
        refuse(k, ERR_NOT_FOUND, "name", "has no such file: its list names them");
        return;
    }
    k->file[0] = k->file[i];
    struct transfer_source s = {.job = k->job,
                                .type = "application/octet-stream",
                                .name = k->file[0].path,
                                .total = k->file[0].size,
                                .run = run_file,
                                .over = destroy,
                                .arg = k};
    snprintf(s.etag, sizeof s.etag, "\"%s\"", k->file[0].sha256);
    memcpy(s.node, k->node, sizeof s.node);
    transfer_start(k->R, k->r, &s);
}

static void run_tar(void *arg, int64_t at, struct transfer_run *out)
{
    const struct checkpoint *k = arg;
    struct tar_run run;
    tar_at(&k->tar, at, &run);
    out->size = run.size;
    out->offset = run.offset;
    out->path[0] = 0;
    if (run.file < 0) {
        memcpy(out->bytes, run.bytes, (size_t)run.size);
        return;
    }
    out->total = k->file[run.file].size;
    path_of(k, k->file[run.file].path, out->path);
}

static void use_tar(struct checkpoint *k)
{
    char disposition[96];
    struct transfer_source s = {.job = k->job,
                                .type = "application/x-tar",
                                .name = k->top,
                                .total = tar_size(&k->tar),
                                .run = run_tar,
                                .over = destroy,
                                .arg = k};
    tag_of(s.etag, "tar", k);
    memcpy(s.node, k->node, sizeof s.node);
    snprintf(disposition, sizeof disposition, "attachment; filename=\"job-%lld-%s.tar\"",
             (long long)k->job, k->top);
    http_set_header(k->r, "Content-Disposition", disposition);
    transfer_start(k->R, k->r, &s);
}

/* ---- the list -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct manifest_file *)a)->path, ((const struct manifest_file *)b)->path);
}

static bool in_part(const struct checkpoint *k, const char *name)
{
    return !*k->part || beneath_rest(k->part, name);
}

static void add_file(struct checkpoint *k, const struct manifest_file *f)
{
    k->model |= beneath_rest("hf", f->path) != NULL;
    if (in_part(k, f->path)) k->file[k->n++] = *f;
}

static int read_list(struct checkpoint *k, struct err *e)
{
    struct manifest *m = malloc(sizeof *m);
    struct manifest_file own = {.path = MANIFEST_NAME, .size = (int64_t)k->size};
    struct sha256 sha;
    if (!m) abort();
    if (manifest_parse(m, k->text, k->size, MANIFEST_NAME, e) ||
        (manifest_find(m, MANIFEST_NAME) || m->step != k->step
             ? err_set(e, ERR_CORRUPT, "%s is not that of the checkpoint", MANIFEST_NAME)
             : 0)) {
        free(m);
        return -1;
    }
    sha256_init(&sha);
    sha256_add(&sha, k->text, k->size);
    sha256_hex(&sha, own.sha256);
    memcpy(k->sha256, own.sha256, sizeof k->sha256);
    memcpy(k->weights_sha256, m->weights_sha256, sizeof k->weights_sha256);
    for (int i = 0; i < m->n_files; i++) add_file(k, &m->file[i]);
    add_file(k, &own);
    qsort(k->file, (size_t)k->n, sizeof *k->file, by_name);
    for (int i = 0; i < k->n; i++)
        k->tar_file[i] = (struct tar_file){k->file[i].path, k->file[i].size};
    k->tar = (struct tar){k->top, k->tar_file, k->n};
    free(k->text);
    k->text = NULL;
    free(m);
    return 0;
}

static void use_list_of(struct checkpoint *k)
{
    struct err e;
    if (read_list(k, &e)) {
        err_prefix(&e, "node %s, checkpoint %lld of job %lld", k->node, (long long)k->step,
                   (long long)k->job);
        fail(k, &e);
    } else if (!k->n) {
        refuse(k, ERR_NOT_FOUND, "path",
               k->model ? "has no such part: hf is one, for all of it give no path"
                        : "has no such part: adapter is one, for all of it give no path");
    } else {
        k->use(k);
    }
}

static void ask_text(struct checkpoint *k);

static void on_text(void *arg, const struct msg *m, const struct err *e)
{
    struct checkpoint *k = arg;
    if (e) {
        fail(k, e);
        return;
    }
    if (!k->size) k->stamp = m->stamp;
    if (m->stamp != k->stamp || m->total > MANIFEST_SIZE || m->size > MANIFEST_SIZE - k->size ||
        (!m->size && (int64_t)k->size < m->total)) {
        refuse(k, ERR_CONFLICT, "", "is being written or removed: ask again");
        return;
    }
    memcpy(k->text + k->size, m->data, m->size);
    k->size += m->size;
    if ((int64_t)k->size < m->total)
        ask_text(k);
    else
        use_list_of(k);
}

static void ask_text(struct checkpoint *k)
{
    struct msg m = {.type = MSG_FETCH, .job = k->job, .offset = (int64_t)k->size};
    path_of(k, MANIFEST_NAME, m.path);
    control_ask(k->R->control, k->node, &m, on_text, k);
}

/* ---- which node ------------------------------------------------------------------------------ */

static void on_event(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct checkpoint *k = arg;
    const struct store_row *row = rows->n_rows ? &rows->row[0] : NULL;
    if (failed) {
        fail(k, failed);
    } else if (!row) {
        refuse(k, ERR_NOT_FOUND, "", "does not exist: the job's checkpoints are listed");
    } else if (row->n[3] == EV_CHECKPOINT_REMOVED) {
        refuse(k, ERR_NOT_FOUND, "", "was removed: checkpoint.keep says how many stay");
    } else if (transfer_node(control_nodes(k->R->control), row->text[1], k->node)) {
        refuse(k, ERR_NOT_FOUND, "", "is on a node that its events do not name");
    } else {
        k->epoch = row->n[1];
        if (!(k->text = malloc(MANIFEST_SIZE))) abort();
        ask_text(k);
    }
}

static int take_part(struct checkpoint *k)
{
    const char *part = http_query(k->r, "path");
    struct err e;
    if (!part) return 0;
    if (beneath_name_good(part) && strlen(part) < sizeof k->part) {
        snprintf(k->part, sizeof k->part, "%s", part);
        return 0;
    }
    err_field(&e, ERR_INVALID, "path",
              "path must be a relative name of a checkpoint's part, as hf or adapter");
    fail(k, &e);
    return -1;
}

static void begin(struct routes *R, struct http_req *r, const struct route_match *a,
                  void (*use)(struct checkpoint *k))
{
    struct checkpoint *k = calloc(1, sizeof *k);
    if (!k) abort();
    k->R = R;
    k->r = r;
    k->use = use;
    k->job = a->id;
    k->step = a->n;
    snprintf(k->top, sizeof k->top, MANIFEST_STEP, (long long)a->n);
    if (use == use_file)
        snprintf(k->name, sizeof k->name, "%.*s", (int)sizeof k->name - 1, a->name);
    if (use == use_file && strcmp(k->name, a->name)) {
        refuse(k, ERR_NOT_FOUND, "name", "has no such file: its list names them");
        return;
    }
    if (take_part(k)) return;
    store_read(control_store(R->control), ASK_CHECKPOINT, (const int64_t[4]){k->job, k->step}, NULL,
               on_event, k);
}

void route_checkpoint(struct routes *R, struct http_req *r, const struct route_match *a)
{
    begin(R, r, a, use_list);
}

void route_checkpoint_file(struct routes *R, struct http_req *r, const struct route_match *a)
{
    begin(R, r, a, use_file);
}

void route_checkpoint_tar(struct routes *R, struct http_req *r, const struct route_match *a)
{
    begin(R, r, a, use_tar);
}
