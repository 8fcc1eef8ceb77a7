/* training_save.c: saves checkpoints. Rank 0 writes and prunes checkpoints. All ranks agree on
 * the outcome, and all ranks wait while the disk is full. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "worker/ckpt/fence.h"
#include "worker/ckpt/scatter.h"
#include "worker/ckpt/steps.h"
#include "worker/hf/hf.h"
#include "worker/plan/stage.h"
#include "worker/rank/training.h"

/* Time in seconds from a checkpoint that could not be written to the next attempt to write it. */
#define RETRY_S  10
#define PAUSE_MS 2000 /* wait between two attempts at the last checkpoint */
#define WAIT_S   600  /* longest time for all attempts at the last checkpoint */

void training_ask(struct training *t)
{
    const int64_t every = t->r->spec->checkpoint.every_s;
    if (!run_first(t->r)) return;
    const int64_t now = clock_us();
    if (!t->saved_us) t->saved_us = now;
    t->train.ask = (every > 0 && now - t->saved_us >= every * 1000000) ||
                   (t->retry_us && now >= t->retry_us);
    t->train.ask_leave = link_saving(t->r->link);
}

/* ---- files of the model's directory ---------------------------------------------------------- */

int training_say_left(struct training *t, const struct weights_start *from, struct err *e)
{
    char text[400];
    if (!weights_left_text(&from->left, "checkpoints go", text, sizeof text)) return 0;
    return training_note(
        t, &(struct training_note){.code = "files_left_out", .text = text, .step = 0, .from = -1},
        e);
}

/* ---- writing, on rank 0 ---------------------------------------------------------------------- */

static void fill_state(struct training *t)
{
    const struct run *r = t->r;
    const struct job_spec *s = r->spec;
    struct ckpt_state *st = &t->state;
    st->step = t->train.step;
    st->adam_t = train_updates(&t->train);
    st->next_sample = stage_sample(s, t->train.step);
    st->seed = s->seed;
    st->lr = t->step.lr;
    st->loss = t->step.loss;
    st->n_ranks = r->args->n_ranks;
    st->layout = (int32_t)r->plan.layout;
    st->guard = t->guard.state;
    st->scale = t->train.scale;
    st->steps_without_target = t->train.n_empty;
    memcpy(st->data_id, r->args->prepared_id, sizeof st->data_id);
    ckpt_spec_digest(s, st->spec_digest);
    assert(!ckpt_spec_json(s, t->spec_json));
    st->spec_json = t->spec_json;
}

static int say_removed(void *arg, int64_t step, const char *path, struct err *e)
{
    struct training *t = arg;
    char json[2048];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "path", path);
    jwrite_str(&w, "reason", "checkpoint.keep");
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0)
        return err_set(e, ERR_TOO_LARGE, "the path %s is too long to report", path);
    return link_send_event(t->r->link, EV_CHECKPOINT_REMOVED, step, json, e);
}

/* Prunes. A failure only causes a note, because the checkpoint that was just written is
 * complete. */
static int prune(struct training *t, struct err *e)
{
    const struct job_spec *s = t->r->spec;
    const struct ckpt_keep keep = {s->checkpoint.keep, s->checkpoint.keep_every, say_removed, t};
    struct err why = {0};
    /* Only this attempt writes to this directory, and no write is in progress. For this reason
     * every .tmp directory was left by an earlier attempt or by a failed save. */
    if (!ckpt_prune(t->r->args->job_dir, &keep, t->r->args->epoch + 1, &why)) return 0;
    return training_note(
        t,
        &(struct training_note){
            .code = "prune_failed", .text = why.text, .step = t->train.step, .from = -1},
        e);
}

static int write_checkpoint(struct training *t, bool best, struct err *e)
{
    struct run *r = t->r;
    const char *dir = r->args->job_dir;
    const struct data_stats *read = data_stats(r->data);
    struct ckpt_arrays a = scatter_arrays(&t->train.state);
    const struct hf_beside beside = {
        *t->beside ? t->beside : NULL,
        !read->own_tokens && (read->n_bytes > 0 || read->eval_bytes > 0), a.flow.still, a.flow.arg};
    struct model_shape shape = slice_whole(&r->spec->model.shape);
    struct ckpt_info info;
    char json[2048];
    const int64_t since_us = clock_us();
    log_info("rank.save", "step=%lld", (long long)t->train.step);
    a.fenced = r->args->shared;
    a.beside = &beside;
    a.base = spec_text(r->spec, r->spec->model.path);
    a.merge = r->spec->checkpoint.merge;
    a.base_id = &t->base;
    a.references = t->references.n ? &t->references : NULL;
    a.wrapped = t->wrapped;
    shape.rope_theta = stage_rope_theta(r->spec, stage_at(r->spec, t->train.step - 1));
    if (ckpt_save(dir, r->args->epoch, &shape, &a, &t->state, &info, e))
        return err_prefix(e, "checkpoint of step %lld", (long long)t->train.step);
    /* a later attempt may have removed the checkpoint, and keeps others */
    if (r->args->shared && fence_check(dir, r->args->epoch, e)) return -1;
    if (best && ckpt_mark_best(dir, t->train.step, e)) return -1;
    info.save_ms = (clock_us() - since_us) / 1000;
    t->last = info;
    if (best) t->best = info;
    t->saved_us = clock_us();
    if (ckpt_json(&info, json, sizeof json) < 0)
        return err_set(e, ERR_TOO_LARGE, "the path %s is too long to report", info.path);
    return link_send_event(r->link, EV_CHECKPOINT, t->train.step, json, e) || prune(t, e) ? -1 : 0;
}

