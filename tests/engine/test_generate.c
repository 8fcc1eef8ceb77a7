/* Checks the fields of generate requests over P ranks: n, stop strings, ends of texts, and
 * log-probabilities. Also checks batches. A batch must answer every request exactly once, even if
 * a crash has left any part of its journal. */
#include <glob.h>
#include <math.h>
#include <stdlib.h>

#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/log.h"
#include "tests/lib/answer.h"
#include "tests/lib/mutant.h"
#include "tests/lib/prefill.h"
#include "tests/lib/tiny.h"
#include "tests/lib/told.h"
#include "worker/plan/check.h"
#include "worker/family/shape.h"
#include "worker/hf/tokenizer.h"
#include "worker/infer/infer.h"
#include "worker/infer/reply_name.h"

#define S          96
#define MAX_TOKENS 24

static char scratch[64];

struct job {
    struct job_spec spec;
    struct prompts p;
    char dir[128];
    struct infer_text out; /* the answer of rank 0, whose text is copied */
    char text[256];
};

static void job_spec_of(struct job *j, int P)
{
    *j = (struct job){0};
    spec_defaults(&j->spec);
    shape_defaults(&j->spec.model.shape);
    j->spec.kind = JOB_GENERATE;
    j->spec.model.shape = tiny_shape;
    j->spec.seed = 3;
    j->spec.resources.ranks = P;
    j->spec.resources.threads = 1;
    j->spec.data.seq_len = S;
    j->spec.sampling.max_tokens = MAX_TOKENS;
    j->spec.sampling.temperature = 0.8;
}

static void generate_body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    struct infer_text out = {0};
    int rc = tiny_open(t, &j->spec, g, rank, &e);
    struct told told;
    told_open(&told);
    struct infer in = {
        .model = &t->model, .spec = &j->spec, .job_dir = j->dir, .progress = &told.p};
    if (!rc) rc = infer_generate(&in, &j->p, &out, &e);
    if (!rc) told_check(&told, PROGRESS_REQUESTS, (double)out.n_resumed, (double)j->p.n);
    if (!rc && !out.n_resumed) CHECK(told.n_inside > t->model.shape.n_layers);
    if (!rc && !out.n_resumed) CHECK(told.at.tokens == out.n_tokens);
    if (!rc && !out.n_resumed) CHECK(out.prefill.n == out.n_prompt_tokens && out.prefill.us > 0);
    if (!rc && !out.n_resumed) CHECK(out.decode.n <= out.n_tokens && out.decode.n > 0);
    if (rc) ranks_fail(g, rank, &e);
    if (!rc && rank == 0) {
        j->out = out;
        snprintf(j->text, sizeof j->text, "%s", out.text ? out.text : "");
    }
    infer_text_fini(&out);
    tiny_close(t);
    free(t);
}

static void run(struct job *j, int P, void (*body)(struct ranks *, int, void *))
{
    static struct plan p;
    struct ranks g;
    struct err e = {0};
    CHECK_MSG(!family_check(&j->spec, &e), "%s: %s", e.field, e.text);
    CHECK_MSG(!plan_make(&j->spec, 0, &p, &e), "%s", e.text);
    ranks_open(&g, P, p.segment_size, NULL);
    ranks_run(&g, body, j);
    ranks_check(&g);
    ranks_close(&g);
}

/* ---- one request on one rank, watched closely ------------------------------------------------ */

struct one {
    struct tiny_rank t;
    struct infer in;
    struct infer_work w;
    struct request r;
};

static struct job alone;

static struct one *one_open(void)
{
    struct one *o = malloc(sizeof *o);
    struct err e = {0};
    CHECK_MSG(!tiny_open(&o->t, &alone.spec, NULL, 0, &e), "%s", e.text);
    o->in = (struct infer){.model = &o->t.model, .spec = &alone.spec};
    CHECK(!infer_work_init(&o->w, &o->in, true, &e) && !request_init(&o->r, S, &e));
    return o;
}

static void one_close(struct one *o)
{
    request_fini(&o->r);
    infer_work_fini(&o->w, 1);
    tiny_close(&o->t);
    free(o);
}

static void ask(struct one *o, struct infer_answer *a)
{
    struct err e = {0};
    CHECK_MSG(!answer_alone(&o->in, &o->w, &o->r, a, &e), "%s", e.text);
}

