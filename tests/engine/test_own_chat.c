/* Runs complete jobs on conversations. The model directory has its own chat template. Checks which
 * tokens are learnt, the date that a template writes, and which conversations are refused.
 * tests: needs golden/chatml golden/tokenizers seqrank */
#include <math.h>
#include "tests/lib/own_model.h"
#include "worker/data/data.h"
#include "worker/text/tokenizer.h"

static const char chat_template[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/* Two conversations, as records and as the template writes them. */
static const char records[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"},{\"role\":\"assistant\",\"content\":"
    "\"the w\\u00f6rld\"}],\"id\":7,\"tools\":[],\"images\":null,\"chat_template_kwargs\":{}}\n"
    "{\"messages\":[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"assistant\",\"content\":"
    "\"on\"},{\"role\":\"user\",\"content\":\"e\"},{\"role\":\"assistant\",\"content\":\"\"}]}\n";
static const char *const written[] = {
    "<s>[user]Hello</s>[assistant]the w\u00f6rld</s>",
    "<s>[system]be</s>[assistant]on</s>[user]e</s>[assistant]</s>"};
enum { N_RECORDS = 2 };

static void make_chat(const char *dir, const char *jinja)
{
    make_model(dir, VOCAB);
    put(dir, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    put(dir, "chat_template.jinja", jinja);
}

static struct order *chat_job(enum job_kind kind, const char *name, const char *model,
                              const char *lines)
{
    put("", "chat.jsonl", lines);
    return own_order(kind, name, model, "chat.jsonl");
}

/* ---- learnt tokens --------------------------------------------------------------------------- */

/* Tells whether any byte of text[begin, end) is in a turn of the assistant. A turn begins after
 * its header and ends with </s>. */
static bool answers(const char *text, int64_t begin, int64_t end)
{
    static const char header[] = "[assistant]", last[] = "</s>";
    for (const char *p = text; (p = strstr(p, header)) != NULL;) {
        const int64_t from = p + strlen(header) - text;
        p = strstr(p, last) + strlen(last);
        if (begin < p - text && end > from) return true;
    }
    return false;
}

/* Checks one record of prepared data. If all is set, every token is learnt. */
static void check_record(const struct data *d, int i, int64_t at, int64_t n, bool all)
{
    struct tokenizer *t = tokenizer_open(in_dir("chat", ""), &e);
    struct tokens want = {.spans = true};
    int32_t ids[256];
    uint32_t bytes[256], sum = 0;
    uint8_t learn[256];
    CHECK(t && !tokenizer_encode(t, written[i], strlen(written[i]), false, &want, &e));
    CHECK_MSG(n == want.n && n <= 256, "%lld ids, want %lld", (long long)n, (long long)want.n);
    if (n == want.n && n <= 256) {
        CHECK(!data_read(d, at, n, ids, &e) && !data_read_bytes(d, at, n, bytes, &e) &&
              !data_read_mask(d, at, n, learn, &e));
        for (int64_t k = 0; k < n; k++) {
            sum += bytes[k];
            CHECK_MSG(ids[k] == want.id[k], "record %d token %lld", i, (long long)k);
            CHECK_MSG(learn[k] == (all || answers(written[i], want.begin[k], want.end[k])),
                      "record %d token %lld: %d", i, (long long)k, learn[k]);
        }
        CHECK(learn[n - 1] && learn[0] == all && sum == strlen(written[i]));
    }
    text_tokens_fini(&want);
    tokenizer_destroy(t);
}

static void check_prepared(const struct order *o, bool all)
{
    struct data *d = data_open(o->args.prepared_dir, o->args.prepared_id, DATA_CHECK, &e);
    CHECK_MSG(d, "%s", e.text);
    if (!d) return;
    const uint64_t *ends = data_documents(d);
    CHECK(data_stats(d)->n_documents == N_RECORDS);
    for (int i = 0; i < N_RECORDS; i++) {
        const int64_t at = i ? (int64_t)ends[i - 1] : 0;
        check_record(d, i, at, (int64_t)ends[i] - at, all);
    }
    data_close(d);
}

static void test_learnt(void)
{
    static const struct {
        enum loss_on_id loss_on;
        bool all;
    } row[] = {{LOSS_ON_AUTO, false}, {LOSS_ON_ASSISTANT, false}, {LOSS_ON_ALL, true}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct order *o = chat_job(JOB_TRAIN, "learnt", "chat", records);
        o->spec.data.loss_on = row[i].loss_on;
        CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
        check_prepared(o, row[i].all);
        free(o);
    }
}

/* Checks {% generation %} around a turn without bytes, and around a turn that begins in the middle
 * of a token. */
static void test_marked(void)
{
    struct order *o = chat_job(JOB_TRAIN, "marked", "marked", records);
    make_chat("marked", "{% for m in messages %}{% if m.role == 'assistant' %}<s>{% generation %}"
                        "{% endgeneration %}t{% generation %}h{% endgeneration %}e{% else %}e"
                        "{% endif %}{% endfor %}");
    CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
    struct data *d = data_open(o->args.prepared_dir, o->args.prepared_id, DATA_CHECK, &e);
    uint8_t learn[8] = {0};
    int32_t ids[8];
    /* The tokens are "_" "e" "<s>" "_th" "e". The turn of the assistant begins at the h. */
    CHECK(d && data_documents(d)[0] == 5 && !data_read_mask(d, 0, 5, learn, &e) &&
          !data_read(d, 0, 5, ids, &e));
    CHECK(ids[2] == 1 && !memcmp(learn, "\0\0\0\1\0", 5));
    data_close(d);
    free(o);
}

/* ---- the date that templates write ----------------------------------------------------------- */

static void test_day(void)
{
    char id[3][80];
    struct order *o = chat_job(JOB_TRAIN, "day", "day", records);
    make_chat("day", "{% for m in messages %}{{ strftime_now('%Y-%m-%d %H') }}{{ m.role }}"
                     "{% endfor %}{% if add_generation_prompt %}a{% endif %}");
    put("", "chat.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}\n");
    o->spec.data.loss_on = LOSS_ON_ALL;
    for (int i = 0; i < 3; i++) {
        o->args.submitted_s = 1795000000 + (i ? 86400 : 3600 * 4);
        if (i == 2) o->args.submitted_s += 100; /* 2026-11-19, in the afternoon */
        CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
        snprintf(id[i], sizeof id[i], "%s", o->args.prepared_id);
    }
    CHECK(strcmp(id[0], id[1]) != 0 && !strcmp(id[1], id[2]));
    struct data *d = data_open(o->args.prepared_dir, id[1], DATA_CHECK, &e);
    struct tokenizer *t = tokenizer_open(in_dir("day", ""), &e);
    struct text said = {0};
    int32_t ids[64];
    const int64_t n = d ? (int64_t)data_documents(d)[0] : 0;
    CHECK(d && n < 64 && !data_read(d, 0, n, ids, &e));
    CHECK(t && !tokenizer_decode(t, ids, n, false, &said, &e)); /* the text has no end token */
    CHECK_STR(said.data ? said.data : "", "2026-11-19 00user");
    text_fini(&said);
    tokenizer_destroy(t);
    data_close(d);
    free(o);
}

/* Checks a template that does not write the date. The data must then not depend on the date. */
static void test_no_day(void)
{
    char id[80];
    struct order *o = chat_job(JOB_TRAIN, "no-day", "chat", records);
    CHECK(prepares(o));
    strcpy(id, o->args.prepared_id);
    o->args.submitted_s = 1795000000;
    CHECK(prepares(o) && !strcmp(id, o->args.prepared_id));
    put("chat", "chat_template.jinja", "{{ messages[0].content }}");
    o->spec.data.loss_on = LOSS_ON_ALL;
    CHECK(prepares(o) && strcmp(id, o->args.prepared_id) != 0);
    put("chat", "chat_template.jinja", chat_template);
    free(o);
}

/* ---- whole jobs ------------------------------------------------------------------------------ */

static void test_train(void)
{
    double loss[2] = {0};
    char hf[1300];
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct order *o = chat_job(JOB_TRAIN, ranks == 1 ? "train" : "train2", "chat", records);
        o->spec.resources.ranks = ranks;
        o->spec.eval.n_data = 1;
        o->spec.eval.data[0] = o->spec.data.train[0];
        o->spec.eval.at_end = 1;
        if (job_runs(o)) {
            const struct gang_event *ev = gang_event(&g, EV_EVAL, 0);
            loss[ranks - 1] = number(g.result, "loss");
            CHECK(ev && number(ev->json, "loss") > 1);
            if (ev) { /* "the w\u00f6rld</s>", "on</s>" and "</s>" are learnt */
                const double bits = number(ev->json, "loss") * number(ev->json, "targets") / log(2);
                CHECK_MSG(fabs(number(ev->json, "bits_per_byte") - bits / 24) < 1e-9, "%s",
                          ev->json);
            }
            text(g.result, "hf", hf, sizeof hf);
            CHECK(same_file("chat", hf, "chat_template.jinja"));
        }
        free(o);
    }
    CHECK_MSG(loss[0] > 1 && fabs(loss[0] - loss[1]) < 1e-5, "%.17g %.17g", loss[0], loss[1]);
}

static void test_score_and_embed(void)
{
    struct order *o = chat_job(JOB_SCORE, "score", "chat", records);
    o->spec.data.seq_len = 8192;
    if (job_runs(o)) /* learns "the w\u00f6rld</s>", "on</s>" and "</s>" */
        CHECK_MSG(number(g.result, "bytes") == 14 + 6 + 4, "%s", g.result);
    free(o);
    o = chat_job(JOB_EMBED, "embed", "chat", records);
    if (job_runs(o)) CHECK(number(g.result, "documents") == N_RECORDS);
    free(o);
}

/* ---- completions ----------------------------------------------------------------------------- */

static bool asks_chat(const char *name, int ranks, const char *model, const char *body,
                      char answer[16384])
{
    char whole[1024];
    snprintf(whole, sizeof whole, "\"ignore_eos\":true,%s", body);
    return own_asks(name, ranks, model, "/v1/chat/completions", whole, answer, 16384);
}

/* Returns the text of a member of an answer. The value is a list of numbers or a string. */
static const char *part(const char *answer, const char *key, char end, char out[4096])
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *p = strstr(answer, name), *q = p ? strchr(p + strlen(name) + 1, end) : NULL;
    snprintf(out, 4096, "%.*s", q ? (int)(q - p) : 0, q ? p : "");
    return out;
}

/* Renders the messages below with the template, up to the beginning of the answer. Writes the ids
 * of the rendered text to `out` as JSON. */
static void written_ids(char out[1024])
{
    static const char prompt[] = "<s>[user]Hello</s>[assistant]";
    struct tokenizer *t = tokenizer_open(in_dir("chat", ""), &e);
    struct tokens ids = {0};
    CHECK(t && !tokenizer_encode(t, prompt, strlen(prompt), false, &ids, &e));
    *out = 0;
    for (int64_t i = 0; i < ids.n; i++)
        sprintf(out + strlen(out), "%s%d", i ? "," : "", (int)ids.id[i]);
    text_tokens_fini(&ids);
    tokenizer_destroy(t);
}

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]"

