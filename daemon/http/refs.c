/* refs.c: resolves the references job:ID of a spec, one after the other, by queries to the
 * store. */
#include "daemon/http/refs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/adapter.h"
#include "api/core/beneath.h"
#include "api/core/job_paths.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "daemon/http/adapters.h"
#include "daemon/http/filter.h"
#include "daemon/spec/json.h"
#include "daemon/state/event.h"

#define REFS_PAGE 1000 /* checkpoints of one query */

struct resolving {
    struct routes *R;
    struct job_spec *spec;
    struct principal who;
    refs_done *done;
    void *arg;
    struct refs_found found;
    struct spec_path path[SPEC_PATHS];
    int n, at; /* number of paths, and index of the path that is being resolved */
    int from;  /* index of the path whose files found.node has */
    struct job_ref ref;
    bool plain;       /* the text is a plain path, which may be the path of `ref` */
    size_t plain_len; /* length of the path to the end of the step's directory */
    int64_t after;    /* in the search for the newest checkpoint, seq of the last event that was
                       * read */
};

static void next(struct resolving *k);

static void finish(struct resolving *k, const struct err *e)
{
    k->done(k->arg, &k->found, e);
    free(k);
}

static const char *field_of(const struct resolving *k)
{
    return k->path[k->at].field;
}

static const char *text_of(const struct resolving *k)
{
    return spec_text(k->spec, *k->path[k->at].ref);
}

static void skip(struct resolving *k)
{
    k->at++;
    next(k);
}

/* Refuses a job. The error has the same words for a job of a different user and for a job that
 * never existed. */
static void refuse_job(struct resolving *k)
{
    struct err e;
    err_field(&e, ERR_INVALID, field_of(k),
              "%s: %s: %s has no such job, or it left nothing: seqctl ls lists yours", field_of(k),
              text_of(k), k->who.user);
    finish(k, &e);
}

/* Handles a path that is not a job's. It is refused if it is in seqd's own directory, and
 * otherwise accepted, because the node checks it. */
static void refuse_plain(struct resolving *k)
{
    char path[RANK_PATH_SIZE];
    const char *state = k->R->state_dir;
    if (state && job_path_tidy(text_of(k), path, sizeof path) && beneath_rest(state, path))
        refuse_job(k);
    else
        skip(k);
}

static void refuse_step(struct resolving *k)
{
    struct err e;
    char step[32] = "";
    if (k->plain) {
        refuse_plain(k);
        return;
    }
    if (k->ref.step) snprintf(step, sizeof step, " of step %lld", (long long)k->ref.step);
    err_field(&e, ERR_INVALID, field_of(k),
              "%s: job %lld has no checkpoint%s: seqctl checkpoints %lld lists those it has",
              field_of(k), (long long)k->ref.job, step, (long long)k->ref.job);
    finish(k, &e);
}

static bool is_model(const struct resolving *k)
{
    return !strcmp(field_of(k), "model.path");
}

static bool is_adapter(const struct resolving *k)
{
    static const char list[] = "model.adapters.";
    return !strcmp(field_of(k), "model.adapter") || !strncmp(field_of(k), list, sizeof list - 1);
}

static bool is_resumed(const struct resolving *k)
{
    return !strcmp(field_of(k), "checkpoint.resume");
}

static bool has_adapters(const struct job_spec *s)
{
    return s->adapter.type != ADAPTER_NONE || s->model.adapter;
}

static void settle(struct resolving *k)
{
    char text[64 + JOB_REF_BELOW];
    struct err e;
    /* A model is loaded from the folder hf/ of a checkpoint, and an adapter from adapter/. */
    if ((is_model(k) || is_adapter(k)) && !k->ref.artifact && !*k->ref.below)
        snprintf(k->ref.below, sizeof k->ref.below, "%s", is_model(k) ? "hf" : "adapter");
    const int n = job_ref_write(&k->ref, text, sizeof text);
    if (n < 0 || spec_intern(k->spec, text, (size_t)n, k->path[k->at].ref)) {
        err_field(&e, ERR_TOO_LARGE, field_of(k), "%s: the path is too long", field_of(k));
        finish(k, &e);
        return;
    }
    skip(k);
}

/* ---- the node of the files ------------------------------------------------------------------- */

/* Tells whether the path that is being resolved takes the place of the one whose node is known. A
 * checkpoint that a job resumes from has the weights of the adapter, so that rank 0 does not read
 * model.adapter. Rank 0 reads model.path in any case, for the tokenizer and the base of an
 * adapter. */
