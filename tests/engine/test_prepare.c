/* test_prepare: runs the preparation of several kinds of data by real seqrank processes, and
 * checks its output and which data it refuses. Also checks that a training on packed, masked and
 * mixed data is the same on any number of ranks.
 * tests: needs seqrank */
#include <math.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "tests/lib/gang.h"
#include "worker/plan/check.h"

enum { STEPS = 8 };

static char scratch[64], prepared_id[80];
static struct gang g; /* static because it has 100 KiB, too many for the stack */

static void add(struct job_spec *s, const char *name, enum data_format format, double weight)
{
    s->data.train[s->data.n_train++] = (struct spec_source){.path = tiny_text(s, name),
                                                            .text_key = tiny_text(s, "text"),
                                                            .format = format,
                                                            .weight = weight,
                                                            .eod = -1};
}

static struct order *make_order(enum job_kind kind, int sp, int dp)
{
    char dir[64];
    char path[160];
    snprintf(dir, sizeof dir, "job-%d-%d-%d", kind, sp, dp);
    snprintf(path, sizeof path, "%s/%s", scratch, dir);
    file_remove(path, NULL); /* it was left by the test before */
    struct order *o = order_new(kind, scratch, prepared_id, dir);
    struct job_spec *s = &o->spec;
    s->model.shape.vocab = 300;
    s->parallel.sp = sp;
    s->parallel.dp = dp;
    s->resources.ranks = sp * dp;
    s->train.steps = STEPS;
    s->train.global_batch = 4;
    s->checkpoint.every_steps = 100;
    s->data.seq_len = 48;
    return o;
}

/* Sets a mixture of everything: masked pairs, ids with labels, a token shard, and text. */
static void mixed(struct order *o)
{
    struct job_spec *s = &o->spec;
    add(s, "pairs.jsonl", DATA_JSONL, 0.5);
    add(s, "shard.bin", DATA_NANOGPT, 0.3);
    add(s, "text.jsonl", DATA_TEXT, 0.2);
    s->data.train[1].eod = 299;
    s->data.loss_on = LOSS_ON_COMPLETION;
    s->data.packing = PACKING_BEST_FIT;
    s->data.overlong = OVERLONG_SPLIT;
}

static void run(struct order *o)
{
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, o->spec.resources.ranks, o);
    gang_run(&g);
}

