/* Checks the table of the job spec, its defaults, its checks and its suggestions, and the
 * transition table of jobs. */
#include <math.h>
#include <stdlib.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/nearest.h"
#include "api/core/trade.h"
#include "tests/lib/test.h"
#include "worker/plan/check.h"
#include "worker/plan/rules.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"

static void put(struct job_spec *s, spec_ref *ref, const char *text)
{
    CHECK(!spec_intern(s, text, strlen(text), ref));
}

/* Makes a small job of this kind. job_check accepts it. */
static void good(struct job_spec *s, enum job_kind kind)
{
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = kind;
    s->model.shape.width = 64;
    s->model.shape.n_layers = 2;
    s->model.shape.n_heads = 4;
    s->model.shape.ffn_width = 128;
    if (kind == JOB_TRAIN || kind == JOB_VERIFY) {
        put(s, &s->data.train[0].path, "a.txt");
        s->data.n_train = 1;
    }
    if (kind == JOB_SCORE || kind == JOB_EMBED) put(s, &s->input.source.path, "b.txt");
    if (kind == JOB_GENERATE) put(s, &s->input.prompt, "once upon");
    if (kind != JOB_GENERATE) s->data.seq_len = 256;
    if (kind == JOB_TRAIN) s->train.steps = 10;
}

static void test_fields(void)
{
    struct job_spec s;
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    for (const struct field *f = spec_fields; f->path; f++) {
        CHECK_MSG(spec_field(f->path) == f, "%s is there twice", f->path);
        CHECK_MSG(f->help && *f->help, "%s has no help", f->path);
        CHECK(f->type != FIELD_ENUM || f->words);
        CHECK(f->type != FIELD_STRING || f->text);
        CHECK(f->offset < offsetof(struct job_spec, text));
        CHECK(!f->kinds || !strcmp(spec_suggest(f->path, f->kinds), f->path));
    }
    CHECK(!spec_field("train.stepz"));
    CHECK(s.optim.lr == 3e-4 && s.checkpoint.keep == 3 && s.limits.restarts == 3);
    CHECK_STR(spec_text(&s, s.resources.device), "cpu");
    CHECK_STR(spec_text(&s, 0), "");
    CHECK_STR(spec_text(&s, 99999999), "");
}