static bool replaces(const struct resolving *k)
{
    return is_resumed(k) && !strcmp(k->path[k->from].field, "model.adapter");
}

/* Names a node that has the files now, if they lie in a shared directory. */
static void take_sharing(const struct resolving *k, struct event *ev)
{
    const struct nodes *nodes = control_nodes(k->R->control);
    const struct node *n = node_sharing(nodes, ev->shared, ev->node);
    if (n) memcpy(ev->node, n->name, sizeof ev->node);
}

/* Notes the node of rank 0 of the attempt that made the files. `assign` is the ASSIGN event of
 * that attempt, or NULL. Fails if the files of an earlier path lie on a different node. The node of
 * an adapter that no rank reads is not the job's. */
static int note_node(struct resolving *k, const char *assign, struct err *e)
{
    struct event *ev = calloc(1, sizeof *ev);
    if (!ev) abort();
    bool known = assign && !event_read(assign, strlen(assign), ev, NULL) && *ev->node;
    if (known) take_sharing(k, ev);
    if (known && is_adapter(k)) {
        memcpy(k->found.adapter_node, ev->node, sizeof k->found.adapter_node);
        known = !adapters_unread(k->spec);
    }
    const char *before = k->found.node;
    const bool same = ev->shared ? ev->shared == k->found.shared : !strcmp(before, ev->node);
    const bool apart = known && *before && !same && !replaces(k);
    if (apart) {
        err_field(e, ERR_INVALID, field_of(k),
                  "%s: the files of %s lie on node %s and those of %s, %s, on node %s, and a job "
                  "reads both on one node: fetch those of one by seqctl pull, push them by seqctl "
                  "push and name them by upload:NAME",
                  field_of(k), text_of(k), ev->node, k->path[k->from].field,
                  spec_text(k->spec, *k->path[k->from].ref), before);
    } else if (known) {
        if (strcmp(before, ev->node)) k->from = k->at;
        memcpy(k->found.node, ev->node, sizeof k->found.node);
        k->found.shared = ev->shared;
        k->found.step = k->ref.step ? k->ref.step : 1;
    }
    free(ev);
    return apart ? -1 : 0;
}

/* ---- models and adapters --------------------------------------------------------------------- */

/* Refuses a path of a job that merged an adapter, unless it is that of a model: the checkpoint has
 * hf/ alone. */
static int check_merged(const struct resolving *k, struct err *e)
{
    if (is_model(k)) return 0;
    return err_field(e, ERR_INVALID, field_of(k),
                     "%s: job %lld merged an adapter into its model, and left %s: name the job in "
                     "model.path",
                     field_of(k), (long long)k->ref.job,
                     is_adapter(k) ? "no adapter" : "nothing to resume from");
}

/* Refuses a path whose part the job `made` does not have. Its checkpoints have hf/. If it trained
 * adapters, they have adapter/, and hf/ only with checkpoint.merge. */
static int check_part(const struct resolving *k, const struct job_spec *made, struct err *e)
{
    const char *field = field_of(k), *base = spec_text(made, made->model.path);
    const bool adapters = has_adapters(made);
    const long long job = k->ref.job;
    if (adapters == is_adapter(k) || (is_model(k) && made->checkpoint.merge)) return 0;
    if (!adapters)
        return err_field(e, ERR_INVALID, field,
                         "%s: job %lld trained a whole model and no adapter: name it in model.path",
                         field, job);
    if (*base)
        return err_field(e, ERR_INVALID, field,
                         "%s: job %lld trained an adapter and has no whole model "
                         "(checkpoint.merge): name the job in model.adapter, and its base, %s, in "
                         "model.path, or merge them by seqctl merge %lld",
                         field, job, base, job);
    return err_field(e, ERR_INVALID, field,
                     "%s: job %lld trained an adapter and has no whole model: name the job in "
                     "model.adapter, and give model.config and seed of that job, whose base is "
                     "drawn from them",
                     field, job);
}

static int refuse_other(const struct resolving *k, const char *field, const char *made,
                        const char *has, struct err *e)
{
    return err_field(e, ERR_INVALID, field,
                     "job %lld, whose checkpoint is resumed, has %s %s, and this job has %s: give "
                     "the same, or begin again with checkpoint.resume \"none\"",
                     (long long)k->ref.job, field, made, has);
}

