/* training_eval.c: evaluates on held-out data when an evaluation is due. Before the first
 * step, proves that the ranks compute this step as a single rank computes it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "worker/plan/stage.h"
#include "worker/rank/training.h"
#include "worker/verify/verify.h"

/* ---- held-out evaluation --------------------------------------------------------------------- */

bool training_eval_due(const struct training *t)
{
    const struct job_spec *s = t->r->spec;
    const int64_t step = t->train.step;
    if (!t->feed.n_eval) return false;
    if (step == 0) return s->eval.at_start && !t->state.n_evals;
    return (s->eval.every_steps > 0 && step % s->eval.every_steps == 0) ||
           (s->eval.at_end && step == s->train.steps);
}

bool training_has_ppl(const struct training *t)
{
    return t->r->plan.grid[0] == 0 && !t->r->plan.pairs;
}

bool training_eval_in_bytes(const struct training *t)
{
    return t->eval.n_bytes > 0 && (data_all_bytes(data_stats(t->r->data), SET_EVAL) ||
                                   data_order_bytes_known(t->feed.eval));
}

void training_write_pairs(struct jwrite *w, const struct training *t)
{
    const struct ckpt_state *st = &t->state;
    if (!st->preferences.pairs) return;
    jwrite_object(w, "preferences");
    jwrite_int(w, "pairs", st->preferences.pairs);
    jwrite_double(w, "reward_chosen", st->preferences.chosen);
    jwrite_double(w, "reward_rejected", st->preferences.rejected);
    jwrite_double(w, "margin", st->preferences.margin);
    jwrite_double(w, "accuracy", st->preferences.accuracy);
    jwrite_end(w);
}

/* Keeps the numbers of the evaluation, so that the result has them after a resume, too. */
static void keep_pairs(struct training *t)
{
    const double *mean = t->eval.preference;
    if (!t->r->plan.pairs) return;
    t->state.preferences.pairs = t->eval.targets;
    t->state.preferences.chosen = mean[PREFER_CHOSEN];
    t->state.preferences.rejected = mean[PREFER_REJECTED];
    t->state.preferences.margin = mean[PREFER_MARGIN];
    t->state.preferences.accuracy = mean[PREFER_RIGHT];
}

static int send_eval(struct training *t, struct err *e)
{
    const struct eval *v = &t->eval;
    char json[512];
    struct jwrite w;
    if (!run_first(t->r)) return 0;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "step", t->train.step);
    jwrite_double(&w, "loss", v->loss);
    if (training_has_ppl(t)) jwrite_double(&w, "ppl", exp(v->loss));
    jwrite_int(&w, "targets", v->targets);
    jwrite_int(&w, "sequences", v->windows);
    if (training_eval_in_bytes(t)) jwrite_double(&w, "bits_per_byte", eval_bits_per_byte(v));
    training_write_pairs(&w, t);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "an evaluation is too long");
    return link_send_event(t->r->link, EV_EVAL, t->train.step, json, e);
}

bool training_ended_early(const struct training *t)
{
    const struct job_spec *s = t->r->spec;
    return s->eval.patience > 0 && t->state.low.since >= s->eval.patience &&
           t->train.step < s->train.steps;
}

void training_count(struct ckpt_state *st, int64_t step, double loss)
{
    const bool known = st->low.step && isfinite(st->low.loss);
    if (isfinite(loss) && (!known || loss < st->low.loss)) {
        st->low.step = step;
        st->low.loss = loss;
        st->low.since = 0;
    } else {
        st->low.since++;
    }
}

int training_say_ended(struct training *t, struct err *e)
{
    char text[256], why[128];
    const long long n = (long long)t->state.low.since, step = (long long)t->state.low.step;
    if (!training_ended_early(t)) return 0;
    if (step && isfinite(t->state.low.loss))
        snprintf(why, sizeof why,
                 "no evaluation since step %lld, %lld in a row, has a loss below its %.6g", step, n,
                 t->state.low.loss);
    else
        snprintf(why, sizeof why, "no evaluation, %lld in a row, has a finite loss", n);
    snprintf(text, sizeof text,
             "the training ends after step %lld of %lld: %s (eval.patience %lld)",
             (long long)t->train.step, (long long)t->r->spec->train.steps, why,
             (long long)t->r->spec->eval.patience);
    return training_note(
        t,
        &(struct training_note){
            .code = "ended_early", .text = text, .step = t->train.step, .from = -1},
        e);
}

