/* Runs complete jobs on model directories whose tokenizer is not supported. The jobs read tokens,
 * and must write the model's files. Text must be refused unless the job sets the byte tokenizer.
 * tests: needs seqrank */
/* Not under sanitizers: test_model_files and test_rank run the same code. */
#include "api/core/gang_start.h"
#include "tests/lib/gang.h"
#include "tests/lib/gguf_model.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/model_dir.h"
#include "worker/plan/check.h"

static struct gang g; /* static because it has 100 KiB, too many for the stack */

/* Makes a job of a model directory, which the rank itself describes. */
static struct order *own_order(enum job_kind kind, const char *name, const char *model)
{
    struct order *o = order_new(kind, scratch, "", name);
    struct job_spec *s = &o->spec;
    const struct spec_source ids = {tiny_text(s, in_dir("", "train.jsonl")), tiny_text(s, "text"),
                                    DATA_JSONL, 0, -1};
    s->model.shape = tiny_shape;
    s->model.shape.width = 0; /* not described */
    s->model.path = tiny_text(s, in_dir(model, ""));
    s->data.seq_len = 32;
    s->resources.ranks = s->resources.threads = 1;
    s->train.steps = 6;
    s->checkpoint.every_steps = 2;
    s->checkpoint.keep = 1;
    if (kind == JOB_TRAIN) {
        s->data.n_train = s->eval.n_data = 1;
        s->data.train[0] = s->eval.data[0] = ids;
        s->eval.at_end = 1;
    } else {
        s->input.source = ids;
    }
    return o;
}

static bool task_runs(struct order *o, int task)
{
    o->args.task = task;
    gang_start(&g, o->spec.resources.ranks, o);
    gang_run(&g);
    return !g.n_fails && g.result[0];
}

/* Prepares the job's data, if there is any that is not prepared yet, and runs the job. */
static bool job_runs(struct order *o)
{
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    if (o->spec.kind != JOB_GENERATE && !o->args.prepared_id[0]) {
        if (!task_runs(o, TASK_PREPARE)) return all_ok(&g);
        text(g.result, "prepared_id", o->args.prepared_id, sizeof o->args.prepared_id);
    }
    task_runs(o, TASK_RUN);
    return all_ok(&g);
}

static void check_passed(const char *hf)
{
    for (int i = 0; i < N_OWN; i++)
        CHECK_MSG(same_file("own", hf, own_files[i][0]), "%s", own_files[i][0]);
    check_config(hf, (const char *const[]){KEPT, "\"eos_token_id\":[7, 9]", NULL},
                 (const char *const[]){"256", NULL});
}

static char first_hf[1300];

/* Checks a training that reads tokens and writes the model's own files. The training is killed,
 * and its model directory is changed. It resumes from a checkpoint, which it later removes. The
 * files that it writes must still be the files that the model had at the start. */
static void test_train_on_ids(void)
{
    char ids[4096] = "";
    for (int i = 0, n = 0; i < 40; i++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, "{\"input_ids\":[%d,%d,%d,%d,%d,%d]}\n", i,
                      259, i + 1, 200, i + 2, 258);
    put("", "train.jsonl", ids);
    make_own("own");
    make_own("own2");
    struct order *o = own_order(JOB_TRAIN, "train", "own2");
    CHECK(!family_check(&o->spec, &e) && task_runs(o, TASK_PREPARE));
    text(g.result, "prepared_id", o->args.prepared_id, sizeof o->args.prepared_id);
    o->args.task = TASK_RUN;
    gang_start(&g, 1, o);
    g.kill_rank = 0;
    gang_run(&g);
    CHECK(WIFSIGNALED(g.status[0]) && g.n_checkpoints >= 1);
    CHECK(!rename(in_dir("own2", "tokenizer.json"), in_dir("own2", "gone")));
    put("own2", "README.md", "changed");
    o->args.epoch = 2;
    if (job_runs(o)) {
        CHECK(g.n_notes == 0 && g.step[0].step > 2);
        const struct gang_event *ev = gang_event(&g, EV_EVAL, 0);
        CHECK(ev && number(ev->json, "loss") > 0);
        CHECK_MSG(ev && !strstr(ev->json, "bits_per_byte"), "%s", ev ? ev->json : "");
        text(g.result, "hf", first_hf, sizeof first_hf);
        check_passed(first_hf);
    }
    free(o);
    /* The saved directory can be used as a model.path, as the original directory can. */
    o = own_order(JOB_TRAIN, "train2", first_hf);
    if (job_runs(o)) {
        char hf[1300];
        check_passed(text(g.result, "hf", hf, sizeof hf));
    }
    free(o);
}

