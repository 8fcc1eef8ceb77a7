/* training_report.c: writes the notes and the result of a training, and publishes the files of its
 * last checkpoint. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "worker/rank/training.h"

int training_note(struct training *t, const struct training_note *n, struct err *e)
{
    char json[RANK_PATH_SIZE + 1024];
    struct jwrite w;
    if (!run_first(t->r)) return 0;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", n->code);
    jwrite_int(&w, "step", n->step);
    if (n->from >= 0) jwrite_int(&w, "to_step", n->from);
    if (n->numbers) {
        jwrite_double(&w, "loss", n->numbers->loss);
        jwrite_double(&w, "grad_norm", n->numbers->grad_norm);
    }
    jwrite_str(&w, "text", n->text);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "a note is too long: %s", n->code);
    return link_send_event(t->r->link, EV_NOTE, n->step, json, e);
}

/* Writes the best checkpoint. If there is none, writes the lowest loss that eval.patience has
 * counted from. */
static void write_best(struct jwrite *w, const struct training *t)
{
    const struct ckpt_state *s = &t->state;
    const bool saved = s->has_best && t->best.path[0];
    if (!saved && !s->low.step) return;
    jwrite_object(w, "best");
    jwrite_int(w, "step", saved ? s->best_step : s->low.step);
    jwrite_double(w, "loss", saved ? s->best_loss : s->low.loss);
    if (saved) jwrite_str(w, "checkpoint", t->best.path);
    if (saved) jwrite_str(w, "weights_sha256", t->best.weights_sha256);
    jwrite_end(w);
}

static void write_evals(struct jwrite *w, const struct training *t)
{
    const struct ckpt_state *s = &t->state;
    if (!s->n_evals) return;
    jwrite_object(w, "eval");
    jwrite_int(w, "step", s->eval_step);
    jwrite_double(w, "loss", s->eval_loss);
    if (training_has_ppl(t)) jwrite_double(w, "ppl", exp(s->eval_loss));
    jwrite_int(w, "evaluations", s->n_evals);
    training_write_pairs(w, t);
    jwrite_end(w);
    write_best(w, t);
    if (!training_ended_early(t)) return;
    jwrite_object(w, "ended_early");
    jwrite_str(w, "field", "eval.patience");
    jwrite_int(w, "evaluations", s->low.since);
    if (s->low.step) {
        jwrite_int(w, "step", s->low.step);
        jwrite_double(w, "loss", s->low.loss);
    }
    jwrite_end(w);
}

int training_result(struct training *t, struct err *e)
{
    struct run *r = t->r;
    char json[RANK_RESULT_SIZE], hf[CKPT_PATH_SIZE + 8], ema[CKPT_PATH_SIZE + 8];
    char adapter[CKPT_PATH_SIZE + 8];
    struct jwrite w;
    if (publish_checkpoint(&r->publish, t->last.path, e)) return -1;
    const bool adapted = r->spec->model.shape.adapter.rank > 0;
    snprintf(hf, sizeof hf, "%s/hf", t->last.path);
    snprintf(adapter, sizeof adapter, "%s/adapter", t->last.path);
    snprintf(ema, sizeof ema, "%s/hf_ema", t->last.path);
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "steps", t->train.step);
    jwrite_double(&w, "loss", t->step.loss);
    if (!r->plan.grid[0])
        jwrite_double(&w, "unigram_entropy", data_stats(r->data)->unigram_entropy);
    jwrite_int(&w, "tokens", t->state.tokens_seen);
    jwrite_int(&w, "skipped_steps", t->guard.state.skipped + t->train.scale.overflows);
    if (t->train.n_empty) jwrite_int(&w, "steps_without_target", t->train.n_empty);
    if (r->plan.precision == PRECISION_FP16) {
        jwrite_int(&w, "overflows", t->train.scale.overflows);
        jwrite_double(&w, "loss_scale", scale_of(r->spec, &t->train.scale));
    }
    jwrite_int(&w, "rollbacks", t->guard.state.rollbacks);
    write_evals(&w, t);
    jwrite_str(&w, "weights_sha256", t->last.weights_sha256);
    jwrite_str(&w, "checkpoint", t->last.path);
    if (t->last.save_ms) jwrite_double(&w, "checkpoint_mb_s", ckpt_mb_s(&t->last));
    if (adapted) jwrite_str(&w, "adapter", adapter);
    if (!adapted || r->spec->checkpoint.merge) jwrite_str(&w, "hf", hf);
    if (r->plan.ema) jwrite_str(&w, "hf_ema", ema);
    run_write_account(&w, r, t->ledger_equal, &t->train.model);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}