static void prepare(struct order *o)
{
    o->args.task = TASK_PREPARE;
    o->args.prepared_id[0] = 0;
    o->spec.parallel.sp = o->spec.parallel.dp = o->spec.resources.ranks = 1;
    run(o);
    if (!g.n_fails && all_ok(&g)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
}

/* ---- the output of the preparation ----------------------------------------------------------- */

/* Returns the member `key` of the k-th order in the result. */
static int64_t order_number(int k, const char *key)
{
    const char *at = strstr(g.result, "\"orders\":[");
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    for (int i = 0; at && i <= k; i++) at = strchr(at + 1, '{');
    at = at ? strstr(at, name) : NULL;
    CHECK_MSG(at != NULL, "no %s of order %d in %s", key, k, g.result);
    return at ? atoll(at + strlen(name)) : -1;
}

static void test_counts(void)
{
    struct order *o = make_order(JOB_TRAIN, 1, 1);
    struct job_spec *s = &o->spec;
    add(s, "lines.jsonl", DATA_JSONL, 0);
    s->data.overlong = OVERLONG_DROP;
    s->data.packing = PACKING_BEST_FIT;
    s->data.seq_len = 12;
    s->n_stages = 1;
    s->stages[0] = (struct spec_stage){.from_step = 3, .seq_len = 24};
    s->eval.data[s->eval.n_data++] = s->data.train[0];
    prepare(o);
    /* lines.jsonl has records of 5, 11, 21 and 41 tokens, and an empty record (write_files). */
    CHECK(number(g.result, "n_tokens") == 78 && number(g.result, "n_documents") == 4);
    CHECK(number(g.result, "eval_tokens") == 78 && number(g.result, "skipped_records") == 2);
    CHECK(number(g.result, "samples_per_pass") == 2 && number(g.result, "mb_s") > 0);
    CHECK(order_number(0, "seq_len") == 12 && order_number(0, "dropped_documents") == 2);
    CHECK(order_number(0, "dropped_tokens") == 62 && order_number(0, "tokens") == 16);
    CHECK(order_number(0, "samples") == 2 && order_number(0, "padding") == 8);
    CHECK(order_number(1, "seq_len") == 24 && order_number(1, "dropped_documents") == 1);
    CHECK(order_number(1, "samples") == 2 && order_number(1, "documents") == 3);
    CHECK(strstr(g.result, "\"set\":\"eval\"") && order_number(2, "seq_len") == 12);
    CHECK(g.n_notes == 1 && g.n_events == 1);
    const char *note = g.event[0].json;
    CHECK_MSG(strstr(note, "\"code\":\"data\"") && strstr(note, "of 4 documents 2 were dropped (62 "
                                                                "tokens)"),
              "%s", note);
    free(o);
    o = make_order(JOB_TRAIN, 1, 1); /* in this case there is no note */
    add(&o->spec, "shard.bin", DATA_NANOGPT, 0);
    o->spec.data.train[0].eod = 299;
    prepare(o);
    CHECK(g.n_notes == 0);
    free(o);
}

/* Checks that the reported number of samples of a score job is the number of windows that it runs.
 * If a window has only complete documents, the order of documents is kept, so there are more
 * windows than the smallest possible number. If windows are independent of documents, they
 * overlap. */
static void test_windows(void)
{
    for (int whole = 0; whole < 2; whole++) {
        for (int runs = 0; runs < 2; runs++) {
            struct order *o = make_order(JOB_SCORE, 1, 1);
            struct job_spec *s = &o->spec;
            s->input.source = (struct spec_source){.path = tiny_text(s, "lines.jsonl"),
                                                   .text_key = tiny_text(s, "text"),
                                                   .format = DATA_JSONL,
                                                   .eod = -1};
            s->data.seq_len = 26;
            s->data.packing = whole ? PACKING_BEST_FIT : PACKING_CONCAT;
            s->score.stride = whole ? 0 : 10;
            if (runs)
                run(o);
            else
                prepare(o);
            CHECK_MSG(all_ok(&g), "%s", g.fail.text);
            /* Windows of whole documents have 5 + 11, 21, 26 of 41, and the remaining 15 tokens.
             * Other windows begin every 10 tokens, and the last one has the last of 78 tokens. */
            const int64_t want = whole ? 4 : 7;
            if (runs) {
                CHECK(number(g.result, "windows") == (double)want);
            } else {
                CHECK(number(g.result, "samples_per_pass") == (double)want);
                CHECK(order_number(0, "samples") == want);
                CHECK(order_number(0, "padding") == want * 26 - 78 - (whole ? 0 : 6 * 16));
            }
            free(o);
        }
    }
}

/* Checks that the preparation reports how many bytes each form of ring attention would send. It
 * computes the number from the documents. With short lines, all_gather sends fewer bytes than a
 * ring. With one long document, whose last row sees all other rows, it sends as many bytes as a
 * ring, except for the padding of the last of 23 samples. */
static void test_forms(void)
{
    static const char *const files[] = {"lines.jsonl", "text.jsonl"};
    for (int k = 0; k < 2; k++) {
        struct order *o = make_order(JOB_TRAIN, 2, 1);
        add(&o->spec, files[k], k ? DATA_TEXT : DATA_JSONL, 0);
        o->args.task = TASK_PREPARE;
        o->args.prepared_id[0] = 0;
        struct err e = {0};
        CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
        gang_start(&g, 1, o); /* the one rank that prepares */
        gang_run(&g);
        CHECK_MSG(all_ok(&g), "%s", g.fail.text);
        const char *forms = strstr(g.result, "\"forms\":");
        long long n = 0, ring = 0, all = 0;
        CHECK_MSG(forms && sscanf(forms,
                                  "\"forms\":{\"samples\":%lld,\"blockwise\":{\"messages\":%*d,"
                                  "\"bytes\":%lld},\"all_gather\":{\"messages\":%*d,\"bytes\":%lld",
                                  &n, &ring, &all) == 3,
                  "%s", g.result);
        CHECK_MSG(n > 0 && ring > 0 && (k ? all * 20 > ring * 19 : all * 4 < ring * 3),
                  "%s: %lld samples, a ring %lld, all_gather %lld", files[k], n, ring, all);
        free(o);
    }
    struct order *o = make_order(JOB_TRAIN, 1, 1); /* one rank has no choice of a form */
    add(&o->spec, "lines.jsonl", DATA_JSONL, 0);
    prepare(o);
    CHECK(!strstr(g.result, "\"forms\""));
    free(o);
}

static void refuse(struct order *o, enum err_code code, const char *field, const char *part)
{
    prepare(o);
    CHECK_MSG(g.n_fails == 1 && g.fail.code == (int)code, "code %d: %s", g.fail.code, g.fail.text);
    CHECK_STR(g.fail.field, field);
    CHECK_MSG(strstr(g.fail.text, part), "\"%s\" has no \"%s\"", g.fail.text, part);
    free(o);
}

/* Checks that the preparation refuses data from which no order of samples can be made. The
 * preparation must check this for every sequence length that the job will have. */
static void test_refuses(void)
{
    struct order *o = make_order(JOB_TRAIN, 1, 1);
    add(&o->spec, "lines.jsonl", DATA_JSONL, 0);
    o->spec.data.overlong = OVERLONG_ERROR;
    o->spec.data.seq_len = 40;
    refuse(o, ERR_INVALID, "data.overlong", "lines.jsonl record 5 has 41 tokens, the sequence 40");

    o = make_order(JOB_TRAIN, 1, 1);
    add(&o->spec, "lines.jsonl", DATA_JSONL, 0);
    o->spec.data.overlong = OVERLONG_ERROR;
    o->spec.data.seq_len = 41;
    o->spec.n_stages = 1;
    o->spec.stages[0] = (struct spec_stage){.from_step = 3, .seq_len = 20};
    refuse(o, ERR_INVALID, "data.overlong", "lines.jsonl record 3 has 21 tokens, the sequence 20");

    o = make_order(JOB_TRAIN, 1, 1);
    add(&o->spec, "lines.jsonl", DATA_JSONL, 0);
    o->spec.data.overlong = OVERLONG_DROP;
    o->spec.data.seq_len = 4;
    refuse(o, ERR_INVALID, "data.train",
           "no sample is left of 4 documents: data.overlong \"drop\" has dropped all, since each "
           "has at "
           "least 5 tokens and the sequence 4: raise data.seq_len (or the stage's) to "
           "that, or set data.overlong to split");

    o = make_order(JOB_TRAIN, 1, 1);
    add(&o->spec, "two.jsonl", DATA_JSONL, 0);
    o->spec.objective.type = OBJECTIVE_DPO;
    o->spec.data.packing = PACKING_BEST_FIT;
    o->spec.data.overlong = OVERLONG_DROP;
    o->spec.data.seq_len = 6;
    refuse(
        o, ERR_INVALID, "data.train",
        "no sample is left of 2 pairs: data.overlong \"drop\" has dropped all, since a pair is its "
        "prompt twice and both answers, here at least 7 tokens and the sequence 6: raise data");

    o = make_order(JOB_TRAIN, 1, 1);
    add(&o->spec, "lines.jsonl", DATA_JSONL, 1);
    add(&o->spec, "empty.jsonl", DATA_JSONL, 1);
    refuse(o, ERR_INVALID, "data.train",
           "source 1: this source has no document, for all its records are empty: leave it out");

    o = make_order(JOB_TRAIN, 1, 1);
    add(&o->spec, "shard.bin", DATA_NANOGPT, 0);
    o->spec.model.shape.vocab = 299;
    refuse(o, ERR_INVALID, "data.train.0.path", "is 299: the model's vocabulary has 299 ids");
}

/* Checks data without a target. The error must name no fix that the job would be refused for, or
 * that would change nothing. */
static void test_no_target(void)
{
    static const struct {
        const char *says;
        enum job_kind kind;
        int loss_on;
        bool offers; /* the error names data.loss_on */
    } row[] = {{"no token of data.train is learnt: labels are -100", JOB_TRAIN, LOSS_ON_AUTO, true},
               {"set data.loss_on to \"all\"", JOB_VERIFY, LOSS_ON_ASSISTANT, true},
               {"give records with tokens to learn", JOB_TRAIN, LOSS_ON_ALL, false},
               {"give records with tokens to learn", JOB_TRAIN, LOSS_ON_COMPLETION, false},
               {"or give whole texts, or input_ids without", JOB_SCORE, LOSS_ON_AUTO, false}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct order *o = make_order(row[i].kind, 1, 1);
        struct job_spec *s = &o->spec;
        add(s, "labels.jsonl", DATA_JSONL, 0);
        s->data.loss_on = row[i].loss_on;
        if (row[i].kind == JOB_SCORE) s->input.source = s->data.train[0], s->data.n_train = 0;
        refuse(o, ERR_INVALID, row[i].kind == JOB_SCORE ? "input" : "data.train", row[i].says);
        CHECK_MSG(!strstr(g.fail.text, "data.loss_on") == !row[i].offers, "%s", g.fail.text);
    }
}

/* ---- the use of prepared data ---------------------------------------------------------------- */

/* Checks one, two and three ranks, and two rings. All of them must have the same samples, masks
 * and targets, and therefore nearly the same losses. The order of fp32 sums changes a loss by
 * about 1e-7 of its value in a step, and this difference grows little in 8 steps. A wrong target
 * would change the second digit of a loss. */
static void test_ranks_equal(void)
{
    static const int degrees[][2] = {{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}};
    double loss[STEPS];
    int64_t targets[STEPS];
    struct order *o = make_order(JOB_TRAIN, 1, 1);
    mixed(o);
    prepare(o);
    CHECK(number(g.result, "masked_tokens") > 100);
    free(o);
    for (size_t d = 0; d < sizeof degrees / sizeof *degrees; d++) {
        o = make_order(JOB_TRAIN, degrees[d][0], degrees[d][1]);
        mixed(o);
        run(o);
        CHECK(all_ok(&g) && g.n_steps == STEPS);
        for (int i = 0; i < g.n_steps; i++) {
            const struct rank_step *s = &g.step[i];
            if (d == 0) loss[i] = s->loss, targets[i] = s->targets;
            CHECK_MSG(s->targets == targets[i] && s->targets < s->tokens, "step %d: %lld targets",
                      i + 1, (long long)s->targets);
            CHECK_MSG(fabs(s->loss - loss[i]) <= 1e-5 * loss[i],
                      "sp %d dp %d step %d: %.9g, one rank %.9g", degrees[d][0], degrees[d][1],
                      i + 1, s->loss, loss[i]);
        }
        free(o);
    }
    CHECK(loss[STEPS - 1] < loss[0]);
}

/* Checks that the reference of a verify job, which is built without the packer, agrees with every
 * packing. */
static void test_verify(void)
{
    for (int packing = 0; packing < PACKING_N; packing++) {
        struct order *o = make_order(JOB_VERIFY, 2, 1);
        mixed(o);
        o->spec.data.packing = packing;
        run(o);
        CHECK(all_ok(&g) && flag(g.result, "equal"));
        CHECK(number(g.result, "targets") > 0);
        CHECK(number(g.result, "targets") < number(g.result, "tokens"));
        free(o);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void write_file(const char *name, const void *data, size_t size)
{
    char path[200];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    CHECK(!file_write(path, data, size, &e));
}

static void write_files(void)
{
    char *out = malloc(1 << 16), *at = out;
    /* the number of bytes, each followed by 256 */
    static const int lengths[] = {4, 10, 20, 0, 40};
    for (int i = 0; i < 5; i++)
        at += sprintf(at, "{\"text\":\"%.*s\"}\n", lengths[i],
                      "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
    write_file("lines.jsonl", out, (size_t)(at - out));
    at = out;
    for (int i = 0; i < 60; i++)
        at += sprintf(at, "{\"prompt\":\"double %d: \",\"completion\":\"%d%s\"}\n", i * 7 % 50,
                      i * 14 % 100, i % 9 ? "" : ", and so on and on until it is a long one");
    for (int i = 0; i < 20; i++)
        at += sprintf(at, "{\"input_ids\":[%d,7,8,%d,299],\"labels\":[-100,-100,8,%d,299]}\n", i,
                      i + 20, i + 20);
    write_file("pairs.jsonl", out, (size_t)(at - out));
    const char *const two = "{\"prompt\":\"a\",\"chosen\":\"bc\",\"rejected\":\"d\"}\n"
                            "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"cde\"}\n";
    write_file("two.jsonl", two, strlen(two));
    write_file("empty.jsonl", "{\"text\":\"\"}\n", 12);
    const char *const labels = "{\"input_ids\":[7,8],\"labels\":[7,-100]}\n";
    write_file("labels.jsonl", labels, strlen(labels));
    uint16_t ids[600];
    for (int i = 0; i < 600; i++) ids[i] = (uint16_t)(i % 13 == 12 ? 299 : 40 + i * i % 30);
    write_file("shard.bin", ids, sizeof ids);
    at = out;
    for (int i = 0; i < 40; i++) at += sprintf(at, "a line of text, number %d; ", i);
    write_file("text.jsonl", out, (size_t)(at - out));
    free(out);
}

int main(int argc, char **argv)
{
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_prepare.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    write_files();
    RUN(test_counts);
    RUN(test_windows);
    RUN(test_forms);
    RUN(test_refuses);
    RUN(test_no_target);
    RUN(test_ranks_equal);
    RUN(test_verify);
    struct err e = {0};
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("prepare");
}