static void test_suggest(void)
{
    static const char *const pairs[][2] = {
        {"train.step", "train.steps"},
        {"optim.learning_rate", NULL},
        {"data.seqlen", "data.seq_len"},
        {"seq_len", "data.seq_len"},
        {"paralel", "parallel"},
        {"kidn", "kind"},
        {"optim.beta", "optim.betas"},
        {"data.steps", "train.steps"},
        {"eval.every", "eval.every_steps"},
        {"checkpoint.every", "checkpoint.every_steps"},
        {"memory.offload_place", "memory.offload"},
        {"train.seed", "seed"},
        {"train.batches", NULL}, /* infer.batch is of other kinds */
        {"zzzzzzzz", NULL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *got = spec_suggest(pairs[i][0], 1u << JOB_TRAIN), *want = pairs[i][1];
        CHECK_MSG(want ? got && !strcmp(got, want) : !got, "%s: got %s", pairs[i][0],
                  got ? got : "nothing");
    }
    CHECK(nearest_distance("submit", "submti") == 1 && nearest_distance("ls", "ls") == 0);
    CHECK(nearest_distance("abc", "") == 3 && nearest_distance("abcdef", "uvwxyz") == 6);
    CHECK(nearest_most("wiat") == 1 && nearest_most("ls") == 0 && nearest_most("submti") == 2);
    CHECK_STR(spec_field_nearest(shape_fields, "model.config.hiden_size"), "hidden_size");
    CHECK(!spec_field_nearest(shape_fields, "model.config.zzzzzzzz"));
    /* this is a field that no person writes */
    CHECK(!spec_field_nearest(shape_fields, "model.config.tokenizr"));
    const char *got = spec_suggest("checkpoint.resume_path", ~0u);
    CHECK(!got || strcmp(got, "checkpoint.resume_path")); /* internal fields are never offered */
    char longer[300];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    CHECK(!spec_suggest(longer, ~0u));
}

/* Checks that no job is told of a field that its kind refuses. */
static void test_suggests_own(void)
{
    int n = 0;
    for (const struct field *f = spec_fields; f->path; f++) {
        const uint32_t kind = 1u << (f - spec_fields) % JOB_KIND_N;
        const char *dot = strrchr(f->path, '.');
        char path[128];
        snprintf(path, sizeof path, "none.%s", dot ? dot + 1 : f->path);
        const char *got = spec_suggest(path, kind);
        CHECK_MSG(!got || spec_kinds(got) & kind, "%s: %s", path, got);
        n += got != NULL;
    }
    CHECK(n > 40 && !spec_kinds("zzz") && spec_kinds("optim.name") == spec_kinds("optim"));
}

/* Checks the table of field names that other training programs use. These names must not be fields
 * of our spec. If the table translates a name to a field of our spec, this field must exist. */
static void test_trade(void)
{
    int n = 0;
    for (const struct trade_word *t; (t = trade_row(n)); n++) {
        CHECK_MSG(!spec_field(t->word) && !!t->field != !!t->why, "%s", t->word);
        CHECK_MSG(trade_find(t->word) == t, "%s is there twice", t->word);
        if (t->field) CHECK_MSG(spec_kinds(t->field), "%s", t->field);
    }
    CHECK(n >= 40);
    CHECK_STR(trade_find("train.Num-Train-Epochs")->field, "train.passes");
    CHECK_STR(trade_find("adapter.r")->field, "adapter.rank"); /* a word with a dot is a path */
    CHECK(!trade_find("r") && !trade_find("model.config.bias") && trade_find("adapter.bias")->why);
    CHECK_STR(trade_find("data.train.12.dataset")->field, "data.train.path");
    CHECK_STR(trade_find("eval.steps")->field, "eval.every_steps");
    CHECK_STR(trade_find("data.train.x.dataset")->field, "data.train");
    CHECK(!trade_find("steps") && !trade_find("data.train.1.dataset.x"));
    CHECK_STR(trade_find("model.load-in-4bit")->more, " \"int4\"");
    CHECK(!trade_find("train.lorax") && !trade_find("lor") && !trade_find(""));
    CHECK(!spec_suggest("lora", ~0u) && !spec_suggest("dpo", ~0u) && !spec_suggest("fsdp", ~0u));
}

static bool takes_word(const struct field *f, const char *word)
{
    for (const char *const *w = f->words; *w; w++)
        if (!strcmp(*w, word)) return true;
    return false;
}

/* Checks the values that other programs have for our fields: none is a word of the field, the word
 * to write in its place is one, and every other field that is named there exists. */
static void test_trade_values(void)
{
    int n = 0;
    for (const struct trade_value *v; (v = trade_value_row(n)); n++) {
        const struct field *f = spec_field(v->field);
        char word[32];
        if (!f) f = spec_constants; /* optim.name is the only one */
        CHECK_STR(f->path, v->field);
        CHECK_MSG(trade_value_find(v->field, v->word) == v, "%s is there twice", v->word);
        CHECK_MSG(sscanf(v->write, "\"%31[^\"]\"", word) == 1, "%s", v->write);
        CHECK_MSG(takes_word(f, word) && !takes_word(f, v->word), "%s: %s", v->word, v->write);
        for (const char *p = v->write; (p = strchr(p, '.')); p++) {
            const char *from = p;
            char path[64];
            while (from > v->write && from[-1] != ' ') from--;
            CHECK(sscanf(from, "%63[a-z_.]", path) == 1);
            CHECK_MSG(spec_field(path), "%s: %s", v->write, path);
        }
    }
    CHECK(n >= 40 && trade_value_find("kind", "Fine-Tune"));
    CHECK(!trade_value_find("kind", "tuning") && !trade_value_find("name", "sft"));
}

static void test_text_table(void)
{
    struct job_spec s;
    spec_ref r = 7;
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    CHECK(!spec_intern(&s, "", 0, &r) && r == 0);
    uint32_t before = s.text_used;
    CHECK(!spec_intern(&s, "abc", 3, &r) && r == before && s.text_used == before + 4);
    char *big = calloc(1, SPEC_TEXT_SIZE);
    memset(big, 'x', SPEC_TEXT_SIZE - 1);
    CHECK(spec_intern(&s, big, SPEC_TEXT_SIZE - 1, &r)); /* 64 KiB are not left */
    uint32_t room = SPEC_TEXT_SIZE - s.text_used;
    CHECK(spec_intern(&s, big, room, &r));
    CHECK(!spec_intern(&s, big, room - 1, &r));
    CHECK(s.text_used == SPEC_TEXT_SIZE && spec_intern(&s, "a", 1, &r));
    free(big);
}

static void test_defaults_of_kinds(void)
{
    struct job_spec s, again;
    struct err e;
    for (int k = 0; k < JOB_KIND_N; k++) {
        if (k == JOB_MERGE) continue;
        good(&s, k);
        CHECK_MSG(!family_check(&s, &e), "%s: %s", spec_kind_name(k), e.text);
        CHECK(s.resources.ranks == 1 && s.parallel.sp == 1);
        CHECK(s.parallel.strategy == STRATEGY_LOCAL && s.parallel.layout == LAYOUT_CONTIGUOUS);
        CHECK(s.model.shape.n_kv_heads == 4 && s.model.shape.head_dim == 16);
        again = s;
        CHECK(!family_check(&again, &e) && !memcmp(&s, &again, sizeof s)); /* idempotent */
    }
    good(&s, JOB_TRAIN);
    s.parallel.sp = 4;
    CHECK(!family_check(&s, &e));
    CHECK(s.resources.ranks == 4 && s.parallel.strategy == STRATEGY_RSA);
    CHECK(s.parallel.layout == LAYOUT_ZIGZAG && s.schedule.warmup_steps == 1);
    good(&s, JOB_TRAIN);
    s.resources.ranks = 8;
    s.determinism = DET_RANKS;
    CHECK(!family_check(&s, &e));
    CHECK(s.parallel.sp == 8 && s.parallel.layout == LAYOUT_CONTIGUOUS);
    good(&s, JOB_GENERATE);
    CHECK(!family_check(&s, &e) && s.data.seq_len == 9 + 256);
}

/* Checks tolerances. If the job sets no tolerance, the job's precision must determine it. A
 * tolerance that the job sets must not be changed. */
static void test_tolerances(void)
{
    struct job_spec s;
    struct err e;
    good(&s, JOB_VERIFY);
    CHECK(!family_check(&s, &e) && s.verify.loss_rel == 1e-6 && s.verify.grad_rel_l2 == 1e-5);
    good(&s, JOB_VERIFY);
    s.precision.params = PRECISION_BF16;
    CHECK(!family_check(&s, &e) && s.verify.loss_rel == 2e-3 && s.verify.grad_rel_l2 == 2e-2);
    good(&s, JOB_VERIFY);
    s.precision.params = PRECISION_FP16;
    CHECK(!family_check(&s, &e) && s.verify.loss_rel == 2.5e-4 && s.verify.grad_rel_l2 == 4e-3);
    good(&s, JOB_VERIFY);
    s.precision.params = PRECISION_BF16;
    s.verify.loss_rel = 0;
    s.verify.grad_rel_l2 = 1e-7;
    CHECK(!family_check(&s, &e) && s.verify.loss_rel == 0 && s.verify.grad_rel_l2 == 1e-7);
}

/* Breaks one field of a good job. The error must name that field. */
static void break_one(struct job_spec *s, int i)
{
    switch (i) {
    case 0: s->model.shape.n_layers = 0; break;
    case 1: s->model.shape.n_kv_heads = 3; break;
    case 2: s->model.shape.head_dim = 15; break;
    case 3: s->data.seq_len = 0; break;
    case 4: s->data.n_train = 0; break;
    case 5: s->train.steps = 0; break;
    case 6: s->train.tokens = 5, s->train.passes = 1; break;
    case 7: s->parallel.sp = 2, s->resources.ranks = 3; break;
    case 8: s->parallel.sp = 2, s->parallel.strategy = STRATEGY_LOCAL; break;
    case 9:
        s->parallel.sp = 2, s->determinism = DET_RANKS, s->parallel.layout = LAYOUT_ZIGZAG;
        break;
    case 10: s->parallel.sp = 3, s->determinism = DET_RANKS; break;
    case 11: s->optim.lr = NAN; break;
    case 12: s->optim.lr = -1; break;
    case 13: s->data.seq_len = JOB_MAX_SEQ + 1; break;
    case 14: s->parallel.layout = LAYOUT_N; break;
    case 15: s->resources.threads = 0; break;
    case 16: s->data.train[0].path = 60000; break;
    case 17: s->model.shape.width = 66, s->model.shape.n_heads = 4; break;
    case 18: s->schedule.warmup_steps = 11; break;
    case 19: s->parallel.sp = 64, s->data.seq_len = 8; break;
    case 20: s->n_labels = SPEC_LABELS + 1; break;
    case 21: s->text_used = 0; break;
    case 22: put(s, &s->resources.device, "tpu"); break;
    case 23: s->checkpoint.resume = RESUME_PATH; break;
    case 24: s->model.shape.vocab = 1; break;
    case 25:
        s->model.shape.width = 4096, s->model.shape.n_heads = s->model.shape.n_kv_heads = 1;
        break;
    case 26: s->parallel.dp = 2, s->train.global_batch = 3; break;
    case 27: s->model.shape.width = 0; break;
    case 28: s->resources.ranks = 4, s->parallel.zero_group = 3; break;
    case 29: s->resources.ranks = 4, s->parallel.zero_group = 8; break;
    case 30: s->resources.ranks = 4, s->parallel.zero_group = 2, s->parallel.zero = 0; break;
    case 31:
        s->parallel.sp = 2, s->parallel.dp = s->train.global_batch = 3, s->parallel.zero_group = 3;
        s->determinism = DET_RANKS;
        break;
    case 32: s->parallel.zero_group = -1; break;
    }
}

static void test_rules(void)
{
    static const char *const fields[] = {
        "model.config.num_hidden_layers",
        "model.config.num_key_value_heads",
        "model.config.head_dim",
        "data.seq_len",
        "data.train",
        "train.steps",
        "train.tokens",
        "parallel.sp",
        "parallel.strategy",
        "parallel.layout",
        "parallel.sp",
        "optim.lr",
        "optim.lr",
        "data.seq_len",
        "parallel.layout",
        "resources.threads",
        "data.train.0",
        "model.config.num_attention_heads",
        "schedule.warmup_steps",
        "parallel.sp",
        "labels",
        "",
        "resources.device",
        "checkpoint.resume",
        "model.config.vocab_size",
        "model.config.head_dim",
        "train.global_batch",
        "model", /* the width is missing, because there are neither sizes nor a path */
        "parallel.zero_group",
        "parallel.zero_group",
        "parallel.zero_group",
        "parallel.zero_group",
        "parallel.zero_group",
    };
    struct job_spec s;
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++) {
        struct err e = {0};
        good(&s, JOB_TRAIN);
        break_one(&s, i);
        CHECK_MSG(family_check(&s, &e) == -1, "case %d (%s) passed", i, fields[i]);
        CHECK_STR(e.field, fields[i]);
        CHECK_MSG(*e.text, "case %d says nothing", i);
    }
}