/* rank_of and alpha_of return 0 for a value that only the directory of model.adapter has. */
static int64_t rank_of(const struct job_spec *s)
{
    return s->adapter.rank ? s->adapter.rank : s->model.adapter ? 0 : ADAPTER_RANK;
}

static double alpha_of(const struct job_spec *s)
{
    if (s->adapter.alpha > 0) return s->adapter.alpha;
    return s->model.adapter ? 0 : (double)rank_of(s);
}

/* Refuses adapters of another form than those of the checkpoint from which the job resumes. A rank
 * compares the values that only the directory of model.adapter has. */
static int check_adapter(const struct resolving *k, const struct job_spec *made, struct err *e)
{
    const struct job_spec *s = k->spec;
    const int64_t was = rank_of(made), is = rank_of(s);
    const double alpha_was = alpha_of(made), alpha_is = alpha_of(s);
    char a[32], b[32];
    if (has_adapters(made) != has_adapters(s))
        return refuse_other(k, "adapter.type", has_adapters(made) ? "\"lora\"" : "\"none\"",
                            has_adapters(s) ? "\"lora\"" : "\"none\"", e);
    if (!has_adapters(s)) return 0;
    if (was && is && was != is)
        return refuse_other(k, "adapter.rank", jwrite_number(a, (double)was),
                            jwrite_number(b, (double)is), e);
    if (alpha_was > 0 && alpha_is > 0 && alpha_was != alpha_is)
        return refuse_other(k, "adapter.alpha", jwrite_number(a, alpha_was),
                            jwrite_number(b, alpha_is), e);
    if (!made->model.adapter && !s->model.adapter && made->adapter.rslora != s->adapter.rslora)
        return refuse_other(k, "adapter.rslora", made->adapter.rslora ? "true" : "false",
                            s->adapter.rslora ? "true" : "false", e);
    return 0;
}

/* Handles the spec of the job that made the checkpoint. If this version cannot read that spec, the
 * node looks for the part. */
static void on_made(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct resolving *k = arg;
    struct job_spec *made = malloc(sizeof *made);
    struct err e;
    int bad = 0;
    if (!made) abort();
    const char *text = !failed && rows->n_rows ? rows->row[0].text[1] : NULL;
    if (text && !json_spec_read(text, strlen(text), JSON_STORED, made, &e))
        bad = made->kind == JOB_MERGE ? check_merged(k, &e)
              : is_resumed(k)         ? check_adapter(k, made, &e)
                                      : check_part(k, made, &e);
    free(made);
    if (failed || bad)
        finish(k, failed ? failed : &e);
    else
        settle(k);
}

/* Completes a path of a checkpoint. */
static void settle_part(struct resolving *k)
{
    if (is_model(k) || is_adapter(k) || is_resumed(k))
        store_read(control_store(k->R->control), ASK_JOB, (const int64_t[4]){k->ref.job}, NULL,
                   on_made, k);
    else
        settle(k);
}

/* ---- the questions --------------------------------------------------------------------------- */

/* Tells whether path is the member "path" of ev, the rank's report of a complete checkpoint. */
static bool is_path_of(const struct event *ev, const char *path, size_t len)
{
    char said[RANK_PATH_SIZE] = "";
    struct jread j;
    jread_init(&j, ev->detail, strlen(ev->detail));
    if (jread_next(&j) != J_OBJECT) return false;
    while (jread_next(&j) == J_KEY)
        if (jread_is(&j, "path") ? jread_next(&j) != J_STRING || jread_copy(&j, said, sizeof said)
                                 : jread_skip(&j))
            return false;
    return strlen(said) == len && !strncmp(said, path, len);
}

static void on_checkpoint(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct resolving *k = arg;
    const struct store_row *row = rows && rows->n_rows ? &rows->row[0] : NULL;
    if (failed) {
        finish(k, failed);
        return;
    }
    if (!row || row->n[3] != EV_CHECKPOINT) {
        refuse_step(k);
        return;
    }
    if (k->plain) {
        char path[RANK_PATH_SIZE];
        struct event *ev = calloc(1, sizeof *ev);
        if (!ev) abort();
        const bool same = row->text[0] && job_path_tidy(text_of(k), path, sizeof path) &&
                          !event_read(row->text[0], strlen(row->text[0]), ev, NULL) &&
                          is_path_of(ev, path, k->plain_len);
        free(ev);
        if (!same) {
            refuse_plain(k);
            return;
        }
    }
    struct err e;
    if (note_node(k, row->text[1], &e))
        finish(k, &e);
    else
        settle_part(k);
}