static void set_prompt(struct one *o, const char *prompt, int64_t request)
{
    request_of_prompt(&o->r, &alone.spec, prompt, (int64_t)strlen(prompt), request);
}

/* Generates n tokens in the slow way: every token needs a prefill of the complete text before it.
 * Draws each token from the distribution with a plain loop over ascending ids. */
static void enumerate(struct one *o, int64_t sequence, int32_t *out, int64_t n)
{
    struct err e = {0};
    const int64_t V = tiny_shape.vocab;
    int32_t tokens[S];
    float *z = malloc((size_t)V * sizeof *z);
    memcpy(tokens, o->r.tokens, (size_t)o->r.n_tokens * sizeof *tokens);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = o->r.n_tokens + i;
        double sum = 0, run_sum = 0;
        CHECK(!prefill(&o->in, tokens, at, z, &e));
        struct sample_key key = {o->r.key.seed, o->r.key.request, sequence, at};
        for (int64_t v = 0; v < V; v++) sum += exp((double)z[v] / o->r.sample.temperature);
        const double u = sample_uniform(&key);
        int32_t id = 0;
        for (; id < V - 1; id++)
            if ((run_sum += exp((double)z[id] / o->r.sample.temperature)) > u * sum) break;
        out[i] = tokens[at] = id;
    }
    free(z);
}

/* Checks the n continuations of a request. After each continuation, the cache is set back to the
 * end of the prompt. The continuations must equal the texts that n separate prefills give. */
static void test_continuations(void)
{
    struct one *o = one_open();
    struct infer_answer three, one;
    int32_t want[MAX_TOKENS];
    set_prompt(o, "static int ", 2);
    o->r.ignore_eos = 1;
    o->r.n = 3;
    ask(o, &three);
    CHECK(three.n == 3 && three.n_generated == 3 * MAX_TOKENS);
    for (int64_t c = 0; c < 3; c++) {
        CHECK(three.choice[c].tokens.n == MAX_TOKENS && three.choice[c].finish == FINISH_LENGTH);
        enumerate(o, c, want, MAX_TOKENS);
        CHECK_MSG(!memcmp(three.choice[c].tokens.id, want, sizeof want), "continuation %d", (int)c);
        CHECK(c == 0 || memcmp(want, three.choice[0].tokens.id, sizeof want));
    }
    o->r.n = 1;
    ask(o, &one);
    CHECK(!memcmp(one.choice[0].tokens.id, three.choice[0].tokens.id, sizeof want));
    infer_answer_fini(&three);
    infer_answer_fini(&one);
    one_close(o);
}

/* Draws texts until a drawn token ends a text. Then checks how each of the options treats this
 * end. */
static void test_ends(void)
{
    struct one *o = one_open();
    struct infer_answer a, b;
    int64_t k = 0, at = 0;
    for (; k < 500; k++) {
        set_prompt(o, "x", k);
        /* all 260 tokens have nearly the same probability, so about one drawn token in 260 ends
         * the text */
        o->r.sample.temperature = 20;
        ask(o, &a);
        at = a.choice[0].tokens.n;
        if (at > 0 && at < MAX_TOKENS) break;
        infer_answer_fini(&a);
    }
    CHECK_MSG(k < 500, "no text of 500 ended by itself");
    CHECK(a.choice[0].finish == FINISH_STOP && a.choice[0].n_text == at);
    for (int64_t i = 0; i < at; i++) CHECK(a.choice[0].tokens.id[i] != 256);
    o->r.ignore_eos = 1;
    ask(o, &b);
    CHECK(b.choice[0].tokens.n == MAX_TOKENS && b.choice[0].tokens.id[at] == 256);
    CHECK(!memcmp(a.choice[0].tokens.id, b.choice[0].tokens.id, (size_t)at * sizeof(int32_t)));
    infer_answer_fini(&b);
    o->r.ignore_eos = 0;
    o->r.min_tokens = at + 1;
    ask(o, &b);
    CHECK(b.choice[0].tokens.n > at);
    infer_answer_fini(&b);
    infer_answer_fini(&a);
    one_close(o);
}

/* Requests a text with log-probabilities. The ids in `ends` end texts, but the options must
 * prevent this text from ending at them. */