/* Checks that the answer to a conversation equals the answer to a prompt that consists of the ids
 * of the rendered text. Also checks that the answer has the members that OpenAI's API defines. */
static void test_completion(void)
{
    static char chat[2][16384], plain[16384];
    char ids[1024], prompt[1100], one[4096], two[4096];
    written_ids(ids);
    snprintf(prompt, sizeof prompt, "\"ignore_eos\":true,\"prompt\":[%s],\"max_tokens\":9", ids);
    CHECK(own_asks("plain", 1, "chat", "/v1/completions", prompt, plain, sizeof plain));
    for (int ranks = 1; ranks <= 2; ranks++) {
        CHECK(asks_chat(ranks == 1 ? "ask" : "ask2", ranks, "chat",
                        HELLO ",\"max_completion_tokens\":9,\"tools\":null,\"model\":\"m\"",
                        chat[ranks - 1]));
        CHECK_STR(part(chat[ranks - 1], "token_ids", ']', one), part(plain, "token_ids", ']', two));
        CHECK_STR(part(chat[ranks - 1], "usage", '}', one), part(plain, "usage", '}', two));
        CHECK(*one && strstr(chat[ranks - 1], "\"completion_tokens\":9"));
    }
    CHECK_STR(chat[0], chat[1]);
    CHECK_MSG(strstr(chat[0], "\"body\":{\"id\":\"chatcmpl-0\",\"object\":\"chat.completion\","
                              "\"created\":1795100000,\"model\":") &&
                  strstr(chat[0], "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                                  "\"content\":\"") &&
                  strstr(chat[0], "\"finish_reason\":\"length\",\"logprobs\":null}]"),
              "%s", chat[0]);
    CHECK(!strstr(chat[0], "\"text\":"));
    /* The content of the message equals the text of the completion. */
    part(chat[0], "content", '"', one);
    part(plain, "text", '"', two);
    CHECK(strlen(two) > 8 && !strcmp(one + strlen("\"content"), two + strlen("\"text")));
}