/* Checks text for a model whose tokenizer.json is invalid. The job must fail before any step, and
 * the error must name a field. */
static void test_train_on_text(void)
{
    char hf[1300];
    put("", "text.jsonl", "{\"text\":\"some text, and some more of the text\"}\n");
    make_own("own");
    struct order *o = own_order(JOB_TRAIN, "text", "own");
    o->spec.data.train[0].path = tiny_text(&o->spec, in_dir("", "text.jsonl"));
    o->spec.eval.n_data = 0;
    CHECK(!family_check(&o->spec, &e) && !task_runs(o, TASK_PREPARE));
    CHECK_MSG(g.n_fails == 1 && g.fail.code == ERR_INVALID && g.n_steps == 0, "%s", g.fail.text);
    CHECK_MSG(!strcmp(g.fail.field, "model.path") && strstr(g.fail.text, "tokenizer.json"),
              "%s: %s", g.fail.field, g.fail.text);
    /* the job sets the byte tokenizer, so the model learns bytes, and its files must have the byte
     * tokenizer */
    o->spec.data.tokenizer = TOKENIZER_BYTE;
    if (job_runs(o)) {
        text(g.result, "hf", hf, sizeof hf);
        CHECK(tokenizer_of(hf) == TOKENIZER_BYTE && same_file("own", hf, "README.md"));
        check_config(hf, (const char *const[]){KEPT, "\"eos_token_id\":256", NULL},
                     (const char *const[]){"[7, 9]", NULL});
    }
    free(o);
}

/* Returns the digest of the weights that a job has learnt from train.jsonl, or NULL if the job
 * failed. */
static const char *learnt(struct order *o, char hf[1300], char sha[65])
{
    o->spec.eval.n_data = 0;
    const bool ran = job_runs(o);
    if (ran) text(g.result, "hf", hf, 1300), text(g.result, "weights_sha256", sha, 65);
    free(o);
    return ran ? sha : NULL;
}

/* Checks model.init "random", which uses everything of a directory except its weights. The weights
 * must be the same as those of a job with this seed and the same sizes in model.config. They must
 * not depend on the weights in the directory or on the number of ranks. */
static void test_train_from_random(void)
{
    static const char *const dirs[] = {"bare", "bare", "own"};
    static const int ranks[] = {1, 2, 1};
    static const char *const names[] = {"random", "random2", "random3"};
    char hf[1300] = "", want[65] = "", two[65] = "", sha[65];
    make_own("own");
    make_own("bare");
    CHECK(!unlink(in_dir("bare", "model.safetensors")));
    struct order *o = own_order(JOB_TRAIN, "no-weights", "bare");
    CHECK(!task_runs(o, TASK_PREPARE));
    CHECK_MSG(g.n_fails == 1 && g.fail.code == ERR_INVALID && !strcmp(g.fail.field, "model.path"),
              "%s: %s", g.fail.field, g.fail.text);
    CHECK_MSG(strstr(g.fail.text, "say model.init \"random\""), "%s", g.fail.text);
    free(o);
    for (int r = 1; r <= 2; r++) { /* the same model, given by its sizes */
        o = own_order(JOB_TRAIN, r == 1 ? "sizes" : "sizes2", "bare");
        o->spec.model.path = 0;
        o->spec.model.shape = tiny_shape;
        o->spec.resources.ranks = r;
        CHECK(learnt(o, hf, r == 1 ? want : two));
    }
    for (int i = 0; i < 3; i++) {
        o = own_order(JOB_TRAIN, names[i], dirs[i]);
        o->spec.model.init = MODEL_INIT_RANDOM;
        o->spec.resources.ranks = ranks[i];
        if (!learnt(o, hf, sha)) continue;
        CHECK_STR(sha, ranks[i] == 1 ? want : two);
        check_passed(hf);
        CHECK(there(hf, "model.safetensors"));
    }
    /* the directory's weights are read if the job does not say otherwise */
    o = own_order(JOB_TRAIN, "its-weights", "own");
    if (learnt(o, hf, sha)) CHECK(strcmp(sha, want));
    o = own_order(JOB_SCORE, "random-score", "bare");
    o->spec.model.init = MODEL_INIT_RANDOM;
    o->spec.data.seq_len = 300;
    if (job_runs(o)) CHECK(number(g.result, "tokens") == 40 * 5 && number(g.result, "nll") > 0);
    free(o);
}