/* Checks groups that are refused, with the words of the error, and groups that are accepted. */
static void test_zero_group(void)
{
    static const struct {
        int sp, dp, zero, group, bits;
        const char *says; /* NULL means that the group is accepted */
    } all[] = {{2, 2, 1, 4, 1, NULL},
               {2, 3, 3, 3, 0, NULL},
               {2, 3, 2, 6, 1, NULL}, /* one group */
               {2, 3, 2, 2, 1, NULL},
               {2, 2, 2, 1, 1, NULL},
               {2, 2, 0, 4, 0, NULL},
               {2, 3, 2, 4, 0, "zero_group 4 does not divide the 6 ranks (parallel.sp 2 times"},
               {2, 2, 2, 8, 0, "use a divisor of 4"},
               {2, 2, 0, 2, 0, "set parallel.zero to 1, 2 or 3"},
               {2, 3, 3, 3, 1, "determinism \"ranks\": use 1, 2, 4 or another power of two"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct job_spec s;
        struct err e = {0};
        good(&s, JOB_TRAIN);
        s.parallel.sp = all[i].sp;
        s.parallel.dp = all[i].dp;
        s.train.global_batch = all[i].dp;
        s.parallel.zero = all[i].zero;
        s.parallel.zero_group = all[i].group;
        if (all[i].bits) s.determinism = DET_RANKS;
        const int rc = family_check(&s, &e);
        CHECK_MSG(rc == (all[i].says ? -1 : 0), "case %zu: %s", i, e.text);
        if (!all[i].says || !rc) continue;
        CHECK_STR(e.field, "parallel.zero_group");
        CHECK_MSG(e.code == ERR_INVALID && strstr(e.text, all[i].says), "%s", e.text);
    }
}

/* Makes one field of a job's data invalid. The parameter `i` chooses the field; for the smallest
 * values of i, the data remains valid. */
static void break_data(struct job_spec *s, int i)
{
    struct spec_source *t = s->data.train;
    s->data.n_train = 2;
    t[1] = t[0];
    t[0].eod = t[1].eod = -1;
    switch (i) {
    case 0: t[0].weight = 0.5; break;
    case 1: t[0].weight = 1, t[1].weight = 1e-4; break;
    case 2: t[1].weight = -1; break;
    case 3: t[0].weight = NAN, t[1].weight = 1; break;
    case 4: t[1].format = DATA_TEXT, t[1].eod = 7; break;
    case 5: t[1].format = DATA_MEGATRON, t[1].eod = 7; break;
    case 6: t[1].format = DATA_NPY, t[1].eod = s->model.shape.vocab; break;
    case 7: t[0].format = DATA_OPENAI_BATCH; break;
    case 8: t[0].format = t[1].format = DATA_TEXT, s->data.loss_on = LOSS_ON_COMPLETION; break;
    case 9: s->eval.data[s->eval.n_data++] = (struct spec_source){.eod = -1}; break;
    case 10: s->eval.data[s->eval.n_data++] = t[0], s->eval.data[0].weight = 1; break;
    case 11: s->eval.n_data = SPEC_SOURCES + 1; break;
    case 12: t[0].weight = 999, t[1].weight = 1; break;
    case 13: t[1].format = DATA_LLMC, t[1].eod = s->model.shape.vocab - 1; break;
    case 14: t[1].format = DATA_JSONL, s->data.loss_on = LOSS_ON_COMPLETION; break;
    case 15: s->eval.data[s->eval.n_data++] = t[0]; break;
    }
}

/* A serve job has the rules of a batch of requests. Its tokens and its requests are bounded. */
static void break_serve(struct job_spec *s, int i)
{
    good(s, JOB_SERVE);
    s->data.seq_len = 512;
    s->serve.max_requests = 2;
    switch (i) {
    case 0: s->data.seq_len = 0; break;
    case 1: s->data.seq_len = 100; break;
    case 2: s->sampling.n = 2, s->sampling.temperature = 1; break;
    case 3: s->parallel.strategy = STRATEGY_ULYSSES, s->resources.ranks = s->parallel.sp = 2; break;
    case 4:
        s->model.shape.rope = (struct shape_rope){.kind = ROPE_DYNAMIC, .factor = 2};
        s->model.shape.max_pos = 1024;
        break;
    case 5: s->serve.max_requests = JOB_MAX_BATCH + 1; break;
    case 6: s->serve.queue = -1; break;
    case 7: s->model.shape.family = FAMILY_BERT, s->serve.task = SERVE_TASK_TEXT; break;
    case 8: s->model.shape.family = FAMILY_LATTE; break;
    case 9: s->serve.cache_tokens = 513; break;
    case 10: s->serve.cache_tokens = 448; break;
    case 11: s->data.seq_len = 513, s->serve.cache_tokens = 512; break;
    case 12: s->serve.prefill_tokens = 100; break;
    case 13: s->serve.prefill_tokens = 0; break;
    case 14: s->serve.cache_tokens = (int64_t)1 << 50; break;
    case 15: s->embed.normalize = 0; break;
    case 16: s->embed.pooling = POOLING_MEAN; break;
    case 17: s->serve.task = SERVE_TASK_EMBED, s->sampling.top_k = 4; break;
    case 18: s->serve.task = SERVE_TASK_TEXT, s->embed.pooling = POOLING_MEAN; break;
    default: break;
    }
}

static void test_serve_rules(void)
{
    static const char *const fields[] = {"data.seq_len",
                                         "data.seq_len",
                                         "sampling.n",
                                         "parallel.strategy",
                                         "serve.max_requests",
                                         "serve.max_requests",
                                         "serve.queue",
                                         "kind",
                                         "kind",
                                         "serve.cache_tokens",
                                         "serve.cache_tokens",
                                         "serve.cache_tokens",
                                         "serve.prefill_tokens",
                                         "serve.prefill_tokens",
                                         "serve.cache_tokens",
                                         "embed.normalize",
                                         "serve.max_requests",
                                         "sampling.top_k",
                                         "embed.pooling"};
    struct job_spec s;
    struct err e;
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++) {
        e = (struct err){0};
        break_serve(&s, i);
        CHECK_MSG(family_check(&s, &e) == -1, "case %d passes", i);
        CHECK_MSG(!strcmp(e.field, fields[i]), "case %d: field %s: %s", i, e.field, e.text);
    }
    break_serve(&s, -1);
    s.sampling.top_k = 5, s.sampling.logprobs = 2; /* the values of a request that says none */
    CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    s.serve.cache_tokens = 512, s.serve.prefill_tokens = 64; /* one sequence, in small pieces */
    CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    s.serve.max_requests = 0; /* the plan decides */
    CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    CHECK(rules_batch(&s, &e) == 0);
    put(&s, &s.resources.device, "cuda");
    CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    CHECK(rules_batch(&s, &e) == 0); /* with pages, rows do not depend on each other */
    s.model.shape.rope.kind = ROPE_LONGROPE, s.serve.max_requests = 2;
    CHECK(rules_batch(&s, &e) == -1 && !strcmp(e.field, "serve.max_requests"));
    s.model.shape.rope.kind = ROPE_DEFAULT;
    break_serve(&s, -1);
    s.model.shape.family = FAMILY_TNL;
    s.resources.ranks = s.parallel.sp = 2;
    for (int i = 0; i < 2; i++) /* the first call chooses a strategy */
        CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    CHECK(spec_needs(&s, 6));
    CHECK_STR(spec_needs(&s, 6), "kind \"serve\"");
    CHECK(!spec_needs(&s, 7));
}

