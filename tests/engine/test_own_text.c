/* Runs complete jobs on text. The model directory has its own tokenizer.json. Trainings must learn
 * the ids of the golden files. Texts are scored, embedded and generated on several ranks. Refused
 * jobs are checked, too.
 * tests: needs golden/bert golden/tokenizers seqrank */
#include <math.h>
#include "api/core/gang_start.h"
#include "tests/lib/own_model.h"
#include "worker/data/data.h"
#include "worker/infer/reply.h"
#include "worker/plan/check.h"
#include "worker/text/tokenizer.h"

enum { LINES = 64 };

/* ---- a model and its text -------------------------------------------------------------------- */

static size_t unhex(char *out, const char *hex)
{
    size_t n = 0;
    unsigned byte;
    for (; *hex != '\t' && sscanf(hex, "%2x", &byte) == 1; hex += 2) out[n++] = (char)byte;
    return n;
}

/* The strings of the golden file, with the ids to which transformers converts them. Special ids
 * are included. */
static struct line {
    char text[1024];
    size_t size;
    int32_t id[1024];
    int64_t n;
    bool ends; /* the string ends with a </s> of its own */
} line[LINES];
static int n_lines;
static int64_t n_bytes;

static void read_ids(struct line *l, const char *p)
{
    char *end;
    for (; strtol(p, &end, 10), end != p && *p != '\t'; p = end) {
        l->id[l->n++] = (int32_t)strtol(p, &end, 10);
        if (*end == '\t') return;
    }
}

static void read_golden(void)
{
    char *text = file_read(GOLDEN ".txt", 16 << 20, NULL, &e), *save = NULL;
    CHECK_MSG(text, "%s", e.text);
    for (char *s = strtok_r(text, "\n", &save); s && n_lines < LINES;
         s = strtok_r(NULL, "\n", &save)) {
        struct line *l = &line[n_lines];
        const char *ids = strchr(s, '\t'), *special = ids ? strchr(ids + 1, '\t') : NULL;
        if (!special || strcspn(s, "\t") > 800 || *s == '\t') continue;
        *l = (struct line){0};
        l->size = unhex(l->text, s);
        read_ids(l, special + 1);
        l->ends = l->id[l->n - 1] == EOS;
        if (!l->ends) l->id[l->n++] = EOS;
        n_bytes += (int64_t)l->size;
        n_lines++;
    }
    CHECK_MSG(n_lines > 30, "%d lines", n_lines);
    free(text);
}

/* Appends s to out as a string of JSON. */
static void append_json(char *out, const char *s, size_t n)
{
    out += strlen(out);
    *out++ = '"';
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 32 || s[i] == '"' || s[i] == '\\')
            out += sprintf(out, "\\u%04x", (unsigned char)s[i]);
        else
            *out++ = s[i];
    strcpy(out, "\"");
}

enum { TIMES = 4 };