static void test_completion_logprobs(void)
{
    static char answer[16384];
    char name[4096];
    CHECK(asks_chat("logprobs", 1, "chat",
                    HELLO ",\"max_tokens\":2,\"logprobs\":true,\"top_logprobs\":3", answer));
    const char *p = strstr(answer, "\"logprobs\":{\"content\":[{\"token\":\"");
    CHECK_MSG(p && strstr(p, "\"top_logprobs\":[{\"token\":\""), "%s", answer);
    int n = 0;
    for (const char *q = p; q && (q = strstr(q, "\"token\":")) != NULL; q++) n++;
    CHECK_MSG(n == 2 * (1 + 3), "%d names: %s", n, answer);
    /* Sampling is greedy, so the first alternative is the chosen token. */
    part(p ? p : "", "token", ']', name);
    CHECK(p && strlen(name) > 10 && strstr(strstr(p, "top_logprobs"), name));
    CHECK(asks_chat("no-logprobs", 1, "chat", HELLO ",\"logprobs\":false", answer));
    CHECK(strstr(answer, "\"logprobs\":null"));
}

/* Checks that the date and the tokens that a template writes are the same on every rank. */
static void test_completion_day(void)
{
    static char chat[16384], plain[16384];
    char ids[1024], prompt[1100];
    written_ids(ids);
    make_chat("dated", "{{ bos_token }}{% if strftime_now('%d.%m.%Y %H:%M') == '19.11.2026 00:00' "
                       "%}[user]Hello{{ eos_token }}[assistant]{% endif %}");
    snprintf(prompt, sizeof prompt, "\"ignore_eos\":true,\"prompt\":[%s]", ids);
    CHECK(own_asks("undated", 1, "dated", "/v1/completions", prompt, plain, sizeof plain));
    CHECK(asks_chat("dated-2", 2, "dated", HELLO, chat));
    char one[4096], two[4096];
    CHECK_STR(part(chat, "usage", '}', one), part(plain, "usage", '}', two));
    CHECK_STR(part(chat, "token_ids", ']', one), part(plain, "token_ids", ']', two));
}