static void test_left_out(void)
{
    char hf[1300];
    make_own("linked");
    CHECK(!symlink("README.md", in_dir("linked", "LICENSE")));
    CHECK(!rename(in_dir("linked", "config.json"), in_dir("linked", "c")) &&
          /* a config.json that is a link is read */
          !symlink("c", in_dir("linked", "config.json")));
    struct order *o = own_order(JOB_TRAIN, "linked-job", "linked");
    o->spec.eval.n_data = 0;
    if (job_runs(o)) {
        const struct gang_event *ev = gang_event(&g, EV_NOTE, 0);
        CHECK_MSG(ev && strstr(ev->json, "files_left_out") && strstr(ev->json, "LICENSE (a link)"),
                  "%s", ev ? ev->json : "no note");
        CHECK(ev && !strstr(ev->json, "config.json"));
        check_config(text(g.result, "hf", hf, sizeof hf), (const char *const[]){KEPT, NULL},
                     (const char *const[]){"256", NULL});
    }
    free(o);
}

static void test_score_of_ids(void)
{
    char buf[64];
    struct order *o = own_order(JOB_SCORE, "score", "own");
    o->spec.data.seq_len = 300; /* long enough for the complete text */
    if (job_runs(o)) {
        CHECK(number(g.result, "tokens") == 40 * 5 && number(g.result, "nll") > 0);
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        CHECK_MSG(strstr(g.result, "\"bits_per_byte\":null"), "%s", g.result);
    }
    free(o);
    /* If some records are text, the number of bytes of all records together is not known. */
    put("", "mixed.jsonl", "{\"text\":\"abcabcabc\"}\n{\"input_ids\":[5,6,7,8,9]}\n");
    CHECK(!hf_save(in_dir("ours", ""), &tiny_shape, DT_F32, weights, &e));
    o = own_order(JOB_SCORE, "mixed", "ours");
    o->spec.input.source.path = tiny_text(&o->spec, in_dir("", "mixed.jsonl"));
    if (job_runs(o)) CHECK_MSG(strstr(g.result, "\"bits_per_byte\":null"), "%s", g.result);
    free(o);
}

/* Returns the only answer of a job whose request has ids, or NULL if the job failed. The caller
 * frees it. */
static char *ask(const char *name, int ranks, int min_tokens)
{
    char line[256], ledger[32];
    struct order *o = own_order(JOB_GENERATE, name, "own3");
    snprintf(line, sizeof line,
             "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
             "{\"prompt\":[5,259,6],\"max_tokens\":4,\"min_tokens\":%d,\"logprobs\":1}}\n",
             min_tokens);
    put("", "ask.jsonl", line);
    o->spec.input.source.path = tiny_text(&o->spec, in_dir("", "ask.jsonl"));
    o->spec.input.source.format = DATA_OPENAI_BATCH;
    o->spec.sampling.max_tokens = 4;
    o->spec.resources.ranks = ranks;
    char *answer = job_runs(o) ? get(o->args.job_dir, "artifacts/results.jsonl") : NULL;
    if (answer) CHECK_STR(text(g.result, "ledger", ledger, sizeof ledger), "equal");
    free(o);
    return answer;
}