static void put_lines(void)
{
    static char text[LINES * 8192];
    for (int i = 0; i < n_lines; i++) {
        strcat(text, "{\"body\":");
        append_json(text, line[i].text, line[i].size);
        strcat(text, "}\n");
    }
    put("", "lines.jsonl", text);
    char *all = malloc(TIMES * strlen(text) + 1);
    if (!all) abort();
    *all = 0;
    for (int k = 0; k < TIMES; k++) strcat(all, text);
    /* the text has more than 1,024 tokens, whose bytes a score job reads at a time */
    put("", "again.jsonl", all);
    free(all);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct order *own_job(enum job_kind kind, const char *name, const char *model)
{
    return own_order(kind, name, model, "lines.jsonl");
}

/* ---- preparation ----------------------------------------------------------------------------- */

static void check_documents(const struct data *d)
{
    const uint64_t *ends = data_documents(d);
    static int32_t ids[2048];
    static uint32_t bytes[2048];
    int64_t at = 0;
    for (int i = 0; i < n_lines; i++, at = (int64_t)ends[i - 1]) {
        const int64_t n = (int64_t)ends[i] - at;
        uint32_t sum = 0;
        CHECK_MSG(n == line[i].n, "line %d: %lld ids, want %lld", i, (long long)n,
                  (long long)line[i].n);
        CHECK(n <= 2048 && !data_read(d, at, n, ids, &e) && !data_read_bytes(d, at, n, bytes, &e));
        CHECK_MSG(n != line[i].n || !memcmp(ids, line[i].id, (size_t)n * sizeof *ids), "line %d",
                  i);
        for (int64_t k = 0; k < n; k++) sum += bytes[k];
        CHECK_MSG(sum == line[i].size && (bytes[n - 1] == 0 || line[i].ends), "line %d: %u bytes",
                  i, sum);
    }
}

static char first_id[80];

static void test_prepare(void)
{
    struct order *o = own_job(JOB_TRAIN, "prepare", "own");
    CHECK(prepares(o) && all_ok(&g));
    CHECK(number(g.result, "n_bytes") == (double)n_bytes);
    CHECK(number(g.result, "n_documents") == n_lines);
    struct data *d = data_open(o->args.prepared_dir, o->args.prepared_id, DATA_CHECK, &e);
    CHECK_MSG(d, "%s", e.text);
    if (d) check_documents(d);
    CHECK(d && data_stats(d)->own_tokens && !data_all_bytes(data_stats(d), SET_TRAIN));
    data_close(d);
    strcpy(first_id, o->args.prepared_id);
    free(o);
}

/* Checks that the id of prepared data depends on the files of the tokenizer. */
static void test_id(void)
{
    struct order *o = own_job(JOB_TRAIN, "id", "own");
    CHECK(prepares(o) && !strcmp(o->args.prepared_id, first_id));
    put("own", "tokenizer_config.json", "{\"eos_token\":\"</s>\",\"model_max_length\":99}");
    CHECK(prepares(o) && strcmp(o->args.prepared_id, first_id) != 0);
    copy_golden("own");
    o->spec.data.tokenizer = TOKENIZER_BYTE;
    CHECK(prepares(o) && strcmp(o->args.prepared_id, first_id) != 0);
    CHECK(number(g.result, "n_tokens") == (double)(n_bytes + n_lines));
    free(o);
}

/* Checks that a text file is one document. Also checks that a prompt and its completion are
 * converted to tokens as one text, and that the prompt is not learnt. */
static void test_other_sources(void)
{
    struct order *o = own_job(JOB_TRAIN, "whole", "own");
    char whole[2048];
    memcpy(whole, line[7].text, line[7].size);
    whole[line[7].size] = 0;
    put("", "whole.txt", whole);
    o->spec.data.train[0] = (struct spec_source){
        .path = tiny_text(&o->spec, in_dir("", "whole.txt")), .format = DATA_TEXT, .eod = -1};
    CHECK(prepares(o) && number(g.result, "n_tokens") == (double)line[7].n);
    put("", "pair.jsonl", "{\"prompt\":\"Hello, wor\",\"completion\":\"ld and more\"}\n");
    o->spec.data.train[0].path = tiny_text(&o->spec, in_dir("", "pair.jsonl"));
    o->spec.data.train[0].format = DATA_JSONL;
    o->spec.data.loss_on = LOSS_ON_COMPLETION;
    CHECK(prepares(o) && number(g.result, "masked_tokens") > 1 &&
          number(g.result, "n_bytes") == 21);
    CHECK(number(g.result, "masked_tokens") < number(g.result, "n_tokens") - 1);
    free(o);
}

static int notes(const char *code, const char *word)
{
    int n = 0;
    for (int i = 0; i < g.n_events; i++)
        n += g.event[i].type == EV_NOTE && strstr(g.event[i].json, code) &&
             strstr(g.event[i].json, word);
    return n;
}

/* Checks the note about padding. pad_token_id in config.json is 257. If this id also ends texts,
 * only repeated ids count as padding. */
static void test_padding(void)
{
    static const struct {
        const char *record, *ends, *want;
    } row[] = {{"[257,5,257,6]", "2", "2 tokens are 257, pad_token_id"},
               {"[5,6,258]", "2", NULL},
               {"[257,5,257,6]", "257", NULL},
               {"[5,257,257,257]", "257", "2 tokens are 257"}};
    char text[128];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(text, sizeof text, "{\"input_ids\":%s}\n", row[i].record);
        put("", "padded.jsonl", text);
        snprintf(text, sizeof text, "{\"eos_token_id\":%s}", row[i].ends);
        put("own", "generation_config.json", text);
        struct order *o = own_order(JOB_TRAIN, "padding", "own", "padded.jsonl");
        CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
        CHECK(notes("\"padding\"", row[i].want ? row[i].want : "") == (row[i].want != NULL));
        free(o);
    }
    put("own", "generation_config.json", "{\"eos_token_id\":[2]}");
}