/* Checks that eos_token of tokenizer_config.json ends an answer on every rank, even if
 * generation_config.json lists other ids. */
static void test_completion_end(void)
{
    static char answer[16384];
    char config[256], ids[4096];
    size_t n = 0;
    CHECK(asks_chat("no-end", 1, "chat", HELLO, answer));
    struct tokenizer *t = tokenizer_open(in_dir("chat", ""), &e);
    part(answer, "token_ids", ']', ids);
    const char *first = t ? tokenizer_content(t, atoi(ids + strlen("\"token_ids\":[")), &n) : "";
    snprintf(config, sizeof config, "{\"bos_token\":\"<s>\",\"eos_token\":\"%.*s\"}", (int)n,
             first);
    CHECK_MSG(n > 0 && !memchr(first, '"', n) && !memchr(first, '\\', n), "%s", config);
    make_chat("ends", "{{ bos_token }}[user]Hello</s>[assistant]");
    put("ends", "tokenizer_config.json", config);
    for (int ranks = 1; ranks <= 2; ranks++) {
        CHECK(own_asks(ranks == 1 ? "end-1" : "end-2", ranks, "ends", "/v1/chat/completions", HELLO,
                       answer, sizeof answer));
        CHECK_MSG(strstr(answer, "\"content\":\"\"}") && strstr(answer, "\"token_ids\":[],") &&
                      strstr(answer, "\"finish_reason\":\"stop\""),
                  "%s", answer);
    }
    tokenizer_destroy(t);
}