static void test_data_rules(void)
{
    static const char *const fields[] = {"data.train.1.weight",
                                         "data.train.1.weight",
                                         "data.train.1.weight",
                                         "data.train.0.weight",
                                         "data.train.1.eod",
                                         "data.train.1.eod",
                                         "data.train.1.eod",
                                         "data.train.0",
                                         "data.loss_on",
                                         "eval.data.0",
                                         "eval.data.0",
                                         "eval.data",
                                         NULL,
                                         NULL,
                                         NULL,
                                         NULL};
    struct job_spec s;
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++) {
        struct err e = {0};
        good(&s, JOB_TRAIN);
        break_data(&s, i);
        int rc = family_check(&s, &e);
        CHECK_MSG(rc == (fields[i] ? -1 : 0), "case %d: %s", i, e.text);
        if (fields[i]) CHECK_STR(e.field, fields[i]);
    }
    for (int packing = PACKING_CONCAT; packing < PACKING_N; packing++)
        for (int over = OVERLONG_AUTO; over < OVERLONG_N; over++) {
            struct err e = {0};
            good(&s, JOB_SCORE);
            s.data.packing = packing, s.data.overlong = over;
            const bool fine = packing != PACKING_NONE && over <= OVERLONG_SPLIT &&
                              over != OVERLONG_ERROR;
            CHECK_MSG(family_check(&s, &e) == (fine ? 0 : -1), "%d %d: %s", packing, over, e.text);
        }
}

/* Tells whether the first n bytes of text contain the word. */
static bool has_word(const char *text, size_t n, const char *word)
{
    const size_t len = strlen(word);
    for (size_t i = 0; i + len <= n; i++)
        if (!strncmp(text + i, word, len) && (!i || text[i - 1] == ' ') &&
            (i + len == n || strchr(" ,;.", text[i + len])))
            return true;
    return false;
}

static bool takes(enum job_kind kind, const struct field *f, int value, struct err *e)
{
    struct job_spec s;
    good(&s, kind);
    *(int32_t *)((char *)&s + f->offset) = value;
    return family_check(&s, e) == 0;
}

/* Checks values that only some kinds of job accept. The error must name the value, the kind, and
 * the values that the kind accepts. The table of fields must list the same values for each
 * kind. */
static void test_values_by_kind(void)
{
    static const char *const paths[] = {"data.packing", "data.overlong"};
    for (int i = 0; i < 4; i++) {
        const struct field *f = spec_field(paths[i / 2]);
        const bool score = i % 2;
        const enum job_kind kind = score ? JOB_SCORE : JOB_EMBED;
        const char *help = strstr(f->help, "A score takes "), *embed = strstr(help, ", embed ");
        const char *part = score ? help + 13 : embed + 7;
        const size_t n = score ? (size_t)(embed - part) : strlen(part);
        char want[64];
        for (int k = 0; f->words[k]; k++) {
            struct err e = {0}, other;
            const bool taken = takes(kind, f, k, &e);
            CHECK_MSG(has_word(part, n, f->words[k]) == taken, "%s %s: %s", f->path, f->words[k],
                      f->help);
            if (taken) continue;
            snprintf(want, sizeof want, "%s \"%s\": %s job ", f->path, f->words[k],
                     score ? "a score" : "an embed");
            CHECK_MSG(!strcmp(e.field, f->path) && !strncmp(e.text, want, strlen(want)), "%s",
                      e.text);
            const char *list = strstr(e.text, ": it takes ");
            for (int m = 0; list && f->words[m]; m++)
                CHECK_MSG(has_word(list, strlen(list), f->words[m]) == takes(kind, f, m, &other),
                          "%s: %s", f->words[m], e.text);
            CHECK(list);
        }
    }
}