static void test_refused(void)
{
    struct order *o = own_job(JOB_TRAIN, "narrow", "narrow");
    make_model("narrow", 260);
    CHECK(!prepares(o));
    CHECK_MSG(strstr(g.fail.text, "has 260 ids") && strstr(g.fail.text, "line"), "%s", g.fail.text);
    free(o);
    o = own_job(JOB_TRAIN, "unconverted", "unconverted");
    make_model("unconverted", VOCAB);
    CHECK(
        !rename(in_dir("unconverted", "tokenizer.json"), in_dir("unconverted", "tokenizer.model")));
    CHECK(!prepares(o));
    fails("model.path", "convert it once");
    put("", "ids.jsonl", "{\"input_ids\":[1,2,3]}\n");
    o->spec.data.train[0].path = tiny_text(&o->spec, in_dir("", "ids.jsonl"));
    CHECK(prepares(o) && all_ok(&g));
    free(o);
    put("", "bad.jsonl", "{\"body\":\"good\"}\n{\"body\":\"\xff\"}\n");
    o = own_job(JOB_TRAIN, "bad", "own");
    o->spec.data.train[0].path = tiny_text(&o->spec, in_dir("", "bad.jsonl"));
    CHECK(!prepares(o));
    fails("data.train.0.path", "line 2");
    free(o);
}

/* ---- training, scoring ----------------------------------------------------------------------- */

static void test_train(void)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json"};
    double loss[2] = {0};
    char hf[1300];
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct order *o = own_job(JOB_TRAIN, ranks == 1 ? "train" : "train2", "own");
        o->spec.resources.ranks = ranks;
        if (job_runs(o)) {
            loss[ranks - 1] = number(g.result, "loss");
            text(g.result, "hf", hf, sizeof hf);
            for (int i = 0; i < 3; i++) CHECK_MSG(same_file("own", hf, files[i]), "%s", files[i]);
            CHECK(tokenizer_of(hf) == TOKENIZER_OWN);
        }
        free(o);
    }
    CHECK_MSG(loss[0] > 1 && fabs(loss[0] - loss[1]) < 1e-5, "%.17g %.17g", loss[0], loss[1]);
}

/* Returns the loss of the text's tokens. The end id that preparation adds after each line is not
 * included. */
static double text_nll(const struct order *o)
{
    char *npy = get(o->args.job_dir, "artifacts/token-logprobs.npy");
    double sum = 0, x;
    int64_t at = 0;
    for (int j = 0; j < TIMES * n_lines; at += line[j++ % n_lines].n) {
        const struct line *l = &line[j % n_lines];
        for (int64_t k = 1; k < l->n - !l->ends; k++) /* BOS is not scored */
            memcpy(&x, npy + 128 + (at + k) * (int64_t)sizeof x, sizeof x), sum -= x;
    }
    CHECK_MSG(at > 2048, "%lld tokens", (long long)at);
    free(npy);
    return sum;
}

/* Checks that bits are counted per byte of the text. BOS and ends have no bytes, and ends have no
 * loss. */