static void ask_with(struct one *o, const struct token_ends *ends, struct infer_answer *a)
{
    o->in.ends = ends;
    o->r.min_tokens = MAX_TOKENS;
    o->r.logprobs = 0;
    ask(o, a);
    CHECK(a->choice[0].tokens.n == MAX_TOKENS && a->choice[0].tokens.logprob);
}

static bool same_logprobs(const struct infer_answer *a, const struct infer_answer *b)
{
    const struct infer_tokens *x = &a->choice[0].tokens, *y = &b->choice[0].tokens;
    return x->n == y->n && !memcmp(x->logprob, y->logprob, (size_t)x->n * sizeof *x->logprob);
}

/* Checks an id that a model lists twice as an end of texts. Its logit is masked until min_tokens
 * have been generated, and must then be restored. */
static void test_end_listed_twice(void)
{
    static const struct token_ends once = {1, {101}}, twice = {2, {101, 101}};
    alone.spec.sampling.logprobs = 0;
    struct one *o = one_open();
    struct infer_answer a, b;
    set_prompt(o, "abc", 5);
    ask_with(o, &once, &a);
    ask_with(o, &twice, &b);
    CHECK(same_logprobs(&a, &b));
    infer_answer_fini(&a);
    infer_answer_fini(&b);
    one_close(o);
    alone.spec.sampling.logprobs = -1;
}

#ifdef SEQD_MUTANTS
static void test_mutant(void)
{
    static const struct token_ends twice = {2, {101, 101}};
    alone.spec.sampling.logprobs = 0;
    struct one *o = one_open();
    struct infer_answer a, b;
    set_prompt(o, "abc", 5);
    ask_with(o, &twice, &a);
    mutant_choose(MUTANT_END_TWICE);
    ask_with(o, &twice, &b);
    mutant_choose(MUTANT_NONE);
    mutant_report(MUTANT_END_TWICE, !same_logprobs(&a, &b), "an end that is listed twice");
    verify_blind(MUTANT_END_TWICE);
    infer_answer_fini(&a);
    infer_answer_fini(&b);
    one_close(o);
    alone.spec.sampling.logprobs = -1;
}
#endif

static void test_stops(void)
{
    struct one *o = one_open();
    struct infer_answer a, b;
    set_prompt(o, "abc", 5);
    o->r.ignore_eos = 1;
    ask(o, &a);
    const int32_t *id = a.choice[0].tokens.id;
    char bytes[MAX_TOKENS];
    for (int i = 0; i < MAX_TOKENS; i++) bytes[i] = id[i] < 256 ? (char)id[i] : 0;
    int compared = 0;
    for (int from = 0; from < MAX_TOKENS; from++)
        for (int size = 1; size <= 4 && from + size <= MAX_TOKENS; size++) {
            const char *first = memmem(bytes, MAX_TOKENS, bytes + from, (size_t)size);
            /* skips texts with a byte 0, because 0 also means that there is no byte */
            if (memchr(bytes + from, 0, (size_t)size)) continue;
            stop_init(&o->r.stop);
            CHECK(!stop_add(&o->r.stop, bytes + from, (size_t)size));
            ask(o, &b);
            CHECK(b.choice[0].finish == FINISH_STOP && b.choice[0].n_text == first - bytes);
            CHECK(b.choice[0].tokens.n == first - bytes + size && ++compared);
            infer_answer_fini(&b);
            /* with this min_tokens, the stop string comes too early to have an effect */
            o->r.min_tokens = first - bytes + size + 1;
            ask(o, &b);
            CHECK(b.choice[0].tokens.n >= o->r.min_tokens || o->r.min_tokens > MAX_TOKENS);
            infer_answer_fini(&b);
            o->r.min_tokens = 0;
        }
    CHECK_MSG(compared > 20, "%d", compared);
    infer_answer_fini(&a);
    one_close(o);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Finds occurrence number `which`, counted from 0, of the member `key` in a line. Returns the raw
 * text of the member's value, up to and including the text `until`. */
static const char *value(const char *line, const char *key, int which, const char *until,
                         size_t *size)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = line;
    for (int i = 0; i <= which; i++) {
        at = strstr(i ? at + 1 : at, name);
        if (!at) return *size = 0, "";
    }
    at += strlen(name);
    *size = (size_t)(strstr(at, until) + strlen(until) - at);
    return at;
}