/* Checks a request that is refused. A job that answers no request must fail, but it must write its
 * results first. */
static void refuses_chat(const char *name, int ranks, const char *model, const char *body,
                         char answer[16384])
{
    CHECK(!asks_chat(name, ranks, model, body, answer));
    CHECK_STR(g.fail.field, "input.path");
    CHECK_MSG(g.n_fails == 1 && strstr(g.fail.text, "no request of input.path was answered, 1 of 1 "
                                                    "were refused: mend what errors.jsonl of this "
                                                    "job says of each; the first: line 1: "),
              "%s", g.fail.text);
    CHECK_MSG(g.n_artifacts == 2 && strstr(g.result, "\"refused\":1"), "%s", g.result);
}

static void test_completion_refused(void)
{
    static const struct {
        const char *body, *field, *why;
    } row[] = {
        {HELLO ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", "tools",
         "are not parsed"},
        {HELLO ",\"functions\":[{}]", "functions", "give tools"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]",
         "messages[0].content[0].type", "no images"},
        {"\"messages\":[]", "messages", "one message"},
        {"\"messages\":\"hi\"", "messages", "a list"},
        {"\"prompt\":\"hi\"", "prompt", "give messages"},
        {HELLO ",\"echo\":true", "echo", "has no echo"},
        {HELLO ",\"max_tokens\":3,\"max_completion_tokens\":3", "max_completion_tokens", "are one"},
        {HELLO ",\"max_tokens\":13", "max_tokens", "planned for"},
        {HELLO ",\"top_logprobs\":2", "top_logprobs", "say \\\"logprobs"},
        {HELLO ",\"logprobs\":3", "logprobs", "true or false"},
        {HELLO ",\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "between 0 and 20"},
        {"\"max_tokens\":3", "messages", "missing"},
    };
    static char answer[16384];
    char param[64];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        refuses_chat("refuse", 1, "chat", row[i].body, answer);
        CHECK_MSG(strstr(answer, "\"message\":\"line 1: "), "%s", answer);
        snprintf(param, sizeof param, "\"param\":\"%s\"", row[i].field);
        CHECK_MSG(strstr(answer, "\"status_code\":400") && strstr(answer, param) &&
                      strstr(answer, row[i].why),
                  "%s: %s", row[i].body, answer);
        file_remove(in_dir("refuse", ""), &e);
    }
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *job = ranks == 1 ? "none-1" : "none-2";
        refuses_chat(job, ranks, "none", HELLO, answer);
        CHECK_MSG(strstr(answer, "line 2: the tag 'include'"), "%s", answer);
    }
    CHECK(!unlink(in_dir("none", "chat_template.jinja")));
    refuses_chat("none-3", 2, "none", HELLO, answer);
    CHECK_MSG(strstr(answer, "add its chat_template.jinja"), "%s", answer);
}