static void test_score(void)
{
    double nll[2] = {0};
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct order *o = own_order(JOB_SCORE, ranks == 1 ? "score" : "score2", "own",
                                    "again.jsonl");
        o->spec.resources.ranks = ranks;
        o->spec.data.seq_len = 8192;
        o->spec.score.token_logprobs = 1;
        if (job_runs(o)) {
            nll[ranks - 1] = number(g.result, "nll");
            CHECK(number(g.result, "bytes") == (double)(TIMES * n_bytes));
            const double bits = number(g.result, "bits_per_byte");
            CHECK(text_nll(o) < nll[ranks - 1] - 1);
            CHECK(fabs(bits - text_nll(o) / log(2) / (double)(TIMES * n_bytes)) < 1e-9);
        }
        free(o);
    }
    CHECK_MSG(nll[0] > 1 && fabs(nll[0] - nll[1]) < 1e-5 * nll[0], "%.17g %.17g", nll[0], nll[1]);
}

/* Checks that a vector is computed from the ids that the post-processor of the tokenizer makes
 * from a text. No end id may be added to these ids. */
static void test_embed(void)
{
    int64_t n = 0;
    struct order *o = own_job(JOB_EMBED, "embed", "own");
    for (int i = 0; i < n_lines; i++) n += line[i].n - !line[i].ends;
    if (job_runs(o)) {
        CHECK(number(g.result, "documents") == n_lines);
        CHECK_MSG(number(g.result, "tokens") == (double)n, "%s", g.result);
    }
    free(o);
}

/* Checks that the mask token of a masked language model is the mask token of its tokenizer. */
static void test_mask(void)
{
    struct model_shape m;
    char *config = file_read("tests/golden/bert/config.json", 1 << 20, NULL, &e);
    char *tokenizer = file_read("tests/golden/tokenizers/bert.json", 1 << 20, NULL, &e);
    CHECK_MSG(config && tokenizer, "%s", e.text);
    put("bert", "config.json", config ? config : "");
    put("bert", "tokenizer.json", tokenizer ? tokenizer : "");
    CHECK_MSG(!hf_read_dir(in_dir("bert", ""), &m, &e) && m.mask == 0, "%s", e.text);
    put("bert", "special_tokens_map.json", "{\"mask_token\":\"[MASK]\"}");
    CHECK_MSG(!hf_read_dir(in_dir("bert", ""), &m, &e) && m.mask == 1 + 4, "%d", (int)m.mask);
    put("bert", "tokenizer.json", "{}");
    CHECK_MSG(!hf_read_dir(in_dir("bert", ""), &m, &e) && m.mask == 0, "%s", e.text);
    free(config);
    free(tokenizer);
}

/* ---- generation ------------------------------------------------------------------------------ */

static bool asks(const char *name, int ranks, const char *model, const char *body, char *answer,
                 size_t size)
{
    char whole[1024];
    snprintf(whole, sizeof whole, "\"ignore_eos\":true,%s", body);
    return own_asks(name, ranks, model, "/v1/completions", whole, answer, size);
}

/* Stores the unescaped text of an answer in out. Returns the text as JSON. */
static char *said(const char *answer, char *out, size_t size)
{
    const char *p = strstr(answer, "\"text\":");
    struct jread j;
    CHECK_MSG(p, "%s", answer);
    *out = 0;
    if (!p) return out;
    jread_init(&j, p + 7, strlen(p + 7));
    CHECK(jread_next(&j) == J_STRING && !jread_copy(&j, out, size));
    return out;
}

/* Decodes the ids of an answer to a text. */
static void decode(const char *answer, struct text *out)
{
    const char *p = strstr(answer, "\"token_ids\":[");
    struct tokenizer *t = tokenizer_open(in_dir("own", ""), &e);
    int32_t ids[64];
    int64_t n = 0;
    char *end;
    CHECK_MSG(p && t, "%s", answer);
    for (p = p ? p + 13 : ""; strtol(p, &end, 10), end != p && n < 64; p = end + (*end == ','))
        ids[n++] = (int32_t)strtol(p, &end, 10);
    out->n = 0;
    CHECK(t && !tokenizer_decode(t, ids, n, true, out, &e));
    tokenizer_destroy(t);
}