/* Checks log-probabilities as lm-evaluation-harness reads them. There must be one number for each
 * token, and the first number must be null. The alternatives of a token must contain the token's
 * own number with the same digits. If the chosen token was the most likely one, no alternative may
 * be larger. */
static void check_logprobs(const char *line, int n, const double *want)
{
    size_t size;
    struct jread lp, top, names;
    const char *at = value(line, "token_logprobs", 0, "]", &size);
    jread_init(&lp, at, size);
    at = value(line, "top_logprobs", 0, "}]", &size);
    jread_init(&top, at, size);
    at = value(line, "tokens", 0, "],\"token_logprobs", &size);
    jread_init(&names, at, size - strlen(",\"token_logprobs"));
    CHECK(jread_next(&lp) == J_ARRAY && jread_next(&top) == J_ARRAY);
    CHECK(jread_next(&names) == J_ARRAY);
    for (int i = 0; i < n; i++) {
        enum jtok t = jread_next(&lp), u = jread_next(&top);
        bool found = false;
        char name[32];
        CHECK(jread_next(&names) == J_STRING && !jread_copy(&names, name, sizeof name));
        if (i == 0) {
            CHECK(t == J_NULL && u == J_NULL);
            continue;
        }
        double v = 0, other;
        CHECK(t == J_NUMBER && u == J_OBJECT && !jread_double(&lp, &v));
        CHECK_MSG(fabs(v - want[i]) < 1e-4, "token %d: %.9g, not %.9g", i, v, want[i]);
        while (jread_next(&top) == J_KEY) {
            bool same = jread_is(&top, name);
            CHECK(jread_next(&top) == J_NUMBER && !jread_double(&top, &other));
            if (!same) continue;
            found = true;
            CHECK_MSG(top.len == lp.len && !memcmp(top.text, lp.text, lp.len), "%.*s, not %.*s",
                      (int)top.len, top.text, (int)lp.len, lp.text);
        }
        CHECK_MSG(found, "token %d, %s, is not among its alternatives", i, name);
    }
    CHECK(jread_next(&lp) == J_ARRAY_END && jread_next(&top) == J_ARRAY_END);
    CHECK(jread_next(&names) == J_ARRAY_END);
}

struct echo {
    struct job j;
    char line[1 << 16];
};

#define ECHOED "caf\xC3\xA9 <b>\"q\"\n\\"

static void echo_body(struct ranks *g, int rank, void *arg)
{
    struct echo *x = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct infer_work w;
    struct request r;
    struct infer_answer a = {0};
    struct reply reply = {0};
    struct err e = {0};
    int rc = tiny_open(t, &x->j.spec, g, rank, &e);
    struct infer in = {.model = &t->model, .spec = &x->j.spec};
    if (!rc) rc = infer_work_init(&w, &in, rank == 0, &e) || request_init(&r, S, &e);
    if (!rc) {
        request_of_prompt(&r, &x->j.spec, ECHOED, strlen(ECHOED), 0);
        r.echo = 1;
        r.logprobs = 3;
        r.max_tokens = 4;
        r.ignore_eos = 1;
        rc = answer_alone(&in, &w, &r, &a, &e);
        if (!rc && rank == 0) rc = reply_batch(&reply, &r, 0, "m", &a, &e);
        if (!rc && rank == 0) memcpy(x->line, reply.line, (size_t)reply.size);
    }
    if (rc) ranks_fail(g, rank, &e);
    reply_fini(&reply);
    infer_answer_fini(&a);
    request_fini(&r);
    infer_work_fini(&w, 1);
    tiny_close(t);
    free(t);
}

