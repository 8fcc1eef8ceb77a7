/* test_patience: ends trainings of real seqrank processes when the held-out loss no longer falls
 * (eval.patience), on several products of axes, after a stop, and in later attempts.
 * tests: needs seqrank */
#include <math.h>

#include "api/core/file.h"
#include "tests/lib/held.h"
#include "worker/plan/check.h"
#include "worker/rank/training.h"

enum { STEPS = 60, EVERY = 3, PATIENCE = 3 };

static char scratch[64], prepared_id[80];
static struct gang g; /* static because it has 100 KiB, too many for the stack */

/* Makes a training that learns one sentence by heart, so that its loss on other sentences falls
 * and then rises. */
static struct order *make_order(int sp, const char *name)
{
    struct order *o = held_order(scratch, prepared_id, "text.jsonl", sp, name);
    struct job_spec *s = &o->spec;
    s->eval.every_steps = EVERY;
    s->eval.patience = PATIENCE;
    s->optim.lr = 1e-2;
    s->train.steps = STEPS;
    s->train.global_batch = 4;
    s->checkpoint.every_steps = 4;
    s->checkpoint.keep = STEPS; /* a removal would be an event, and the gang keeps few */
    s->determinism = DET_RANKS;
    return o;
}

static void start(struct order *o)
{
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, o->spec.resources.ranks, o);
}

static bool run_ok(struct order *o)
{
    start(o);
    gang_run(&g);
    const bool ok = all_ok(&g);
    CHECK_MSG(ok, "%s: %s", o->args.job_dir, g.fail.text);
    return ok;
}

static void write_docs(const char *name, int n, const char *of)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "we");
    for (int i = 0; f && i < n; i++) {
        fprintf(f, "{\"text\":\"");
        fprintf(f, of, i * 7 % 13);
        fprintf(f, "\"}\n");
    }
    CHECK(f && !fclose(f));
}