static void test_batch(void)
{
    static char answer[3][16384];
    struct text whole = {0};
    char plain[4096];
    for (int i = 0; i < 2; i++)
        CHECK(asks(i ? "batch2" : "batch", 1 + i, "own",
                   "\"prompt\":\"Hello, world!\",\"logprobs\":2,\"echo\":true", answer[i],
                   sizeof answer[i]));
    char two[4096];
    CHECK_STR(said(answer[0], plain, sizeof plain), said(answer[1], two, sizeof two));
    CHECK_MSG(strstr(answer[0], "\"text_offset\":[0,0,0,1,3,4,5,7,8,10,11,12,13,"), "%s",
              answer[0]);
    CHECK_MSG(strstr(answer[0],
                     "\"tokens\":[\"<s>\",\" \",\"H\",\"el\",\"l\",\"o\",\", \",\"w\",\"or\","),
              "%s", answer[0]);
    decode(answer[0], &whole);
    CHECK_STR(said(answer[0], plain, sizeof plain), whole.data);
    CHECK_MSG(whole.n > 13 && !strncmp(whole.data, "Hello, world!", 13), "%s", whole.data);
    CHECK(asks("plain", 1, "own", "\"prompt\":\"Hello, world!\"", answer[2], sizeof answer[2]));
    /* Both answers end with the same text. One of them does not contain the prompt. */
    CHECK_STR(said(answer[2], plain, sizeof plain), whole.data + 13);
    text_fini(&whole);
}

/* Checks the names of tokens in log-probabilities. Two ids have the text "a"; one of them is the
 * byte 0x61. All alternatives must have different names, and the name of the chosen token must not
 * be changed. A token that is one byte of a longer character must be named as a byte. */
static void test_names(void)
{
    struct tokenizer *t = tokenizer_open(in_dir("own", ""), &e);
    struct reply p = {.ids = true, .tokenizer = t};
    struct request r = {.id = "x", .logprobs = 3};
    const int32_t a = t ? tokenizer_id(t, "a", 1) : 0, byte = 0x61 + 3;
    int32_t id[] = {byte, 0xc3 + 3};
    double logprob[] = {-2, -3};
    struct sample_top top[] = {{a, -1}, {byte, -2}, {2, -4}, {2, -1}, {a, -2}, {byte, -3}};
    struct infer_choice c = {
        .tokens = {2, id, logprob, top, 3}, .n_text = 2, .text = "", .size = 0};
    int64_t ends[2] = {0};
    c.token_end = ends;
    const struct infer_answer answer = {.choice = &c, .n = 1};
    char want[512];
    CHECK(t && a > 258 && !reply_batch(&p, &r, 0, "m", &answer, &e));
    snprintf(want, sizeof want,
             "\"tokens\":[\"a\",\"bytes:\\\\xc3\"],\"token_logprobs\":[-2,-3],\"top_logprobs\":["
             "{\"<|token-%d|>\":-1,\"a\":-2,\"</s>\":-4},"
             "{\"</s>\":-1,\"a\":-2,\"<|token-%d|>\":-3,\"bytes:\\\\xc3\":-3}]",
             (int)a, (int)byte);
    CHECK_MSG(p.line && strstr(p.line, want), "%s is not in %s", want, p.line);
    r.is_chat = true;
    CHECK(!reply_batch(&p, &r, 0, "m", &answer, &e));
    CHECK_MSG(strstr(p.line, "{\"token\":\"a\",\"logprob\":-2,\"bytes\":[97],\"top_logprobs\":["),
              "%s", p.line);
    CHECK_MSG(strstr(p.line, "{\"token\":\"bytes:\\\\xc3\",\"logprob\":-3,\"bytes\":[195],"), "%s",
              p.line);
    reply_fini(&p);
    tokenizer_destroy(t);
}

/* Checks that the ids of a prompt give the same answer as its text. Also checks a stop string that
 * occurs in the generated text. */