/* Counts the tokens of an answer. *first receives the first one. */
static int ids_of(const char *answer, int64_t *first)
{
    static const char key[] = "\"token_ids\":[";
    const char *p = answer ? strstr(answer, key) : NULL;
    CHECK_MSG(p && strstr(answer, "\"text\":\"\""), "%s", answer ? answer : "no answer");
    if (!p) return -1;
    p += strlen(key);
    *first = *p == ']' ? -1 : atoll(p);
    int n = *p != ']';
    for (; *p != ']'; p++) n += *p == ',';
    return n;
}

/* Checks requests with ids, whose answers are ids. On every rank, a text must end at the ids that
 * the model's directory lists. */
static void test_generate_from_ids(void)
{
    char eos[64];
    int64_t first, other;
    make_own("own3");
    char *answer = ask("goes-on", 1, 0);
    CHECK(ids_of(answer, &first) == 4);
    CHECK(answer && strstr(answer, "<|token-") && strstr(answer, "\"finish_reason\":\"length\""));
    free(answer);
    snprintf(eos, sizeof eos, "{\"eos_token_id\":[300,%lld]}", (long long)first);
    put("own3", "generation_config.json", eos);
    for (int ranks = 1; ranks <= 2; ranks++) {
        answer = ask(ranks == 1 ? "ends" : "ends2", ranks, 0);
        CHECK(ids_of(answer, &other) == 0 && strstr(answer, "\"finish_reason\":\"stop\""));
        free(answer);
        const struct gang_event *ev = gang_event(&g, EV_NOTE, 0);
        CHECK_MSG(
            ev && strstr(ev->json, "unknown_end") &&
                strstr(ev->json, "model.path: eos_token_id 300 is not below vocab_size 260") &&
                strstr(ev->json, "mend generation_config.json"),
            "%s", ev ? ev->json : "no note");
    }
    answer = ask("longer", 2, 2);
    CHECK(ids_of(answer, &other) >= 2 && other != first);
    free(answer);
}

/* Writes a GGUF model whose tokenizer is not supported. */
static void make_unread(const char *model, const char *pre, bool merges)
{
    static struct model_shape m;
    struct gguf_make make = {0};
    gguf_shape(&gguf_models[0], &m);
    add_tokens(&make, model, pre, merges);
    free(gguf_make_beside(&make, &gguf_models[0], &m, 0, in_dir("", "unread.gguf")));
}

/* Checks a GGUF file whose tokenizer is not supported. Jobs must accept ids, as with a directory
 * whose tokenizer.json is broken. Text must be refused before any weights are read, and the error
 * must give the reason. */
static void test_gguf_without_text(void)
{
    static const struct {
        const char *model, *pre;
        bool merges;
        const char *why;
    } cases[] = {{"bert", NULL, true, "tokenizer.ggml.model is \"bert\""},
                 {"gpt2", "xyz", true, "tokenizer.ggml.pre is \"xyz\""},
                 {"gpt2", "gpt-2", false, "tokenizer.ggml.merges is not an array of strings"}};
    char ids[2048] = "";
    for (int i = 0, n = 0; i < 40; i++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, "{\"input_ids\":[5,6,7,8,%d]}\n", i);
    put("", "few.jsonl", ids);
    put("", "text.jsonl", "{\"text\":\"some text\"}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int train = 0; train < 2; train++) {
            char name[32];
            snprintf(name, sizeof name, "unread%zu%d", i, train);
            make_unread(cases[i].model, cases[i].pre, cases[i].merges);
            struct order *o = own_order(train ? JOB_TRAIN : JOB_SCORE, name, "unread.gguf");
            struct spec_source *from = train ? &o->spec.data.train[0] : &o->spec.input.source;
            o->spec.model.path = tiny_text(&o->spec, in_dir("", "unread.gguf"));
            o->spec.eval.n_data = 0;
            o->spec.train.steps = 2;
            o->spec.data.seq_len = train ? 32 : 300;
            from->path = tiny_text(&o->spec, in_dir("", "text.jsonl"));
            CHECK(!family_check(&o->spec, &e) && !task_runs(o, TASK_PREPARE));
            CHECK_MSG(g.n_fails == 1 && !strcmp(g.fail.field, "model.path") &&
                          strstr(g.fail.text, cases[i].why),
                      "want \"%s\", got %s: %s", cases[i].why, g.fail.field, g.fail.text);
            from->path = tiny_text(&o->spec, in_dir("", "few.jsonl"));
            if (job_runs(o) && !train) CHECK(number(g.result, "tokens") == 40 * 4);
            free(o);
        }
}