/* ---- ChatML, which does not read parts ------------------------------------------------------- */

static void make_chatml(void)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja"};
    char path[128];
    make_model("chatml", 260);
    put("chatml", "generation_config.json", "{\"eos_token_id\":[1]}");
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "tests/golden/chatml/%s", names[i]);
        char *content = file_read(path, 1 << 20, NULL, &e);
        CHECK_MSG(content, "%s", e.text);
        put("chatml", names[i], content);
        free(content);
    }
}

static void check_prompt(const char *name, const char *messages, int tokens)
{
    static char answer[16384];
    char body[1024], want[64];
    snprintf(body, sizeof body, "\"model\":\"x\",\"messages\":%s,\"max_tokens\":1", messages);
    snprintf(want, sizeof want, "\"prompt_tokens\":%d,", tokens);
    CHECK(asks_chat(name, 1, "chatml", body, answer));
    CHECK_MSG(strstr(answer, want), "want %s %s", want, answer);
}

/* Compares prompts with the text that apply_chat_template of transformers 5.24 writes. */
static void test_prompts(void)
{
    check_prompt("null",
                 "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
                 "\"content\":null},{\"role\":\"user\",\"content\":\"y\"}]",
                 43);
    check_prompt("parts", "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}]",
                 21);
    check_prompt("plain", "[{\"role\":\"user\",\"content\":\"hi\"}]", 21);
}

/* Checks a turn without content. Only its end must be learnt. */
static void test_null_learnt(void)
{
    static const char want[] = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
                               "<|im_end|>\n<|im_start|>user\ny<|im_end|>\n<|im_start|>assistant\n"
                               "z<|im_end|>\n";
    struct order *o = chat_job(
        JOB_TRAIN, "null-learnt", "chatml",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
        "null},{\"role\":\"user\",\"content\":\"y\"},{\"role\":\"assistant\",\"content\":\"z\"}]}"
        "\n");
    CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
    struct data *d = data_open(o->args.prepared_dir, o->args.prepared_id, DATA_CHECK, &e);
    struct tokenizer *t = tokenizer_open(in_dir("chatml", ""), &e);
    struct tokens ids = {0};
    int32_t got[64];
    CHECK(t && !tokenizer_encode(t, want, strlen(want), false, &ids, &e));
    const int64_t n = d ? (int64_t)data_documents(d)[0] : 0;
    CHECK_MSG(n == ids.n && n < 64, "%lld tokens, want %lld", (long long)n, (long long)ids.n);
    CHECK(n < 64 && !data_read(d, 0, n, got, &e) && !memcmp(got, ids.id, (size_t)n * sizeof *got));
    CHECK(data_stats(d)->n_masked == n - 2 - 3); /* the tokens "<|im_end|>\n" twice, and "z" */
    text_tokens_fini(&ids);
    tokenizer_destroy(t);
    data_close(d);
    free(o);
}

/* Checks a prompt and a completion that are lists of messages. The turns of the assistant in the
 * completion are learnt, those in the prompt are not, and with data.loss_on "all" everything is. */