static void test_stop(void)
{
    static char answer[16384], stopped[16384];
    char body[512], plain[4096], cut[4096];
    CHECK(asks("before", 1, "own", "\"prompt\":\"Hello, world!\"", answer, sizeof answer));
    said(answer, plain, sizeof plain);
    const size_t n = strlen(plain);
    size_t from = n / 2, to;
    while (from && ((unsigned char)plain[from] & 0xc0) == 0x80) from--;
    for (to = from + 1; to < n && (to < from + 3 || ((unsigned char)plain[to] & 0xc0) == 0x80);)
        to++;
    char stop[64] = "", json[256] = "";
    memcpy(stop, plain + from, to - from);
    append_json(json, stop, strlen(stop));
    CHECK_MSG(n > 4, "\"%s\"", plain);
    snprintf(body, sizeof body, "\"prompt\":\"Hello, world!\",\"stop\":%s", json);
    for (int ranks = 1; ranks <= 2; ranks++) {
        CHECK(asks(ranks == 1 ? "stop" : "stop2", ranks, "own", body, stopped, sizeof stopped));
        said(stopped, cut, sizeof cut);
        const char *at = strstr(plain, stop);
        CHECK_MSG(at && strlen(cut) == (size_t)(at - plain) && !strncmp(cut, plain, strlen(cut)) &&
                      strstr(stopped, "\"finish_reason\":\"stop\""),
                  "\"%s\" before \"%s\" of \"%s\"", cut, stop, plain);
    }
}

static void test_prompt(void)
{
    char result[4096], artifact[4096];
    struct order *o = own_job(JOB_GENERATE, "inline", "own");
    o->spec.input.source = (struct spec_source){.eod = -1};
    o->spec.input.prompt = tiny_text(&o->spec, "Hello, world!");
    o->spec.data.seq_len = 512;
    o->spec.sampling.max_tokens = 6;
    o->spec.sampling.ignore_eos = 1;
    if (job_runs(o)) {
        char *lines = get(o->args.job_dir, "artifacts/generate.jsonl");
        CHECK_MSG(strstr(lines, "\"prompt\":\"Hello, world!\""), "%s", lines);
        CHECK_STR(said(lines, artifact, sizeof artifact), said(g.result, result, sizeof result));
        CHECK(*result);
        free(lines);
    }
    o->spec.data.seq_len = 8;
    CHECK_MSG(!family_check(&o->spec, &e), "%s", e.text);
    CHECK(!task_runs(o, TASK_RUN));
    fails("data.seq_len", "sampling.max_tokens 6");
    o->spec.data.seq_len = 512;
    o->spec.model.path = tiny_text(&o->spec, in_dir("unconverted", ""));
    CHECK(!task_runs(o, TASK_RUN));
    fails("model.path", "convert it once");
    free(o);
}

/* Checks a model without tokenizer.json. Requests with ids must be answered. A request with text
 * must be refused, and the job must continue. */
static void test_unconverted(void)
{
    static char answer[16384];
    CHECK(asks("only-ids", 1, "unconverted", "\"prompt\":[5,6,7]", answer, sizeof answer));
    CHECK_MSG(strstr(answer, "\"text\":\"\",\"token_ids\":["), "%s", answer);
    CHECK(!asks("text-too", 2, "unconverted", "\"prompt\":\"abc\"", answer, sizeof answer));
    CHECK_MSG(strstr(g.fail.text, "the first: line 1: prompt is text"), "%s", g.fail.text);
    CHECK_MSG(strstr(answer, "convert it once") && strstr(answer, "\"status_code\":400"), "%s",
              answer);
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    model_dir_begin("test_own_text");
    read_golden();
    put_lines();
    make_model("own", VOCAB);
    RUN(test_prepare);
    RUN(test_id);
    RUN(test_other_sources);
    RUN(test_padding);
    RUN(test_refused);
    RUN(test_train);
    RUN(test_score);
    RUN(test_embed);
    RUN(test_mask);
    RUN(test_batch);
    RUN(test_names);
    RUN(test_stop);
    RUN(test_prompt);
    RUN(test_unconverted);
    free(own_weights);
    model_dir_end();
    return test_done("own_text");
}
