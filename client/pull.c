/* pull.c: downloads a job's checkpoint, or its artifacts, into a directory. The server's list has
 * the digest of each file. A file that the directory already has with that digest is not fetched,
 * and a broken download is continued. A file without a digest is still growing; the bytes that it
 * has now are fetched. If the directory has a MANIFEST.json that belongs to a different
 * checkpoint, this file is removed first. The new MANIFEST.json is fetched last, so that an
 * incomplete directory does not count as a checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "client/api.h"
#include "client/local.h"
#include "client/text.h"
#include "client/verbs.h"

#define FILES_MAX  4096        /* superseded() compares all pairs of files, which are 8 million */
#define GROWN_MAX  (1LL << 30) /* largest size of a file that grows; curves have some dozen MB */
#define PULL_TRIES 5           /* largest number of successive tries that bring no byte */
#define MANIFEST   "MANIFEST.json"
#define DRAW_MS    200

struct pull {
    struct cli *c;
    int64_t id, step;
    const char *part; /* part of the checkpoint to fetch, or NULL for all of it */
    bool artifacts;
    int root;
    struct jv *list;
    const struct jv *files;
    int64_t total, had, got; /* total: bytes of all files; had: bytes that the directory had
                              * already; got: bytes received */
    int n_got;
    int64_t began_ms, drawn_ms;
    const char *fate[FILES_MAX]; /* the word that the summary prints for each listed file */
};