static void test_talk(void)
{
    static const char line[] =
        "{\"completion\":[{\"role\":\"assistant\",\"content\":\"the w\u00f6rld\"}, "
        "{\"role\":\"user\",\"content\":\"e\"},{\"role\":\"assistant\",\"content\":\"on\"} ],"
        "\"prompt\":[ "
        "{\"role\":\"user\",\"content\":\"Hello\"},{\"role\":\"assistant\",\"content\":"
        "\"be\"},{\"role\":\"user\",\"content\":\"on\"}]}\n";
    static const char text[] = "<s>[user]Hello</s>[assistant]be</s>[user]on</s>[assistant]"
                               "the w\u00f6rld</s>[user]e</s>[assistant]on</s>";
    const int64_t given = strstr(text, "the w") - text;
    static const enum loss_on_id ways[] = {LOSS_ON_AUTO, LOSS_ON_ASSISTANT, LOSS_ON_COMPLETION,
                                           LOSS_ON_ALL};
    struct tokenizer *t = tokenizer_open(in_dir("chat", ""), &e);
    struct tokens want = {.spans = true};
    CHECK(t && !tokenizer_encode(t, text, strlen(text), false, &want, &e));
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct order *o = chat_job(JOB_TRAIN, "talk", "chat", line);
        o->spec.data.loss_on = ways[w];
        CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
        struct data *d = data_open(o->args.prepared_dir, o->args.prepared_id, DATA_CHECK, &e);
        int32_t id[128];
        uint8_t learn[128];
        const int64_t n = d ? (int64_t)data_documents(d)[0] : 0;
        CHECK_MSG(n == want.n && n <= 128, "%lld tokens, want %lld", (long long)n,
                  (long long)want.n);
        if (n != want.n || n > 128) break;
        CHECK(!data_read(d, 0, n, id, &e) && !data_read_mask(d, 0, n, learn, &e));
        for (int64_t k = 0; k < n; k++) {
            const bool said = want.end[k] > given && answers(text, want.begin[k], want.end[k]);
            CHECK_MSG(id[k] == want.id[k] && learn[k] == (ways[w] == LOSS_ON_ALL || said),
                      "way %zu token %lld: %d", w, (long long)k, learn[k]);
        }
        data_close(d);
        free(o);
    }
    text_tokens_fini(&want);
    tokenizer_destroy(t);
    struct order *o = chat_job(JOB_SCORE, "talk-score", "chat", line);
    o->spec.data.seq_len = 8192;
    if (job_runs(o)) CHECK_MSG(number(g.result, "bytes") == 14 + 6, "%s", g.result);
    free(o);
    /* a turn of the prompt is not learnt, and may have such a member */
    o = chat_job(JOB_TRAIN, "talk-weight", "chat",
                 "{\"prompt\":[{\"role\":\"assistant\",\"weight\":0,\"content\":\"a\"},"
                 "{\"role\":\"user\",\"content\":\"on\"}],\"completion\":[{\"role\":\"assistant\","
                 "\"content\":\"b\"}]}\n");
    CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
    free(o);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void check_refused(const char *model, enum loss_on_id loss_on, const char *field,
                          const char *record, const char *why)
{
    char lines[2048];
    snprintf(lines, sizeof lines, "{\"input_ids\":[1],\"labels\":[1]}\n%s\n", record);
    struct order *o = chat_job(JOB_TRAIN, "refused", model, lines);
    o->spec.data.loss_on = loss_on;
    CHECK_MSG(!prepares(o), "%s", record);
    CHECK_MSG(strstr(g.fail.text, "chat.jsonl line 2: "), "%s", g.fail.text);
    fails(field, why);
    free(o);
}

#define SAYS "{\"role\":\"user\",\"content\":\"a\"}"