/* Checks the count alone, also of losses that are not finite. */
static void test_count(void)
{
    static const struct {
        double loss[5];
        int64_t step[5], since[5];
    } rows[] = {{{NAN, 3, 2, 2, INFINITY}, {0, 2, 3, 3, 3}, {1, 0, 0, 1, 2}},
                {{INFINITY, NAN, -INFINITY, 1e30, 0}, {0, 0, 0, 4, 5}, {1, 2, 3, 0, 0}},
                {{0, NAN, 1, 0, -1}, {1, 1, 1, 1, 5}, {0, 1, 2, 3, 0}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ckpt_state s = {0};
        for (int k = 0; k < 5; k++) {
            training_count(&s, k + 1, rows[i].loss[k]);
            CHECK_MSG(s.low.step == rows[i].step[k] && s.low.since == rows[i].since[k],
                      "row %zu, evaluation %d: step %d, since %d", i, k, (int)s.low.step,
                      (int)s.low.since);
            CHECK(isfinite(s.low.loss));
        }
    }
    /* The loss of a checkpoint may be NaN. */
    struct ckpt_state s = {.low = {.step = 1, .loss = NAN, .since = 2}};
    training_count(&s, 4, 9);
    CHECK(s.low.step == 4 && s.low.loss == 9 && !s.low.since);
}

static void test_prepare(void)
{
    write_docs("text.jsonl", 90, "int f1(int x) { return x * 2; } /* 12 */");
    write_docs("held.jsonl", 9, "int f%d(int y) { return y + 7 * y; }");
    struct order *o = make_order(1, "prepare");
    o->args.task = TASK_PREPARE;
    if (run_ok(o)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    free(o);
}

/* The course of evaluations, by the events of one or several attempts. */
struct course {
    int n;
    double low;
    int64_t low_step, step; /* the step of the lowest loss, and that of the last evaluation */
    int since, falls;
};

static void follow(struct course *c)
{
    for (int i = 0;; i++) {
        const struct gang_event *ev = gang_event(&g, EV_EVAL, i);
        if (!ev) return;
        const double loss = number(ev->json, "loss");
        CHECK_MSG(c->since < PATIENCE, "an evaluation after step %d", (int)ev->step);
        c->step = ev->step;
        if (!c->n++ || loss < c->low) {
            c->falls += c->n > 1;
            c->low = loss, c->low_step = ev->step, c->since = 0;
        } else {
            c->since++;
        }
    }
}

/* Checks the end of a training, which the evaluations c have ended. */
static void check_end(const struct course *c)
{
    char buf[1400], want[64];
    CHECK_MSG(c->since == PATIENCE && c->step < STEPS, "%d evaluations since step %d", c->since,
              (int)c->low_step);
    CHECK(number(g.result, "steps") == (double)c->step);
    const char *best = strstr(g.result, "\"best\":"), *early = strstr(g.result, "\"ended_early\":");
    CHECK_MSG(best && early, "%s", g.result);
    if (!best || !early) return;
    CHECK(number(best + 7, "step") == (double)c->low_step && number(best + 7, "loss") == c->low);
    CHECK_STR(text(early + 14, "field", buf, sizeof buf), "eval.patience");
    CHECK(number(early + 14, "evaluations") == PATIENCE);
    CHECK(number(early + 14, "step") == (double)c->low_step);
    CHECK(number(early + 14, "loss") == c->low);
    snprintf(want, sizeof want, "/step-%08d", (int)c->step);
    CHECK(strstr(text(g.result, "checkpoint", buf, sizeof buf), want));
    CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
}

static struct course whole;
static char whole_sha[80];

static void test_ends(void)
{
    char buf[80];
    struct order *o = make_order(2, "whole");
    if (run_ok(o)) {
        follow(&whole);
        check_end(&whole);
        CHECK_MSG(whole.falls > 0, "the loss never fell below that of step %d",
                  (int)whole.low_step);
        CHECK(g.n_steps == whole.step);
        const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
        CHECK(note && note->step == whole.step && strstr(note->json, "eval.patience 3"));
        if (note) CHECK_STR(text(note->json, "code", buf, sizeof buf), "ended_early");
        text(g.result, "weights_sha256", whole_sha, sizeof whole_sha);
        /* An attempt that follows finds the training at its end. */
        o->args.epoch = 2;
        if (run_ok(o)) {
            CHECK(g.n_steps == 0 && !gang_event(&g, EV_EVAL, 0) && !gang_event(&g, EV_NOTE, 0));
            check_end(&whole);
        }
    }
    free(o);
}

/* Checks that no training ends early whose eval.patience is 0 or larger than the number of its
 * evaluations. */
static void test_stays(void)
{
    for (int i = 0; i < 2; i++) {
        struct order *o = make_order(1, i ? "long" : "off");
        o->spec.eval.patience = i ? STEPS : 0;
        if (run_ok(o)) {
            CHECK(number(g.result, "steps") == STEPS && !strstr(g.result, "ended_early"));
            CHECK(!gang_event(&g, EV_NOTE, 0));
        }
        free(o);
    }
}

/* Checks that the end does not depend on the ranks, nor on checkpoint.best. Under determinism
 * "ranks" the losses of rings of all lengths have the same bits. Other products have losses of
 * their own, by which each of them ends. */
static void test_products(void)
{
    static const struct {
        const char *name;
        int sp, dp, pp, tp, zero;
    } ways[] = {{"s1", 1, 1, 1, 1, 0},   {"s4", 4, 1, 1, 1, 1},   {"d2z3", 1, 2, 1, 1, 3},
                {"s2p2", 2, 1, 2, 1, 1}, {"s1t2", 1, 1, 1, 2, 0}, {"d2p2t2", 1, 2, 2, 2, 2}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (small_leaves((int64_t)i + 1, 2)) continue;
        struct order *o = make_order(ways[i].sp, ways[i].name);
        struct course c = {0};
        o->spec.parallel.dp = ways[i].dp;
        o->spec.parallel.pp = ways[i].pp;
        o->spec.parallel.tp = ways[i].tp;
        o->spec.parallel.zero = ways[i].zero;
        o->spec.checkpoint.every_steps = 0;
        o->spec.checkpoint.best = i % 2;
        if (i > 1) o->spec.determinism = DET_RUN;
        if (run_ok(o)) {
            follow(&c);
            check_end(&c);
            CHECK(i > 1 || (c.step == whole.step && c.low == whole.low));
        }
        free(o);
    }
}

/* Checks a training that is stopped while its evaluations are counted, and continues with another
 * number of ranks. It must end at the same step and with the same weights. */
static void test_continues(void)
{
    char sha[80];
    struct order *o = make_order(4, "stopped");
    struct course c = {0};
    start(o);
    g.stop_at_step = (int)whole.low_step + EVERY + 1;
    gang_run(&g);
    follow(&c);
    CHECK_MSG(c.since >= 1 && c.since < PATIENCE, "%d evaluations were counted", c.since);
    o->args.epoch = 2;
    o->spec.parallel.sp = o->spec.resources.ranks = 2;
    o->spec.parallel.strategy = STRATEGY_AUTO;
    o->spec.parallel.layout = LAYOUT_AUTO;
    if (run_ok(o)) {
        CHECK(g.n_steps > 0);
        follow(&c);
        check_end(&c);
        CHECK(c.step == whole.step && c.n == whole.n);
        CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), whole_sha);
    }
    free(o);
}

/* Checks that a job with checkpoint.changes, which may have other data, counts from 0, and that
 * a job without it continues the count. */
static void test_other_job(void)
{
    for (int changes = 0; changes < 2; changes++) {
        char path[RANK_PATH_SIZE];
        struct order *o = make_order(2, changes ? "changed" : "further");
        snprintf(path, sizeof path, "%s/whole/checkpoints/step-%08d", scratch, (int)whole.step);
        o->spec.checkpoint.resume = RESUME_PATH;
        o->spec.checkpoint.resume_path = tiny_text(&o->spec, path);
        o->spec.checkpoint.changes = changes;
        if (run_ok(o)) {
            struct course c = {0};
            follow(&c);
            const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
            CHECK(note && strstr(note->json, "\"ended_early\"") && !gang_event(&g, EV_NOTE, 1));
            CHECK(changes || (note && note->step == whole.step));
            if (changes)
                CHECK(c.n > PATIENCE && c.low_step > whole.step);
            else
                CHECK(!c.n && g.n_steps == 0 && strstr(g.result, "ended_early"));
        }
        free(o);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_patience.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_count);
    RUN(test_prepare);
    RUN(test_ends);
    RUN(test_stays);
    RUN(test_products);
    RUN(test_continues);
    RUN(test_other_job);
    struct err e = {0};
    if (getenv("KEEP"))
        printf("  kept %s\n", scratch);
    else if (file_remove(scratch, &e))
        printf("  %s\n", e.text);
    return test_done("patience");
}