/* Checks that TCP is encrypted unless the job turns parallel.tls off. Also checks that
 * parallel.tls is off for shared memory. */
static void test_tls_is_for_tcp(void)
{
    struct job_spec s;
    struct err e = {0};
    for (int t = 0; t < TRANSPORT_NCCL; t++)
        for (int tls = 0; tls < 2; tls++) {
            good(&s, JOB_TRAIN);
            CHECK(s.parallel.tls == 1);
            s.parallel.transport = t;
            s.parallel.tls = tls;
            CHECK(family_check(&s, &e) == 0);
            CHECK(s.parallel.tls == (tls && t != TRANSPORT_SHM));
        }
}

/* Checks that NCCL is only for GPUs, that sockets cannot carry data on GPUs, and that no transport
 * of GPUs is encrypted. */
static void test_transports_of_gpus(void)
{
    struct job_spec s;
    for (int gpu = 0; gpu < 2; gpu++)
        for (int t = 0; t < TRANSPORT_N; t++) {
            struct err e = {0};
            good(&s, JOB_TRAIN);
            if (gpu) put(&s, &s.resources.device, "cuda");
            s.resources.ranks = s.parallel.sp = 2;
            s.parallel.transport = t;
            const bool right = t != (gpu ? TRANSPORT_TCP : TRANSPORT_NCCL);
            CHECK((family_check(&s, &e) == 0) == right);
            if (!right) CHECK_STR(e.field, "parallel.transport");
            if (right) CHECK(s.parallel.tls == (!gpu && t != TRANSPORT_SHM));
        }
}

/* Checks, for every row of the table, that numbers outside of the row's range are refused. */
static void test_ranges(void)
{
    struct job_spec s;
    for (const struct field *f = spec_fields; f->path; f++) {
        if (f->type == FIELD_STRING || f->type == FIELD_ENUM || !f->kinds) continue;
        for (int side = 0; side < 2; side++) {
            double bad = side ? f->max + 1 : f->min - 1;
            struct err e = {0};
            if (bad == f->fallback) continue;
            good(&s, JOB_TRAIN);
            char *at = (char *)&s + f->offset;
            if (f->type == FIELD_INT)
                *(int64_t *)at = (int64_t)bad;
            else if (f->type == FIELD_DOUBLE)
                *(double *)at = bad;
            else if (bad > INT32_MAX)
                continue;
            else
                *(int32_t *)at = (int32_t)bad;
            CHECK_MSG(family_check(&s, &e) == -1, "%s = %g passed", f->path, bad);
            CHECK_STR(e.field, f->path);
        }
    }
}

static void test_transitions(void)
{
    for (int s = 0; s < JOB_STATE_N; s++)
        for (int ev = 0; ev < JOB_EVENT_N; ev++) {
            int next = job_step(s, ev);
            CHECK(next >= -1 && next < JOB_STATE_N);
            if (job_final(s)) CHECK(next == -1); /* every final state is unchanged */
            if (s == JOB_STOPPING) CHECK(next == -1 || next == JOB_STOPPING);
            /* Only DONE and PREPARED give slots back. */
            bool holds = s == JOB_STARTING || s == JOB_RUNNING;
            bool frees = next == JOB_QUEUED || (next >= 0 && job_final(next));
            if (holds && frees) CHECK(ev == EV_DONE || ev == EV_PREPARED);
            if (ev == EV_CANCEL && !job_final(s))
                CHECK(next == JOB_CANCELLED || next == JOB_STOPPING);
        }
    CHECK(job_step(JOB_QUEUED, EV_ASSIGN) == JOB_STARTING);
    CHECK(job_step(JOB_RUNNING, EV_DONE) == JOB_SUCCEEDED);
    CHECK(job_step(JOB_STARTING, EV_DONE) == -1);
}

/* Checks by random walks over the transitions that from every state that is not final a job can
 * reach a final state. */
static void test_walks(void)
{
    unsigned seed = 1;
    for (int walk = 0; walk < 2000; walk++) {
        int state = JOB_QUEUED;
        for (int i = 0; i < 40 && !job_final(state); i++) {
            int next = job_step(state, rand_r(&seed) % JOB_EVENT_N);
            if (next >= 0) state = next;
        }
        if (job_final(state)) continue;
        int next = job_step(state, EV_CANCEL);
        CHECK(next == JOB_CANCELLED || next == JOB_STOPPING);
    }
}

/* Sets a job with several prompts at a time. */
static void several(struct job_spec *s)
{
    s->input.prompt = 0, s->data.seq_len = 512, s->input.source.format = DATA_JSONL;
    put(s, &s->input.source.path, "b.jsonl");
    put(s, &s->input.source.text_key, "text");
    s->infer.batch = 3;
}

/* Makes a job that uses a model. Breaks one of its fields, or sets fields that contradict each
 * other. The error must name the field. */
static void break_infer(struct job_spec *s, int i)
{
    static char long_stop[STOP_SIZE + 2];
    memset(long_stop, 's', STOP_SIZE + 1);
    if (i < 10 || i > 20) good(s, JOB_GENERATE);
    if (i > 21) several(s);
    if (i >= 10 && i <= 20) good(s, i < 17 ? JOB_SCORE : i < 20 ? JOB_EMBED : JOB_TRAIN);
    switch (i) {
    case 0: s->sampling.temperature = 1, s->sampling.top_k = 259; break;
    case 1: s->sampling.min_tokens = 257; break;
    case 2: put(s, &s->sampling.stop[2], long_stop); break;
    case 3: s->sampling.top_k = 4; break;
    case 4: s->sampling.top_p = 0.5; break;
    case 5: s->sampling.min_p = 0.5; break;
    case 6: s->sampling.n = 2; break;
    case 7: s->input.source.format = DATA_OPENAI_BATCH; break;
    case 8:
        s->input.prompt = 0, s->data.seq_len = 512, s->input.source.format = DATA_OPENAI_BATCH;
        put(s, &s->input.source.path, "b.jsonl");
        s->sampling.temperature = 1, s->sampling.n = 2;
        break;
    case 9:
        s->input.prompt = 0, s->data.seq_len = 512, s->input.source.format = DATA_NPY;
        put(s, &s->input.source.path, "b.npy");
        break;
    case 10: s->input.source.format = DATA_OPENAI_BATCH; break;
    case 11: s->score.stride = 257; break;
    case 12: s->score.by_position_bucket = 257; break;
    case 13: s->score.by_position_bucket = 1, s->data.seq_len = 4097; break;
    case 14: s->data.packing = PACKING_NONE; break;
    case 15: s->data.overlong = OVERLONG_DROP; break;
    case 16: s->input.source.path = 0; break;
    case 17: s->data.packing = PACKING_BEST_FIT; break;
    case 18: s->data.overlong = OVERLONG_SPLIT; break;
    case 19: s->input.source.path = 0; break;
    case 20: s->data.train[0].format = DATA_OPENAI_BATCH; break;
    case 21: s->infer.batch = 2; break; /* a batch, but only one prompt */
    case 22: s->infer.batch = JOB_MAX_BATCH + 1; break;
    case 23: s->infer.batch = -1; break;
    case 24: s->input.source.format = DATA_TEXT; break;
    case 25: s->context.save = 1; break;
    case 26: put(s, &s->resources.device, "cuda"); break;
    case 27: s->model.shape.rope = (struct shape_rope){.kind = ROPE_DYNAMIC, .factor = 2}; break;
    }
}