/* Checks a generate job with ids whose GGUF file has a damaged list of tokens. No id may end a
 * text, and a note must give the reason. */
static void test_gguf_without_ends(void)
{
    static struct model_shape m;
    struct gguf_make make = {0};
    gguf_shape(&gguf_models[0], &m);
    make_str(&make, "tokenizer.ggml.model", "gpt2");
    make_strs(&make, "tokenizer.ggml.tokens", (const char *const[]){"a", "b"}, 2);
    bytes_put(make_array(&make, "tokenizer.ggml.token_type", GGUF_I32, 1), &(int32_t){3}, 4);
    free(gguf_make_beside(&make, &gguf_models[0], &m, 0, in_dir("", "endless.gguf")));
    put("", "ask.jsonl",
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{"
        "\"prompt\":[5,7,6],\"max_tokens\":4}}\n");
    struct order *o = own_order(JOB_GENERATE, "endless", "endless.gguf");
    o->spec.model.path = tiny_text(&o->spec, in_dir("", "endless.gguf"));
    o->spec.input.source.path = tiny_text(&o->spec, in_dir("", "ask.jsonl"));
    o->spec.input.source.format = DATA_OPENAI_BATCH;
    o->spec.sampling.max_tokens = 4;
    if (job_runs(o)) {
        const struct gang_event *ev = gang_event(&g, EV_NOTE, 0);
        CHECK_MSG(ev && g.n_notes == 1 && strstr(ev->json, "no_ends") &&
                      strstr(ev->json, "no id ends a text: ") &&
                      strstr(ev->json, "tokenizer.ggml.token_type"),
                  "%d: %s", g.n_notes, ev ? ev->json : "no note");
    }
    free(o);
}

/* Checks that weights that are quantised a second time are reported in one event, by rank 0. */
static void test_quantised_again(void)
{
    static struct model_shape m;
    gguf_shape(&gguf_models[0], &m);
    free(gguf_make_model(&gguf_models[0], &m, 3, in_dir("", "again.gguf")));
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct order *o = own_order(JOB_SCORE, ranks == 1 ? "again" : "again2", "again.gguf");
        o->spec.model.path = tiny_text(&o->spec, in_dir("", "again.gguf"));
        o->spec.model.weights = WEIGHTS_INT4;
        o->spec.resources.ranks = ranks;
        o->spec.input.source.path = tiny_text(&o->spec, in_dir("", "few.jsonl"));
        if (job_runs(o)) {
            const struct gang_event *ev = gang_event(&g, EV_NOTE, 0);
            CHECK_MSG(ev && g.n_notes == 1 && strstr(ev->json, "quantised_again") &&
                          strstr(ev->json,
                                 "1 tensor of model.path was in blocks that model.weights "
                                 "\\\"int4\\\" does not have there, and quantised again: "
                                 "output.weight (Q4_1)"),
                      "%d: %s", g.n_notes, ev ? ev->json : "no note");
        }
        free(o);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    model_dir_begin("test_model_jobs");
    RUN(test_train_on_ids);
    RUN(test_train_on_text);
    RUN(test_train_from_random);
    RUN(test_left_out);
    RUN(test_score_of_ids);
    RUN(test_generate_from_ids);
    RUN(test_gguf_without_text);
    RUN(test_gguf_without_ends);
    RUN(test_quantised_again);
    model_dir_end();
    return test_done("model_jobs");
}