/* A file that is being fetched. */
struct pull_flow {
    struct pull *p;
    struct local_file *f;
    const struct http_stream *stream;
    int64_t begun; /* bytes of the file before this request */
    int64_t size;  /* size of the file in the list, or GROWN_MAX if the file grows */
    bool whole;    /* the server is sending the file from its beginning */
    struct err err;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- what there is --------------------------------------------------------------------------- */

/* Reads the operand, such as "12", "12/step-500" or "night run/step-500". */
static int parse_operand(struct pull *p, struct cli *c)
{
    static const char mark[] = "/step-";
    char *whole = strdup(c->arg[0]), *at = NULL, *end;
    if (!whole) abort();
    p->step = -1;
    for (char *next = whole; (next = strstr(next, mark)); next++) at = next;
    if (at && at[6] >= '0' && at[6] <= '9') {
        p->step = strtoll(at + 6, &end, 10);
        if (!*end) *at = 0;
    }
    if (at && *at) {
        free(whole);
        return cli_fail(CLI_USAGE, "\"%s\": want a job, or JOB/step-N for one of its checkpoints",
                        c->arg[0]);
    }
    const char *given = c->arg[0];
    c->arg[0] = whole;
    p->id = cli_job_id(c, 0);
    c->arg[0] = given;
    free(whole);
    return p->id < 0 ? (int)-p->id : CLI_OK;
}

static int newest_step(struct pull *p)
{
    int64_t step;
    const int rc = api_newest_step(p->c, p->id, false, &step);
    if (rc) return rc;
    if (step > 0) {
        p->step = step;
        return CLI_OK;
    }
    return cli_fail(CLI_NOT_FOUND,
                    "job %lld has no checkpoint (yet): its artifacts come with "
                    "--artifacts",
                    (long long)p->id);
}

static int get_list(struct pull *p)
{
    char path[512], part[400];
    int rc = CLI_OK;
    if (!p->artifacts && p->step < 0) rc = newest_step(p);
    if (rc) return rc;
    if (p->artifacts)
        snprintf(path, sizeof path, "/v1/jobs/%lld/artifacts", (long long)p->id);
    else
        snprintf(path, sizeof path, "/v1/jobs/%lld/checkpoints/%lld%s%s", (long long)p->id,
                 (long long)p->step, p->part ? "?path=" : "",
                 p->part ? http_escape(part, sizeof part, p->part) : "");
    rc = p->artifacts ? api_list(p->c, path, &p->list) : api_get(p->c, path, &p->list);
    p->files = jv_get(p->list, p->artifacts ? "data" : "files");
    if (!rc && !jv_len(p->files))
        rc = cli_fail(CLI_NOT_FOUND, "job %lld has no artifacts", (long long)p->id);
    if (!rc && jv_len(p->files) > FILES_MAX)
        rc = cli_fail(CLI_ERROR, "%zu files are too many, at most %d", jv_len(p->files), FILES_MAX);
    return rc;
}

/* Tells whether the list has a later entry with the same name. If a later attempt has written an
 * artifact again, the list has a second entry for it, and the last entry counts. */
static bool superseded(const struct pull *p, size_t i)
{
    const char *name = jv_str(jv_at(p->files, i, NULL), "name", "");
    for (size_t k = i + 1; p->artifacts && k < jv_len(p->files); k++)
        if (!strcmp(jv_str(jv_at(p->files, k, NULL), "name", ""), name)) return true;
    return false;
}

static bool grows(const struct pull *p, const struct jv *file)
{
    return p->artifacts && !*jv_str(file, "sha256", "");
}

/* Returns the file's name in our directory. The files of a part are put directly into the
 * directory. */
static const char *name_here(const struct pull *p, const struct jv *file)
{
    const char *name = jv_str(file, "name", "");
    const size_t n = p->part ? strlen(p->part) : 0;
    return n && !strncmp(name, p->part, n) && name[n] == '/' ? name + n + 1 : name;
}

/* ---- one file -------------------------------------------------------------------------------- */

static void draw(struct pull *p, const char *name, bool now)
{
    char line[256], safe[96], done[TEXT_SHORT], total[TEXT_SHORT], rate[TEXT_SHORT];
    const int64_t ms = now_ms();
    if (p->c->opt.quiet || !isatty(STDERR_FILENO) || (!now && ms - p->drawn_ms < DRAW_MS)) return;
    p->drawn_ms = ms;
    const int64_t at = p->had + p->got, span = ms - p->began_ms;
    snprintf(line, sizeof line, "%d%%  %s of %s  %s/s  %s",
             p->total ? (int)((double)at / (double)p->total * 100) : 100, text_bytes(done, at),
             text_bytes(total, p->total), text_bytes(rate, span > 0 ? p->got * 1000 / span : 0),
             text_safe(safe, sizeof safe, name));
    cli_draw(line);
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct pull_flow *w = arg;
    if (w->err.code) return;
    if (w->begun && !w->whole && http_answer(w->stream)->status == 200) {
        w->whole = true; /* the file was replaced, so begin it again */
        w->p->got -= w->f->size - w->begun;
        w->p->had -= w->begun;
        if (local_begin_again(w->f, &w->err)) return;
    }
    if ((int64_t)n > w->size - w->f->size) {
        err_set(&w->err, ERR_CORRUPT, "%s has more than the %lld bytes that are listed", w->f->leaf,
                (long long)w->size);
        return;
    }
    if (w->size == GROWN_MAX) w->p->total += (int64_t)n;
    if (local_add(w->f, bytes, n, &w->err)) return;
    w->p->got += (int64_t)n;
    draw(w->p, w->f->leaf, false);
}

static void path_of(const struct pull *p, const char *name, char *out, size_t size)
{
    char escaped[800];
    http_escape(escaped, sizeof escaped, name);
    if (p->artifacts)
        snprintf(out, size, "/v1/jobs/%lld/artifacts/%s", (long long)p->id, escaped);
    else
        snprintf(out, size, "/v1/jobs/%lld/checkpoints/%lld/files/%s", (long long)p->id,
                 (long long)p->step, escaped);
}

/* Makes one request for the bytes that f lacks. Returns an enum cli_exit. *again is set if a
 * second request may succeed. */
static int ask_bytes(struct pull *p, struct local_file *f, const struct jv *file, bool *again)
{
    char path[1024], etag[80];
    struct pull_flow w = {.p = p,
                          .f = f,
                          .begun = f->size,
                          .size = grows(p, file) ? GROWN_MAX : jv_int(file, "size", 0)};
    struct err e = {0};
    path_of(p, jv_str(file, "name", ""), path, sizeof path);
    snprintf(etag, sizeof etag, "\"%s\"", jv_str(file, "sha256", ""));
    const struct http_request q = {.method = "GET",
                                   .path = path,
                                   .range_from = f->size,
                                   .if_range = p->artifacts ? NULL : etag};
    struct http_stream *h = http_open(p->c->http, &q, on_bytes, &w, &e);
    if (!h) return cli_fail(CLI_ERROR, "%s", e.text);
    w.stream = h;
    while (!http_done(h, &e) && !w.err.code) http_turn(p->c->http, 1000, -1);
    const int status = http_answer(h)->status;
    int rc = CLI_OK;
    *again = !w.err.code &&
             (e.code == ERR_PEER || e.code == ERR_TIMEOUT || (!e.code && api_busy(status)));
    if (w.err.code)
        rc = cli_fail(CLI_ERROR, "%s", w.err.text);
    else if (*again)
        rc = CLI_ERROR;
    else if (e.code)
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    else if (status != 200 && status != 206)
        rc = api_refused(http_answer(h), path);
    http_close(h);
    return rc;
}

static void pause_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Fetches a file. If the server or the node restarts, asks again, until PULL_TRIES successive
 * tries have brought no byte. */
static int fetch(struct pull *p, struct local_file *f, const struct jv *file)
{
    const int64_t size = grows(p, file) ? GROWN_MAX : jv_int(file, "size", 0);
    for (int tries = 0; f->size < size;) {
        bool again = false;
        const int64_t before = f->size;
        const int rc = ask_bytes(p, f, file, &again);
        if ((rc && !again) || (!again && grows(p, file))) return rc;
        tries = f->size > before ? 0 : tries + 1;
        if (f->size >= size) break;
        if (tries == PULL_TRIES)
            return cli_fail(CLI_ERROR, "%s broke off %d times: run this again to continue", f->leaf,
                            tries);
        if (tries) pause_ms(50 << tries);
    }
    return CLI_OK;
}

static int pull_file(struct pull *p, size_t i)
{
    const struct jv *file = jv_at(p->files, i, NULL);
    const char *name = name_here(p, file), *sha256 = jv_str(file, "sha256", "");
    const int64_t size = jv_int(file, "size", 0);
    enum local_state state;
    struct local_file f;
    struct err e = {0};
    int rc = CLI_OK;
    if (local_find(&f, p->root, name, size, sha256, &state, &e)) {
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    } else if (state == LOCAL_SAME) {
        p->had += size;
        p->fate[i] = "present";
    } else if (local_open_part(&f, grows(p, file) ? 0 : size, &e)) {
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    } else {
        p->had += f.size;
        rc = fetch(p, &f, file);
        if (!rc && local_finish(&f, grows(p, file) ? NULL : sha256, &e))
            rc = cli_fail(CLI_ERROR, "%s", e.text);
        if (!rc) p->n_got++, p->fate[i] = "fetched";
    }
    draw(p, name, true);
    local_close(&f);
    return rc;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Removes a manifest that belongs to a different checkpoint, because it would not match the files
 * that are written now. */
static int drop_manifest(struct pull *p, const struct jv *file)
{
    enum local_state state;
    struct local_file f;
    struct err e = {0};
    int rc = local_find(&f, p->root, MANIFEST, jv_int(file, "size", 0), jv_str(file, "sha256", ""),
                        &state, &e);
    if (rc)
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    else if (state == LOCAL_OTHER)
        local_remove(&f);
    local_close(&f);
    return rc;
}

static bool is_manifest(const struct pull *p, size_t i)
{
    return !p->artifacts && !strcmp(jv_str(jv_at(p->files, i, NULL), "name", ""), MANIFEST);
}

static int pull_all(struct pull *p)
{
    const size_t n = jv_len(p->files);
    int rc = CLI_OK;
    for (size_t i = 0; i < n; i++) {
        if (!superseded(p, i) && !grows(p, jv_at(p->files, i, NULL)))
            p->total += jv_int(jv_at(p->files, i, NULL), "size", 0);
        if (!rc && is_manifest(p, i)) rc = drop_manifest(p, jv_at(p->files, i, NULL));
    }
    p->began_ms = now_ms();
    for (int last = 0; last < 2; last++)
        for (size_t i = 0; i < n && !rc; i++)
            if (is_manifest(p, i) == last && !superseded(p, i)) rc = pull_file(p, i);
    if (isatty(STDERR_FILENO)) cli_draw("");
    return rc;
}

/* Prints the list of files, with the result for each file. */
static void print_summary(struct pull *p, const char *dir)
{
    struct err e;
    char path[64], safe[1024];
    for (size_t i = 0; i < jv_len(p->files); i++) {
        const char *fate = p->fate[i] ? p->fate[i] : "superseded";
        snprintf(path, sizeof path, "%s.%zu.state", p->artifacts ? "data" : "files", i);
        jv_set_str(p->list, path, fate, &e);
        if (p->c->output == OUT_NAME && p->fate[i])
            printf("%s/%s\n", dir,
                   text_safe(safe, sizeof safe, name_here(p, jv_at(p->files, i, NULL))));
    }
    jv_set_str(p->list, "directory", dir, &e);
    if (api_print(p->c, p->list)) return;
    char got[TEXT_SHORT], all[TEXT_SHORT], what[64] = "artifacts";
    if (!p->artifacts) snprintf(what, sizeof what, "step %lld", (long long)p->step);
    cli_say(p->c, "job %lld, %s: %s in %s, %d files fetched (%s)", (long long)p->id, what,
            text_bytes(all, p->total), dir, p->n_got, text_bytes(got, p->got));
}

static int pull_run(struct cli *c)
{
    struct pull p = {.c = c, .part = c->opt.part, .artifacts = c->opt.artifacts, .root = -1};
    struct err e = {0};
    int rc = parse_operand(&p, c);
    if (!rc && p.artifacts && (p.part || p.step >= 0))
        rc = cli_fail(CLI_USAGE, "--artifacts is of a job: it goes without --part and step-N");
    if (!rc) rc = get_list(&p);
    if (!rc && (p.root = local_open_root(c->arg[1], &e)) < 0)
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    if (!rc) rc = pull_all(&p);
    if (!rc) print_summary(&p, c->arg[1]);
    if (p.root >= 0) close(p.root);
    jv_free(p.list);
    return rc;
}

const struct verb verb_pull = {
    .name = "pull",
    .operands = "ID[/step-N] DIR",
    .summary = "a checkpoint, or the artifacts, into a directory",
    .min_args = 2,
    .max_args = 2,
    .run = pull_run,
    .options = OPT_PART | OPT_ARTIFACTS,
    .help = "Fetches a checkpoint of a job from the node that has it, by default the newest. Files "
            "that\n"
            "are in DIR and have their digests stay; a download that broke continues when this is "
            "run\n"
            "again. PART's files lie in DIR itself, so that transformers or peft loads DIR.\n\n"
            "  --part PART     only the files beneath PART: hf, the model; hf_ema, its average;\n"
            "                  adapter, what a training of adapters has in place of hf,\n"
            "                  or beside it with checkpoint.merge\n"
            "  --artifacts     the job's result files instead; of a training the curves that "
            "TensorBoard\n"
            "                  shows, while it runs as well\n\n"
            "  seqctl pull 12 model --part hf\n"
            "  seqctl pull 13 lora --part adapter\n"
            "  seqctl pull 12/step-500 checkpoint\n"
            "  seqctl pull \"night run/step-500\" checkpoint\n"
            "  seqctl pull 12 curves --artifacts && tensorboard --logdir curves\n"
            "  seqctl pull 14 results --artifacts",
};