/* ---- agreeing -------------------------------------------------------------------------------- */

/* TOO_LARGE is treated like DISK, except that the save is not tried again. */
enum outcome { SAVED, DISK, BROKEN, TOO_LARGE };

static enum outcome outcome_of(enum err_code code)
{
    if (code == ERR_TOO_LARGE) return TOO_LARGE;
    return code == ERR_IO || code == ERR_NO_SPACE ? DISK : BROKEN;
}

/* Sends the value that *word has on rank 0 to all ranks. */
static int share(struct training *t, int64_t *word, struct err *e)
{
    if (!t->r->comm) return 0;
    if (!run_first(t->r)) *word = 0;
    return comm_sum_i64(t->r->comm, PURPOSE_CONTROL, word, 1, t->train.model.bounce, e);
}

/* Writes the checkpoint on rank 0. Rank 0 asks the other ranks for the elements that they
 * hold, and the other ranks send them. */
static int64_t write_or_say(struct training *t, bool best, struct err *why)
{
    if (!run_first(t->r)) return scatter_serve(&t->train.state, why) ? BROKEN : SAVED;
    const int rc = write_checkpoint(t, best, why);
    if (!rc) return scatter_end(&t->train.state, why) ? BROKEN : SAVED;
    if (scatter_end(&t->train.state, NULL)) return BROKEN;
    return outcome_of(why->code);
}

static int say_failed(struct training *t, const struct err *why, struct err *e)
{
    log_warn("rank.checkpoint", "step=%lld reason=\"%s\"", (long long)t->train.step, why->text);
    return training_note(
        t,
        &(struct training_note){
            .code = "checkpoint_failed", .text = why->text, .step = t->train.step, .from = -1},
        e);
}

/* Waits on rank 0 until the disk may have room. In the meantime the other ranks wait for rank
 * 0 in the next exchange. */
static int wait_for_disk(struct training *t, int64_t since_us, const struct err *why, struct err *e)
{
    struct pollfd p = {.fd = t->r->link->fd, .events = POLLIN};
    if (!run_first(t->r)) return 0;
    for (int ms = 0; ms < PAUSE_MS; ms += 100) {
        if (run_stopped(t->r))
            return err_set(e, ERR_ABORTED, "stopped on request while the disk was full");
        poll(&p, 1, 100);
    }
    if (clock_us() - since_us < WAIT_S * 1000000LL) return 0;
    *e = *why;
    return -1;
}

static int save(struct training *t, bool must, bool best, int64_t *outcome, struct err *e)
{
    const int64_t since_us = clock_us();
    /* set if the delay of this checkpoint has been reported already */
    bool said = t->owed && !must;
    for (;;) {
        struct err why = {0};
        *outcome = write_or_say(t, best, &why);
        const int64_t own = *outcome;
        if (share(t, outcome, e)) return -1;
        if (own == BROKEN || (own == TOO_LARGE && must)) {
            *e = why;
            return -1;
        }
        /* The outcome is either SAVED or BROKEN. If it is BROKEN, this rank is not rank 0. In
         * that case the error of rank 0 ends the job, while this rank waits in the next step. */
        if (*outcome != DISK && *outcome != TOO_LARGE) return 0;
        if (must && *outcome == TOO_LARGE) return 0;
        if (must && own == DISK)
            err_prefix(&why, "the last save waits for room, %d s in all", WAIT_S);
        if (!said && say_failed(t, &why, e)) return -1;
        said = true;
        if (!must) return 0;
        if (wait_for_disk(t, since_us, &why, e)) return -1;
    }
}

int training_save(struct training *t, bool must, bool best, struct err *e)
{
    const struct ckpt_state before = t->state;
    int64_t outcome;
    fill_state(t);
    if (best) {
        t->state.has_best = 1;
        t->state.best_step = t->state.eval_step;
        t->state.best_loss = t->state.eval_loss;
    }
    if (save(t, must, best, &outcome, e)) return -1;
    t->owed = outcome == DISK;
    t->retry_us = t->owed ? clock_us() + RETRY_S * 1000000LL : 0;
    if (outcome != DISK && outcome != TOO_LARGE) return 0;
    t->state.has_best = before.has_best;
    t->state.best_step = before.best_step;
    t->state.best_loss = before.best_loss;
    return 0;
}

/* ---- the best -------------------------------------------------------------------------------- */

int training_find_best(struct training *t, struct err *e)
{
    struct err why = {0};
    char path[FILE_PATH_SIZE];
    const char *dir = t->r->args->job_dir;
    int64_t there = 0;
    t->best = (struct ckpt_info){0};
    if (!t->state.has_best) return 0;
    if (run_first(t->r) && ckpt_best(dir) == t->state.best_step) {
        if (file_join(path, e, "%s/checkpoints/step-%08lld", dir, (long long)t->state.best_step) <
            0)
            return -1;
        there = ckpt_check(path, &t->best, &why) == 0;
        if (!there) log_warn("rank.best", "reason=\"%s\"", why.text);
    }
    if (share(t, &there, e)) return -1;
    t->state.has_best = there != 0;
    return 0;
}