/* Checks that "auto" is not resolved before the model at model.path has been described, because
 * the family decides these fields. */
static void test_auto_waits_for_the_family(void)
{
    static struct job_spec s;
    struct err e = {0};
    good(&s, JOB_GENERATE);
    put(&s, &s.model.path, "/m");
    s.model.shape.width = 0;
    s.parallel.sp = s.resources.ranks = 2;
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    CHECK(s.parallel.strategy == STRATEGY_AUTO && s.parallel.layout == LAYOUT_AUTO);
    s.model.shape.width = 64;
    s.model.shape.family = FAMILY_TNL;
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    CHECK(s.parallel.strategy == STRATEGY_LASP && s.parallel.layout == LAYOUT_CONTIGUOUS);
}

/* Checks axes whose product is not the number of ranks. An axis that the job does not set is 1. */
static void test_axes_of_other_ranks(void)
{
    static struct job_spec s;
    struct err e = {0};
    good(&s, JOB_TRAIN);
    s.resources.ranks = 1;
    s.parallel.sp = 2;
    s.parallel.dp = 0;
    CHECK(family_check(&s, &e) == -1);
    CHECK_STR(e.text, "parallel.sp 2 times parallel.dp 1 is not resources.ranks 1: set "
                      "resources.ranks 2, or leave it out; for 1 rank leave parallel out, which "
                      "is then chosen");
    good(&s, JOB_TRAIN);
    s.resources.ranks = 2;
    s.parallel.sp = s.parallel.dp = 0;
    s.parallel.pp = 4;
    CHECK(family_check(&s, &e) == -1);
    CHECK_MSG(strstr(e.text, "parallel.sp 1 times parallel.dp 1 times parallel.pp 4 is not "
                             "resources.ranks 2: set resources.ranks 4"),
              "%s", e.text);
    /* The error must not suggest more ranks than a job may have. */
    good(&s, JOB_TRAIN);
    s.resources.ranks = 2;
    s.parallel.sp = s.parallel.dp = JOB_MAX_RANKS;
    CHECK(family_check(&s, &e) == -1);
    CHECK_STR(e.text, "parallel.sp 64 times parallel.dp 64 is not resources.ranks 2: make them "
                      "smaller, 4096 ranks are more than the 64 of a job");
    s.parallel.sp = 32, s.parallel.dp = 2;
    CHECK(family_check(&s, &e) == -1 && strstr(e.text, "2: set resources.ranks 64, or leave it"));
}

/* Checks that the layout zigzag, which requires causal softmax attention, is refused for all
 * families without it. The error code and the sentence must be the same for all of them. */
static void test_zigzag_is_refused_in_one_sentence(void)
{
    static const struct {
        int32_t family, experts;
        const char *has;
    } others[] = {{FAMILY_RETNET, 0, "linear attention"},
                  {FAMILY_MINIMAX, 2, "linear attention"},
                  {FAMILY_BERT, 0, "attention that reads both ways"}};
    static struct job_spec s;
    char want[160];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct err e = {0};
        good(&s, JOB_TRAIN);
        s.model.shape.family = others[i].family;
        s.model.shape.vocab = 259;
        s.model.shape.n_experts = s.model.shape.experts_per_token = others[i].experts;
        s.parallel.sp = 2;
        s.parallel.layout = LAYOUT_ZIGZAG;
        snprintf(
            want, sizeof want,
            "parallel.layout \"zigzag\" balances causal softmax attention, and this family has "
            "%s: use \"contiguous\"",
            others[i].has);
        CHECK(family_check(&s, &e) == -1 && e.code == ERR_UNSUPPORTED);
        CHECK_STR(e.field, "parallel.layout");
        CHECK_STR(e.text, want);
    }
}

/* Checks the objective of Latte and STDiT 1.0, which predict noise as they were published. If
 * weights were trained with a different objective, the directory or the job must set this
 * objective. There are four ways to specify a model: model.config, a path, a path whose directory
 * gives the objective, and a path with an objective in the job. */
static void test_published_objectives(void)
{
    static const int32_t families[] = {FAMILY_LATTE, FAMILY_STDIT, FAMILY_STDIT3, FAMILY_T2D};
    static const int kinds[] = {JOB_GENERATE, JOB_TRAIN, JOB_VERIFY};
    static struct job_spec s;
    for (int f = 0; f < 4; f++)
        for (int k = 0; k < 3; k++)
            for (int way = 0; way < 4; way++) {
                struct err e = {0};
                good(&s, kinds[k]);
                s.model.shape.family = families[f];
                s.model.shape.vocab = 0;
                if (families[f] != FAMILY_LATTE)
                    s.model.shape.caption_channels = s.model.shape.text_len = 8;
                s.data.seq_len = 0;
                s.data.frames = 2, s.data.height = s.data.width = 4;
                s.input.prompt = 0;
                s.data.train[0].format = DATA_LATENTS;
                if (kinds[k] == JOB_GENERATE) {
                    put(&s, &s.input.source.path, "r.jsonl");
                    s.input.source.format = DATA_JSONL;
                }
                if (way) put(&s, &s.model.path, "/m");
                if (way == 2) s.model.shape.trained_on = OBJECTIVE_RECTIFIED_FLOW;
                if (way == 3) s.objective.type = OBJECTIVE_RECTIFIED_FLOW;
                const bool noise = f < 2 && way == 1;
                const int32_t want = noise ? OBJECTIVE_IDDPM : OBJECTIVE_RECTIFIED_FLOW;
                CHECK_MSG(!family_check(&s, &e), "%s", e.text);
                CHECK(s.objective.type == want && s.model.shape.trained_on == want);
                /* a node whose version does not know iddpm must not get the job */
                const char *needs = spec_needs(&s, 6);
                CHECK_MSG((needs && strstr(needs, "iddpm")) == noise, "%s", needs ? needs : "");
                CHECK(!family_check(&s, &e));
            }
}