static void test_refused(void)
{
    static const struct {
        const char *record, *why;
        enum loss_on_id loss_on;
    } row[] = {
        {"{\"messages\":[" SAYS "],\"tools\":[{\"name\":\"f\"}]}", "line 2: tools: ", 0},
        {"{\"functions\":[1],\"messages\":[" SAYS "]}", "line 2: functions: ", 0},
        {"{\"messages\":[" SAYS "],\"images\":[\"x.png\"]}", "line 2: images: ", 0},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
         "{\"type\":\"image_url\"}]}]}",
         "line 2: messages[0].content[1].type: ", 0},
        {"{\"messages\":[{\"role\":\"user\",\"images\":[1]}]}", "line 2: messages[0].images: ", 0},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]}",
         "line 2: messages[0].content: line 1 of the chat template prints", 0},
        {"{\"messages\":[1]}", "line 2: messages[0]: ", 0},
        {"{\"messages\":[" SAYS "],\"body\":\"x\"}", "both \"body\" and \"messages\"", 0},
        {"{\"messages\":[" SAYS "],\"messages\":[]}", "occurs twice", 0},
        {"{\"messages\":\"a\"}", "line 2: \"messages\" is a string: it must be a list", 0},
        {"{\"messages\":null}", "line 2: \"messages\" is null: it must be a list of messages", 0},
        {"{\"messages\":{\"role\":\"user\"}}", "line 2: \"messages\" is an object: ", 0},
        {"{\"messages\":7,\"id\":1}", "line 2: \"messages\" is a number: ", 0},
        {"{\"messages\":[" SAYS ",{\"role\":\"assistant\",\"content\":\"b\",\"train\":false}]}",
         "line 2: messages[1].train: each turn of the assistant is learnt", 0},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"b\",\"weight\":0}]}",
         "messages[0].weight: ", 0},
        {"{\"prompt\":[" SAYS "],\"completion\":[" SAYS "]}",
         "line 2: the answer begins with a turn of the role \"user\", and", 0},
        {"{\"prompt\":[" SAYS "],\"completion\":[]}", "\"completion\" has no message", 0},
        {"{\"prompt\":[],\"completion\":[" SAYS "]}", "\"prompt\" has no message", 0},
        {"{\"messages\":[" SAYS "],\"chat_template_kwargs\":{\"a\":1}}",
         "line 2: chat_template_kwargs: ", 0},
        {"{\"prompt\":[" SAYS "],\"completion\":[" SAYS "],\"tools\":[{}]}", "line 2: tools: ", 0},
        {"{\"messages\":null,\"prompt\":\"a\"}", "\"prompt\" needs \"completion\"", 0},
        {"{\"messages\":[" SAYS, "JSON", 0},
        {"{\"messages\":[" SAYS "]}", "data.loss_on is \"completion\"", LOSS_ON_COMPLETION},
        {"{\"body\":\"a\"}", "data.loss_on is \"assistant\"", LOSS_ON_ASSISTANT},
        {"{\"input_ids\":[1]}", "data.loss_on is \"assistant\"", LOSS_ON_ASSISTANT},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        check_refused("chat", row[i].loss_on, "data.train.0.path", row[i].record, row[i].why);
}

static void test_no_template(void)
{
    static const char record[] = "{\"messages\":[" SAYS "]}";
    make_chat("none", "");
    CHECK(!unlink(in_dir("none", "chat_template.jinja")));
    check_refused("none", LOSS_ON_AUTO, "model.path", record, "add its chat_template.jinja");
    put("none", "chat_template.jinja", "\n{% include 'x' %}");
    check_refused("none", LOSS_ON_AUTO, "model.path", record, "line 2: the tag 'include'");
    struct order *o = chat_job(JOB_TRAIN, "unused", "none", "{\"body\":\"a\"}\n");
    /* no conversation needs the missing part of the directory */
    CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
    o->spec.data.tokenizer = TOKENIZER_BYTE;
    static const char talk[] = "{\"prompt\":[" SAYS "],\"completion\":[" SAYS "]}";
    put("", "chat.jsonl", record);
    CHECK(!prepares(o));
    fails("model.path", "\"messages\" is a conversation, and this job reads text as bytes");
    put("", "chat.jsonl", talk);
    CHECK(!prepares(o));
    fails("model.path", "\"prompt\" is a conversation, and this job reads text as bytes");
    free(o);
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    model_dir_begin("test_own_chat");
    make_chat("chat", chat_template);
    make_chatml();
    RUN(test_learnt);
    RUN(test_marked);
    RUN(test_day);
    RUN(test_no_day);
    RUN(test_train);
    RUN(test_score_and_embed);
    RUN(test_prompts);
    RUN(test_null_learnt);
    RUN(test_talk);
    RUN(test_refused);
    RUN(test_no_template);
    RUN(test_completion);
    RUN(test_completion_logprobs);
    RUN(test_completion_day);
    RUN(test_completion_end);
    RUN(test_completion_refused);
    free(own_weights);
    model_dir_end();
    return test_done("own_chat");
}