int training_eval(struct training *t, bool *improved, struct err *e)
{
    struct ckpt_state *st = &t->state;
    const struct eval_args a = {.source = feed_eval(&t->feed, t->r->spec),
                                .n_windows = t->feed.n_eval,
                                .seq_len = stage_eval_seq_len(t->r->spec),
                                .want = t->eval_want,
                                .stopped = run_stopped,
                                .arg = t->r};
    if (run_first(t->r))
        log_info("rank.eval", "step=%lld sequences=%lld", (long long)t->train.step,
                 (long long)t->feed.n_eval);
    if (eval_run(&t->train, &a, &t->eval, e)) return -1;
    if (!t->eval.ledger_equal && t->ledger_equal)
        log_error("rank.ledger", "evaluation after step=%lld rank=%d", (long long)t->train.step,
                  t->r->args->rank);
    t->ledger_equal = t->ledger_equal && t->eval.ledger_equal;
    st->n_evals++;
    st->eval_step = t->train.step;
    st->eval_loss = t->eval.loss;
    keep_pairs(t);
    *improved = t->train.step > 0 && t->r->spec->checkpoint.best && isfinite(t->eval.loss) &&
                (!st->has_best || t->eval.loss < st->best_loss);
    if (t->r->spec->eval.patience && t->train.step)
        training_count(st, t->train.step, st->eval_loss);
    return send_eval(t, e) || training_curves_eval(t, e) || training_say_ended(t, e) ? -1 : 0;
}

/* ---- before the first step ------------------------------------------------------------------- */

static int send_verified(struct training *t, const struct verify *v, struct err *e)
{
    char json[1024];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "ranks", v->n_ranks);
    jwrite_int(&w, "tokens", v->n_tokens);
    jwrite_int(&w, "targets", v->targets_1);
    jwrite_double(&w, "loss_rel", v->loss_rel);
    jwrite_double(&w, "allowed_loss_rel", v->allowed_loss_rel);
    jwrite_str(&w, "worst", v->row[0].name);
    jwrite_double(&w, "grad_rel_l2", v->row[0].rel_l2);
    jwrite_double(&w, "logits_rel_l2", v->logits_rel_l2);
    jwrite_double(&w, "allowed_rel_l2", v->row[0].allowed);
    jwrite_int(&w, "n_tensors", v->n_rows);
    jwrite_str(&w, "ledger", v->ledger_equal ? "equal" : "differs");
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the proof is too long to report");
    return link_send_event(t->r->link, EV_VERIFIED, 0, json, e);
}

int training_verify_first(struct training *t, struct err *e)
{
    struct run *r = t->r;
    struct verify v = {0};
    struct plan *pass = malloc(sizeof *pass);
    const int64_t S = plan_verify_seq(r->spec, &r->plan);
    if (!pass) return err_set(e, ERR_IO, "out of memory");
    int rc = plan_at(r->spec, &r->plan, S, plan_verify_samples(&r->plan), pass, e) ||
             model_set_seq(&t->train.model, S, e);
    if (!rc) plan_verify_comm(&r->spec->model.shape, pass, r->args->rank, pass->comm);
    struct verify_args a = {
        .spec = r->spec, .model = &t->train.model, .data = r->data, .want = pass->comm};
    if (!rc) rc = verify_run(&a, &v, e);
    if (!rc && run_first(r)) {
        if (!v.equal)
            rc = verify_sentence(&v, e);
        else
            rc = send_verified(t, &v, e);
    }
    verify_fini(&v);
    free(pass);
    t->stage = STAGE_NONE; /* the model must be set up again, because the proof has set it up
                            * for a length that may differ from that of the stage */
    return rc ? -1 : 0;
}