/* Checks that terms of the loss of tokens and noise of their embeddings are refused for models
 * without tokens, whatever their objective, and taken for models with tokens. */
static void test_loss_terms(void)
{
    static const int32_t types[] = {OBJECTIVE_IDDPM, OBJECTIVE_RECTIFIED_FLOW};
    static const char *const fields[] = {"objective.label_smoothing", "objective.z_loss",
                                         "train.neftune_alpha"};
    static struct job_spec s;
    for (int i = 0; i < 6; i++) {
        struct err e = {0};
        good(&s, i % 2 ? JOB_TRAIN : JOB_VERIFY);
        s.objective.label_smoothing = 0.1, s.objective.z_loss = 1e-4, s.train.neftune_alpha = 5;
        CHECK_MSG(!family_check(&s, &e), "%s", e.text);
        s.model.shape.family = FAMILY_LATTE;
        s.model.shape.vocab = 0;
        s.data.seq_len = 0;
        s.data.frames = 2, s.data.height = s.data.width = 4;
        s.data.train[0].format = DATA_LATENTS;
        s.objective.type = types[i % 2];
        s.objective.label_smoothing = i / 2 == 0 ? 0.1 : 0;
        s.objective.z_loss = i / 2 == 1 ? 1e-4 : 0;
        s.train.neftune_alpha = i / 2 == 2 ? 5 : 0;
        CHECK(family_check(&s, &e) == -1 && strstr(e.text, "of tokens: leave it out"));
        CHECK_STR(e.field, fields[i / 2]);
    }
}

/* Checks that an objective of another family is refused with a fix. */
static void test_other_objective(void)
{
    static struct job_spec s;
    struct err e = {0};
    good(&s, JOB_TRAIN);
    s.model.shape.family = FAMILY_BERT;
    s.model.shape.vocab = 300;
    s.objective.type = OBJECTIVE_DPO;
    CHECK(family_check(&s, &e) == -1);
    CHECK_STR(e.field, "objective.type");
    CHECK_MSG(strstr(e.text, "trained on \"masked_lm\": leave objective.type out, or give a "
                             "model.path of another family"),
              "%s", e.text);
}

/* Checks a field of preferences in jobs that cannot learn them: the fix is to leave it out. */
static void test_cannot_pair(void)
{
    static const int kind[] = {JOB_TRAIN, JOB_GENERATE};
    static const char *const says[] = {"the type is \"masked_lm\": leave objective.beta out",
                                       "the type is \"causal_lm\": leave objective.beta out"};
    static struct job_spec s;
    for (int i = 0; i < 2; i++) {
        struct err e = {0};
        good(&s, kind[i]);
        if (!i) s.model.shape.family = FAMILY_BERT, s.model.shape.vocab = 300;
        s.objective.beta = 0.3;
        CHECK(family_check(&s, &e) == -1);
        CHECK_STR(e.field, "objective.beta");
        CHECK_MSG(strstr(e.text, says[i]), "%s", e.text);
    }
}

/* Checks fields that have no effect if the model predicts noise. Also checks weights that were
 * trained with a different objective. */
static void test_noise_rules(void)
{
    static const char *const fields[] = {
        "objective.type", "objective.transform", "objective.frame_mask.tail",
        "sampling.steps", "sampling.steps",      "objective.type",
        "objective.type", "sampling.eta"};
    static struct job_spec s;
    for (int i = 0; i < 9; i++) {
        struct err e = {0};
        good(&s, i < 3 ? JOB_TRAIN : JOB_GENERATE);
        s.model.shape.family = FAMILY_LATTE;
        s.model.shape.vocab = 0;
        s.data.seq_len = 0;
        s.data.frames = 2, s.data.height = s.data.width = 4;
        s.input.prompt = 0;
        s.data.train[0].format = DATA_LATENTS;
        if (s.kind == JOB_GENERATE) put(&s, &s.input.source.path, "r.jsonl");
        if (s.kind == JOB_GENERATE) s.input.source.format = DATA_JSONL;
        s.objective.type = i == 6 ? OBJECTIVE_MASKED_LM : OBJECTIVE_IDDPM;
        if (i == 0) s.model.shape.in_channels = s.model.shape.out_channels = 4;
        if (i == 1) s.objective.transform = 0;
        if (i == 2) s.objective.frame_mask[2] = 0.1;
        if (i == 3) s.sampling.steps = 1;
        if (i == 4) s.sampling.steps = 1001;
        if (i == 5) s.model.shape.trained_on = OBJECTIVE_RECTIFIED_FLOW;
        if (i == 7) s.objective.type = OBJECTIVE_RECTIFIED_FLOW;
        if (i >= 7) s.sampling.eta = 1;
        if (i == 8) { /* the published model, on nodes that know this objective */
            CHECK_MSG(!family_check(&s, &e), "%s", e.text);
            const char *needs = spec_needs(&s, 6);
            CHECK_MSG(needs && !spec_needs(&s, 7), "%s", needs ? needs : "");
            break;
        }
        CHECK(family_check(&s, &e) == -1);
        CHECK_MSG(!strcmp(e.field, fields[i]), "%d: %s: %s", i, e.field, e.text);
    }
}