static void test_echo(void)
{
    static struct echo x;
    double want[32];
    size_t size;
    struct err e = {0};
    struct one *o = one_open();
    for (int P = 1; P <= 3; P++) {
        job_spec_of(&x.j, P);
        x.j.spec.sampling.logprobs = 3;
        /* logits are computed for a few rows at a time */
        x.j.spec.memory.loss_chunk_tokens = P == 2 ? 0 : 5;
        x.j.spec.input.prompt = tiny_text(&x.j.spec, "x");
        run(&x.j, P, echo_body);
        int n = 0; /* converts the generated tokens back to ids */
        int32_t ids[32];
        struct jread j;
        const char *at = value(x.line, "tokens", 0, "],\"token_logprobs", &size);
        jread_init(&j, at, size);
        CHECK(jread_next(&j) == J_ARRAY);
        char name[32], other[32];
        while (jread_next(&j) == J_STRING && n < 32) {
            CHECK(!jread_copy(&j, name, sizeof name));
            for (ids[n] = 0; ids[n] < 300 && strcmp(reply_name_byte(other, ids[n]), name);)
                ids[n]++;
            n++;
        }
        CHECK_MSG(n == (int)strlen(ECHOED) + 4 && ids[0] == 'c' && ids[3] == 0xC3, "%d tokens", n);
        float *z = malloc(sizeof *z * (size_t)tiny_shape.vocab);
        for (int i = 1; i < n; i++) {
            double sum = 0;
            CHECK(!prefill(&o->in, ids, i, z, &e));
            for (int64_t v = 0; v < tiny_shape.vocab; v++) sum += exp((double)z[v]);
            want[i] = (double)z[ids[i]] - log(sum);
        }
        free(z);
        check_logprobs(x.line, n, want);
        const char *text = value(x.line, "text", 0, ",", &size);
        const char *shown = "\"caf\xC3\xA9 <b>\\\"q\\\"\\n\\\\";
        CHECK_MSG(!strncmp(text, shown, strlen(shown)), "%.40s", text);
    }
    one_close(o);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* clang-format off */
#define LINE(id, body)                                                                             \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{" body "}}\n"
static const char batch[] =
    LINE("plain", "\"prompt\":\"hello\"")
    LINE("greedy", "\"prompt\":\"hello\",\"temperature\":0,\"max_tokens\":9")
    LINE("bad", "\"prompt\":\"hello\",\"tempersture\":0")
    LINE("cut", "\"prompt\":[104,105],\"top_k\":5,\"top_p\":0.9,\"min_p\":0.01,\"n\":3")
    "\n"
    LINE("same seed 1", "\"prompt\":\"one two\",\"seed\":4,\"max_tokens\":7")
    LINE("same seed 2", "\"prompt\":\"one two\",\"seed\":4,\"max_tokens\":7")
    LINE("long", "\"prompt\":\"0123456789012345678901234567890123456789012345678901234567890123456789012\"")
    LINE("penal", "\"prompt\":\"aaaa\",\"repetition_penalty\":1.5,\"frequency_penalty\":0.3,\"presence_penalty\":0.2")
    LINE("echo", "\"prompt\":\"echo\",\"echo\":true,\"max_tokens\":0")
    LINE("stop", "\"prompt\":\"s\",\"stop\":[\"a\",\"e\"],\"temperature\":1.5");
/* clang-format on */
#define N_BATCH 10

static void batch_job(struct job *j, int P, const char *file, const char *dir)
{
    struct err e = {0};
    char path[128];
    const char *roots[] = {scratch};
    job_spec_of(j, P);
    snprintf(path, sizeof path, "%s/%s", scratch, file);
    snprintf(j->dir, sizeof j->dir, "%s/%s", scratch, dir);
    j->spec.input.source.path = tiny_text(&j->spec, path);
    j->spec.input.source.format = DATA_OPENAI_BATCH;
    CHECK_MSG(!prompts_read(&j->p, &j->spec, roots, 1, &e), "%s", e.text);
}

/* Returns the contents of the artifact, or of the journal, that matches the pattern. The caller
 * frees it. */
static char *content(const char *dir, const char *pattern, size_t *size, char path[256])
{
    struct err e = {0};
    glob_t found;
    char *text = NULL;
    snprintf(path, 256, "%s/%s", dir, pattern);
    if (!glob(path, 0, NULL, &found) && found.gl_pathc == 1) {
        snprintf(path, 256, "%s", found.gl_pathv[0]);
        text = file_read(path, 1 << 24, size, &e);
    }
    CHECK_MSG(text, "%s", path);
    globfree(&found);
    return text ? text : calloc(1, 1);
}

static char *run_batch(int P, const char *file, const char *dir, size_t *size,
                       struct infer_text *out)
{
    static struct job j;
    char path[256];
    batch_job(&j, P, file, dir);
    run(&j, P, generate_body);
    CHECK(j.out.ledger_equal);
    *out = j.out;
    prompts_fini(&j.p);
    return content(j.dir, "artifacts/results.jsonl", size, path);
}

static void put(const char *name, const char *text, size_t size)
{
    char path[256];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    CHECK_MSG(!file_write(path, text, size, &e), "%s", e.text);
}

static const char *choices_of(const char *text, const char *id, size_t *size)
{
    char name[64];
    snprintf(name, sizeof name, "\"custom_id\":\"%s\"", id);
    const char *line = strstr(text, name);
    CHECK_MSG(line, "%s has no line", id);
    return line ? value(line, "choices", 0, "}]", size) : "";
}

static char *whole; /* results.jsonl of a run on one rank without interruption */
static size_t whole_size;

static void test_batch(void)
{
    struct infer_text out;
    size_t size, a_size, b_size;
    char path[256];
    put("batch.jsonl", batch, sizeof batch - 1);
    whole = run_batch(1, "batch.jsonl", "whole", &whole_size, &out);
    CHECK(out.n_prompts == N_BATCH && out.n_refused == 2 && out.n_resumed == 0);
    int n = 0, refused = 0;
    for (const char *at = whole; *at; at = strchr(at, '\n') + 1, n++)
        refused += !memmem(at, (size_t)(strchr(at, '\n') - at), "\"error\":null", 12);
    CHECK_MSG(n == N_BATCH && refused == 2, "%d lines, %d refused", n, refused);
    char *errors = content(scratch, "whole/artifacts/errors.jsonl", &size, path);
    CHECK(strstr(errors, "\"custom_id\":\"bad\"") && strstr(errors, "\"param\":\"tempersture\""));
    CHECK(strstr(errors, "\"custom_id\":\"long\"") && strstr(errors, "data.seq_len 96"));
    CHECK(strstr(errors, "\"status_code\":400") && !strstr(errors, "\"status_code\":200"));
    free(errors);
    const char *a = choices_of(whole, "same seed 1", &a_size),
               *b = choices_of(whole, "same seed 2", &b_size);
    CHECK(a_size == b_size && !memcmp(a, b, a_size));
    a = choices_of(whole, "echo", &a_size);
    CHECK_MSG(strstr(a, "\"text\":\"echo\""), "%.60s", a);
    for (int P = 2; P <= 3; P++) {
        char dir[16];
        snprintf(dir, sizeof dir, "p%d", P);
        char *many = run_batch(P, "batch.jsonl", dir, &size, &out);
        CHECK_MSG(size == whole_size && !memcmp(many, whole, size), "P %d differs", P);
        free(many);
    }
}

/* Checks that each request gets the same answer in the batch and in a file that has only this
 * request. */
static void test_independent(void)
{
    static const char *const ids[] = {"plain", "cut", "penal", "stop"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct infer_text out;
        size_t size, a_size, b_size;
        char name[32], line[512];
        snprintf(name, sizeof name, "\"%s\"", ids[i]);
        const char *from = strstr(batch, name);
        while (from > batch && from[-1] != '\n') from--;
        snprintf(line, sizeof line, "%.*s", (int)(strchr(from, '\n') - from), from);
        put("alone.jsonl", line, strlen(line));
        char *text = run_batch(1, "alone.jsonl", ids[i], &size, &out);
        const char *a = choices_of(whole, ids[i], &a_size), *b = choices_of(text, ids[i], &b_size);
        CHECK_MSG(a_size == b_size && !memcmp(a, b, a_size), "%s: %.80s", ids[i], b);
        free(text);
    }
}

/* Writes the first `size` bytes of a journal, as if a crash had left them, and runs the job. The
 * result must be the same as without a crash. */
static int64_t resume(const char *journal, size_t size, int P)
{
    struct infer_text out;
    struct err e = {0};
    char path[256], name[64], dir[128];
    size_t n;
    snprintf(dir, sizeof dir, "%s/again", scratch);
    CHECK(!file_remove(dir, &e) && !file_make_dir(dir, &e));
    free(content(scratch, "whole/batch-*.jsonl", &n, path));
    snprintf(name, sizeof name, "again/%s", strrchr(path, '/') + 1);
    put(name, journal, size);
    char *text = run_batch(P, "batch.jsonl", "again", &n, &out);
    CHECK_MSG(n == whole_size && !memcmp(text, whole, n), "after %zu bytes: %zu of %zu", size, n,
              whole_size);
    CHECK(out.n_refused == 2 && out.n_prompts == N_BATCH && out.n_tokens > 0);
    free(text);
    return out.n_resumed;
}

static void test_resume(void)
{
    const bool small = small_tests();
    size_t at = 0;
    int64_t lines = 0;
    CHECK(resume("", 0, 1) == 0);
    for (const char *line = whole; *line; line = strchr(line, '\n') + 1, lines++) {
        at = (size_t)(line - whole);
        const size_t len = (size_t)(strchr(line, '\n') + 1 - line);
        CHECK(resume(whole, at, 1 + lines % 3) == lines); /* whole lines */
        if (small && lines % 4) continue;
        CHECK(resume(whole, at + 1, 1) == lines); /* the last line is incomplete */
        CHECK(resume(whole, at + len / 2, 1) == lines);
        CHECK(resume(whole, at + len - 1, 1) == lines);
    }
    CHECK(resume(whole, whole_size, 2) == N_BATCH);
    /* If the journal has a text that is not a line of this batch, or a second line for a request,
     * everything from there on is removed. */
    char *bad = malloc(2 * whole_size + 100);
    memcpy(bad, whole, at);
    memcpy(bad + at, whole, whole_size);
    CHECK(resume(bad, at + whole_size, 1) == N_BATCH - 1);
    static const char *const junk[] = {"\n",
                                       "{}\n",
                                       "null\n",
                                       "{\"id\":\"req-9\"}\n",
                                       "{\"id\":\"req-99\",\"custom_id\":\"stop\"}\n",
                                       "{\"id\":\"req-9\",\"custom_id\":\"other\"}\n",
                                       "{\"id\":\"req-9\",\"custom_id\":[]}\n",
                                       "{\"id\":\"req--1\",\"custom_id\":\"stop\"}\n",
                                       "{\"response\":{\"body\":{\"usage\":5}}}\n",
                                       "{\"response\":{\"body\":[{\"usage\":{}}]}\n"};
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++) {
        memcpy(bad + at, junk[i], strlen(junk[i]));
        CHECK_MSG(resume(bad, at + strlen(junk[i]), 1) == N_BATCH - 1, "%s", junk[i]);
    }
    free(bad);
}