static void ask_checkpoint(struct resolving *k)
{
    store_read(control_store(k->R->control), ASK_CHECKPOINT,
               (const int64_t[4]){k->ref.job, k->ref.step}, NULL, on_checkpoint, k);
}

static void ask_newest(struct resolving *k);

/* Handles one page of the list of existing checkpoints. The list is in the order in which they
 * were written. */
static void on_newest(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct resolving *k = arg;
    struct event *ev = calloc(1, sizeof *ev);
    if (!ev) abort();
    for (int i = 0; !failed && i < rows->n_rows; i++) {
        const struct store_row *row = &rows->row[i];
        memset(ev, 0, sizeof *ev);
        k->after = row->n[0];
        if (!event_read(row->text[0], strlen(row->text[0]), ev, NULL) && ev->step > k->ref.step)
            k->ref.step = ev->step;
    }
    free(ev);
    if (failed)
        finish(k, failed);
    else if (rows->n_rows == REFS_PAGE)
        ask_newest(k);
    else if (k->ref.step)
        ask_checkpoint(k);
    else
        refuse_step(k);
}

static void ask_newest(struct resolving *k)
{
    store_read(control_store(k->R->control), ASK_CHECKPOINTS,
               (const int64_t[4]){k->ref.job, k->after, REFS_PAGE, EV_CHECKPOINT}, NULL, on_newest,
               k);
}

static void on_last_assign(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct resolving *k = arg;
    struct err e;
    if (failed)
        finish(k, failed);
    else if (rows->n_rows && note_node(k, rows->row[rows->n_rows - 1].text[0], &e))
        finish(k, &e);
    else
        settle(k);
}

static void on_owner(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct resolving *k = arg;
    if (failed) {
        finish(k, failed);
    } else if (!rows->n_rows || rows->row[0].n[0] ||
               !principal_owns(&k->who, rows->row[0].text[0])) {
        if (k->plain)
            refuse_plain(k);
        else
            refuse_job(k);
    } else if (k->ref.artifact) {
        store_read(control_store(k->R->control), ASK_EVENTS,
                   (const int64_t[4]){k->ref.job, 0, REFS_PAGE, EV_ASSIGN}, NULL, on_last_assign,
                   k);
    } else if (k->ref.step) {
        ask_checkpoint(k);
    } else {
        k->after = 0;
        ask_newest(k);
    }
}

static void ask_owner(struct resolving *k)
{
    store_read(control_store(k->R->control), ASK_OWNER, (const int64_t[4]){k->ref.job}, NULL,
               on_owner, k);
}

/* Uses the user's newest job with the name in the reference. Even for an operator, a name means
 * only the operator's own jobs. */
static void on_named(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct resolving *k = arg;
    if (failed) {
        finish(k, failed);
        return;
    }
    if (!rows->n_rows) {
        refuse_job(k);
        return;
    }
    k->ref.job = rows->row[0].n[0];
    ask_owner(k);
}

static void ask_name(struct resolving *k)
{
    struct filter *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->n_tags = 1;
    snprintf(f->tag[0].value, sizeof f->tag[0].value, "%s", k->ref.name);
    char *tags = filter_tags(f, k->who.user);
    store_read(control_store(k->R->control), ASK_TAGGED, (const int64_t[4]){0, 1, 0}, tags,
               on_named, k);
    free(tags);
    free(f);
}

static void next(struct resolving *k)
{
    struct err e;
    for (; k->at < k->n; k->at++) {
        char path[RANK_PATH_SIZE];
        const char *text = text_of(k);
        k->plain = !job_ref_is(text);
        if (k->plain) {
            if (!job_path_tidy(text, path, sizeof path) ||
                !job_ref_guess(path, &k->ref, &k->plain_len))
                continue;
        } else if (job_ref_read(text, field_of(k), &k->ref, &e)) {
            finish(k, &e);
            return;
        }
        if (*k->ref.name)
            ask_name(k);
        else
            ask_owner(k);
        return;
    }
    finish(k, NULL);
}

void refs_resolve(struct routes *R, struct job_spec *spec, const struct principal *who,
                  refs_done *done, void *arg)
{
    struct resolving *k = calloc(1, sizeof *k);
    if (!k) abort();
    *k = (struct resolving){.R = R, .spec = spec, .who = *who, .done = done, .arg = arg};
    k->n = job_paths(spec, k->path);
    next(k);
}