static void test_infer_rules(void)
{
    static const char *const fields[] = {
        "sampling.top_k",
        "sampling.min_tokens",
        "sampling.stop.2",
        "sampling.top_k",
        "sampling.top_p",
        "sampling.min_p",
        "sampling.n",
        "input.format",
        "sampling.n",
        "input.format",
        "input",
        "score.stride",
        "score.by_position_bucket",
        "score.by_position_bucket",
        "data.packing",
        "data.overlong",
        "input",
        "data.packing",
        "data.overlong",
        "input",
        "data.train.0",
        "infer.batch",
        "infer.batch",
        "infer.batch",
        "infer.batch",
        "infer.batch",
        "infer.batch",
        "infer.batch",
    };
    struct job_spec s;
    struct err e;
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++) {
        e = (struct err){0};
        break_infer(&s, i);
        CHECK_MSG(family_check(&s, &e) == -1, "case %d passes", i);
        CHECK_MSG(!strcmp(e.field, fields[i]), "case %d: field %s: %s", i, e.field, e.text);
    }
    good(&s, JOB_GENERATE); /* and requests that are valid */
    s.sampling.temperature = 1, s.sampling.top_k = 258, s.sampling.n = 3, s.sampling.min_p = 0.1;
    CHECK(!family_check(&s, &e));
    good(&s, JOB_GENERATE);
    s.input.prompt = 0, s.data.seq_len = 512, s.input.source.format = DATA_OPENAI_BATCH;
    put(&s, &s.input.source.path, "b.jsonl");
    s.sampling.top_k = 5; /* sampling is greedy, unless a request changes this */
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    good(&s, JOB_GENERATE);
    several(&s);
    CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    good(&s, JOB_SCORE);
    s.score.stride = 256, s.score.by_position_bucket = 1, s.score.token_logprobs = 1;
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    s.data.packing = PACKING_BEST_FIT; /* Windows that have only complete documents do not
                                        * overlap. */
    CHECK(family_check(&s, &e) == -1 && !strcmp(e.field, "score.stride"));
    s.score.stride = 0;
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    CHECK_STR(spec_needs(&s, 6), "data.packing \"best_fit\" of a score");
    CHECK(!spec_needs(&s, 7));
    s.data.reset_positions = 0;
    CHECK(family_check(&s, &e) == -1 && !strcmp(e.field, "data.reset_positions"));
    s.data.document_mask = 0;
    CHECK(family_check(&s, &e) == -1 && !strcmp(e.field, "data.document_mask"));
    good(&s, JOB_EMBED);
    s.data.overlong = OVERLONG_TRUNCATE;
    CHECK_STR(spec_needs(&s, 6), "data.overlong \"truncate\" of an embed");
    good(&s, JOB_EMBED);
    s.data.packing = PACKING_NONE;
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
}

/* ---- training -------------------------------------------------------------------------------- */

static void refused(struct job_spec *s, const char *field)
{
    struct err e = {0};
    CHECK_MSG(family_check(s, &e) == -1 && e.code == ERR_INVALID && !strcmp(e.field, field),
              "want %s, got %s: %s", field, e.field, e.text);
}

static void test_stages(void)
{
    struct job_spec s;
    struct err e = {0};
    static const struct {
        struct spec_stage stage[2];
        const char *field;
    } bad[] = {
        {{{.from_step = 0}, {.from_step = 5}}, "stages.0.from_step"},
        {{{.from_step = 5}, {.from_step = 5}}, "stages.1.from_step"},
        {{{.from_step = 5}, {.from_step = 10}}, "stages.1.from_step"},
        {{{.from_step = 2, .seq_len = 3}, {.from_step = 5}}, "stages.0.seq_len"},
        {{{.from_step = 2, .seq_len = -1}, {.from_step = 5}}, "stages.0.seq_len"},
        {{{.from_step = 2, .seq_len = JOB_MAX_SEQ + 1}, {.from_step = 5}}, "stages.0.seq_len"},
        {{{.from_step = 2}, {.from_step = 5, .lr = NAN}}, "stages.1.lr"},
        {{{.from_step = 2}, {.from_step = 5, .rope_theta = -1}}, "stages.1.rope_theta"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        good(&s, JOB_TRAIN);
        s.parallel.sp = 4;
        s.n_stages = 2;
        memcpy(s.stages, bad[i].stage, sizeof bad[i].stage);
        refused(&s, bad[i].field);
    }
    good(&s, JOB_TRAIN);
    s.n_stages = SPEC_STAGES + 1;
    refused(&s, "stages");
    good(&s, JOB_TRAIN);
    s.n_stages = 2;
    s.stages[0] = (struct spec_stage){.from_step = 3, .seq_len = 512};
    s.stages[1] = (struct spec_stage){.from_step = 9, .lr = 1e-5};
    CHECK_MSG(family_check(&s, &e) == 0, "%s", e.text);
}

static void test_training_rules(void)
{
    struct job_spec s;
    struct err e = {0};
    good(&s, JOB_TRAIN);
    s.schedule.type = SCHEDULE_WSD;
    s.schedule.decay_shape = DECAY_EXPONENTIAL;
    CHECK_MSG(family_check(&s, &e) == 0, "%s", e.text);
    s.schedule.min_lr_ratio = 0;
    refused(&s, "schedule.min_lr_ratio");
    good(&s, JOB_TRAIN);
    s.eval.every_steps = 10;
    refused(&s, "eval.every_steps");
    s.eval.every_steps = 0, s.eval.patience = 2;
    refused(&s, "eval.patience"); /* without eval.data, it has no meaning */
    s.eval.every_steps = 10;
    s.eval.n_data = 1;
    refused(&s, "eval.data.0"); /* without a path */
    put(&s, &s.eval.data[0].path, "held.txt");
    CHECK_MSG(family_check(&s, &e) == 0, "%s", e.text);
    s.eval.every_steps = 0;
    refused(&s, "eval.patience"); /* no evaluation between steps */
    s.eval.n_data = SPEC_SOURCES + 1;
    refused(&s, "eval.data");
    good(&s, JOB_TRAIN);
    s.verify.first_step = 1;
    s.verify.max_tokens = 3;
    s.parallel.sp = 4;
    refused(&s, "verify.max_tokens");
    good(&s, JOB_TRAIN);
    s.eval.n_data = 1;
    s.eval.data[0] = s.data.train[0];
    s.eval.seq_len = s.data.seq_len + 1;
    refused(&s, "eval.seq_len");
    s.eval.n_data = 0;
    refused(&s, "eval.seq_len"); /* without eval.data, it has no meaning */
}

int main(void)
{
    RUN(test_fields);
    RUN(test_suggest);
    RUN(test_suggests_own);
    RUN(test_trade);
    RUN(test_trade_values);
    RUN(test_text_table);
    RUN(test_defaults_of_kinds);
    RUN(test_tolerances);
    RUN(test_rules);
    RUN(test_zero_group);
    RUN(test_auto_waits_for_the_family);
    RUN(test_axes_of_other_ranks);
    RUN(test_zigzag_is_refused_in_one_sentence);
    RUN(test_published_objectives);
    RUN(test_loss_terms);
    RUN(test_other_objective);
    RUN(test_cannot_pair);
    RUN(test_noise_rules);
    RUN(test_infer_rules);
    RUN(test_serve_rules);
    RUN(test_data_rules);
    RUN(test_values_by_kind);
    RUN(test_tls_is_for_tcp);
    RUN(test_transports_of_gpus);
    RUN(test_ranges);
    RUN(test_stages);
    RUN(test_training_rules);
    RUN(test_transitions);
    RUN(test_walks);
    return test_done("job");
}