/* Checks that a batch does not use the journal of a different batch. Also checks that a batch does
 * not begin if a line of it is not a request. */
static void test_frames(void)
{
    struct infer_text out;
    struct err e;
    static struct job j;
    size_t size;
    const char *roots[] = {scratch};
    put("other.jsonl", batch, strlen(LINE("plain", "\"prompt\":\"hello\"")));
    char *text = run_batch(1, "other.jsonl", "whole", &size, &out);
    CHECK(out.n_prompts == 1 && out.n_resumed == 0 && out.n_refused == 0 && !out.errors.name[0]);
    free(text);
    static const char *const bad[][2] = {
        {"{\"custom_id\":\"a\"}\n{\"custom_id\":\"b\"}\n{\"custom_id\":\"a\"}", "custom_id \"a\""},
        {"{\"custom_id\":\"a\"}\n\n{\"method\":\"POST\"}", "line 3: there is no custom_id"},
        {"{\"custom_id\":\"a\"}\nnonsense", "line 2"},
        {"\n \n", "no prompt"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[128];
        put("bad.jsonl", bad[i][0], strlen(bad[i][0]));
        job_spec_of(&j, 1);
        snprintf(path, sizeof path, "%s/bad.jsonl", scratch);
        j.spec.input.source.path = tiny_text(&j.spec, path);
        j.spec.input.source.format = DATA_OPENAI_BATCH;
        CHECK(prompts_read(&j.p, &j.spec, roots, 1, &e) == -1);
        CHECK_MSG(strstr(e.text, bad[i][1]) && !strncmp(e.field, "input", 5), "%s", e.text);
    }
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_generate");
    snprintf(scratch, sizeof scratch, "/tmp/test_generate.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    job_spec_of(&alone, 1);
    alone.spec.input.prompt = tiny_text(&alone.spec, "x");
    CHECK(!family_check(&alone.spec, &e));
    RUN(test_continuations);
    RUN(test_ends);
    RUN(test_end_listed_twice);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    RUN(test_stops);
    RUN(test_echo);
    RUN(test_batch);
    RUN(test_independent);
    RUN(test_resume);
    RUN(test_frames);
    free(whole);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("generate");
}
