/* test_chat: checks how chat templates render conversations, and which parts of the rendered text
 * are turns of the assistant. */
#include "worker/text/chat_model.h"

#include <unistd.h>

#include "api/core/file.h"
#include "tests/lib/test.h"

/* A template in the style of ChatML. */
static const char plain[] =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
static const char marked[] =
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}[{{ m.content }}]{% endif %}{% endfor %}";
/* A template that leaves out the reasoning of all turns but the last, as many published templates
 * do. */
static const char forgets[] =
    "{% for m in messages %}<{{ m.role }}>{% if loop.last and m.reasoning_content %}"
    "({{ m.thinking }}){% endif %}{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

/* A template that ends the last turn otherwise. */
static const char otherwise[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{{ '!' if loop.last and m.role == 'assistant' else '.' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

/* This template accepts only strings. */
static const char strings[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
/* This template accepts strings and lists of parts. */
static const char both[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

static const char talk[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"\\u00e9\"}, {\"role\": \"assistant\", "
    "\"content\": \"one\"}, {\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", "
    "\"content\": \"\"}]}";

static struct template *compile(const char *text)
{
    struct err e = {0};
    struct template *t = jinja_create(text, (int64_t)strlen(text), &e);
    CHECK_MSG(t, "%s", e.text);
    return t;
}

static void check_text(const char *source, const char *json, bool prompt, const char *want)
{
    static const char *const name[] = {"bos_token"}, *const value[] = {"^"};
    const struct chat_tokens tokens = {name, value, 1};
    struct template *t = compile(source);
    struct template_output o = {0};
    struct err e = {0};
    CHECK_MSG(!chat_render(t, json, (int64_t)strlen(json), &tokens, prompt, 0, &o, &e), "%s",
              e.text);
    CHECK_MSG(o.size == (int64_t)strlen(want) && !memcmp(o.text, want, (size_t)o.size),
              "got \"%.*s\", want \"%s\"", (int)o.size, o.text, want);
    jinja_output_fini(&o);
    jinja_destroy(t);
}

static void test_render(void)
{
    check_text(plain, talk, false,
               "^<user>\xc3\xa9</>\n<assistant>one</>\n<user>b</>\n<assistant></>\n");
    check_text(plain, "{\"messages\": []}", true, "^<assistant>");
    check_text(plain, "{\"messages\": [], \"bos_token\": \"own\"}", false, "own");
    check_text("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ x }}",
               "{\"messages\": [], \"x\": 1, \"add_generation_prompt\": 7}", false,
               "True True False 1");
}

/* Checks that a member of a message counts as absent if its value is null. A null inside of a
 * member's value must be kept. */
static void test_null(void)
{
    check_text(plain,
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
               "\"assistant\", \"content\": null, \"name\": null}]}",
               false, "^<user>a</>\n<assistant></>\n");
    check_text("{% for m in messages %}{{ m | tojson }}{{ m.content is defined }};{% endfor %}",
               "{\"messages\": [{\"content\": null, \"a\": {\"b\": null}, \"tool_calls\": null, "
               "\"images\": null}, {\"content\": \"\"}]}",
               false, "{\"a\": {\"b\": null}}False;{\"content\": \"\"}True;");
}

#define ANSWER_OF(content)                                                                         \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "         \
    "\"content\": " content "}]}"
#define PARTS "{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}"

/* Checks a message whose content consists of parts. If the template does not read parts, the parts
 * must be joined. If the template reads parts, they must be passed unchanged. */
static void test_parts(void)
{
    static const char two[] = "{\"messages\": [{\"role\": \"user\", \"content\": [" PARTS "]}]}";
    check_text(plain, two, true, "^<user>a\nb</>\n<assistant>");
    check_text("{% for m in messages %}{{ m.content | trim }}{% endfor %}", two, false, "a\nb");
    check_text("{% for m in messages %}{{ 'x' + m.content }}{% endfor %}", two, false, "xa\nb");
    check_text("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}"
               "{% endfor %}",
               two, false, "a\nb");
    check_text("{% for m in messages %}{% if m.content is string %}s{% else %}"
               "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}",
               two, false, "(a)(b)");
    check_text(strings, ANSWER_OF("[]"), false, "<user>a<assistant>");
    check_text("{% for m in messages %}{% if m.content is string %}({{ m.content }}){% endif %}"
               "{% endfor %}",
               ANSWER_OF("[]"), false, "(a)()");
    check_text("{% for m in messages %}{{ m.content[0]['text'] }}{% endfor %}", two, false, "a");
    check_text("{% for m in messages %}{{ m.content | map(attribute='text') | join('+') }}"
               "{% endfor %}",
               two, false, "a+b");
}

static void check_not_rendered(const char *source, const char *json, const char *field,
                               const char *why)
{
    struct template *t = compile(source);
    struct template_output o = {0};
    struct err e = {0};
    CHECK(chat_render(t, json, (int64_t)strlen(json), NULL, true, 0, &o, &e));
    CHECK_STR(e.field, field);
    CHECK_MSG(strstr(e.text, why), "%s", e.text);
    CHECK(o.size == 0);
    jinja_output_fini(&o);
    jinja_destroy(t);
}

static void check_refused(const char *source, const char *json, const char *field, const char *why)
{
    struct template *t = compile(source);
    struct template_output o = {0};
    struct err e = {0};
    CHECK(chat_render_spans(t, json, (int64_t)strlen(json), NULL, 0, 0, &o, &e));
    CHECK_STR(e.field, field);
    CHECK_MSG(strstr(e.text, why), "%s", e.text);
    CHECK(o.size == 0 && o.n_spans == 0);
    jinja_output_fini(&o);
    jinja_destroy(t);
}

static void test_parts_refused(void)
{
    check_not_rendered(plain,
                       "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
                       "\"text\", \"text\": 1}]}]}",
                       "messages[0].content[0].text", "has a text");
    check_not_rendered("{{ messages }}", talk, "messages", "line 1 of the chat template prints");
    check_not_rendered("a\n{% for m in messages %}{{ m.tool_calls }}{% endfor %}",
                       "{\"messages\": [{\"tool_calls\": [{\"f\": 1}]}]}", "messages",
                       "line 2 of the chat template prints a list or a mapping");
    check_not_rendered("{% for m in messages %}{{ m.content }}{% endfor %}",
                       "{\"messages\": [{\"content\": {\"a\": 1}}]}", "messages", "prints");
}

/* A template that joins strings, and fails for any other content. */
static const char adds[] =
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '</>' }}{% endfor %}";

/* Checks the error of a template that fails because of a content. The error must name the first
 * content that is not a string, the fix, and the error of the template. */
static void test_content_named(void)
{
    static const struct {
        const char *content, *is;
    } row[] = {{"null", "null"},
               {"7", "a number"},
               {"1.5", "a number"},
               {"true", "true or false"},
               {"{\"a\":1}", "an object"}};
    char json[256], want[192];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(json, sizeof json,
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                 "\"assistant\", \"content\": %s}]}",
                 row[i].content);
        snprintf(want, sizeof want,
                 "messages[1].content is %s, and the model's chat template fails: give the content "
                 "as a string (chat template, line 1: ",
                 row[i].is);
        check_not_rendered(adds, json, "messages[1].content", want);
        check_refused(adds, json, "messages[1].content", want);
    }
    check_not_rendered(adds, "{\"messages\": [{\"role\": \"user\"}]}", "messages[0].content",
                       "is missing");
    check_refused(adds, ANSWER_OF("[" PARTS "]"), "messages[1].content", "is a list of parts");
    check_text(adds, ANSWER_OF("[" PARTS "]"), false, "<user>a</><assistant>a\nb</>");
    /* An error that the template itself raises is reported unchanged. An error in a conversation
     * whose contents are all strings is also reported unchanged. */
    check_not_rendered("{{ raise_exception('roles alternate') }}", ANSWER_OF("null"), "",
                       "chat template, line 1: roles alternate");
    check_not_rendered("{{ 'a' + 1 }}", talk, "", "chat template, line 1: ");
}

/* Checks that a template can read the reasoning text under three names, and that the members of a
 * message are in the same order as in transformers. */
static void test_reasoning(void)
{
    const char *source = "{% for m in messages %}{{ m | tojson }}{% endfor %}";
    check_text(source, "{\"messages\": [{\"role\": \"assistant\", \"reasoning\": \"r\"}]}", false,
               "{\"thinking\": \"r\", \"role\": \"assistant\", \"reasoning\": \"r\", "
               "\"reasoning_content\": \"r\"}");
    check_text(source, "{\"messages\": [{\"reasoning_content\": null, \"thinking\": \"t\"}]}",
               false, "{\"thinking\": \"t\", \"reasoning_content\": \"t\"}");
    check_text(source, "{\"messages\": [{\"reasoning_content\": null}]}", false, "{}");
}

static void check_spans_from(const char *source, const char *json, int64_t first,
                             const char *const *want, int n)
{
    struct template *t = compile(source);
    struct template_output o = {0};
    struct err e = {0};
    CHECK_MSG(!chat_render_spans(t, json, (int64_t)strlen(json), NULL, first, 0, &o, &e), "%s",
              e.text);
    CHECK_MSG(o.n_spans == n, "%d spans", (int)o.n_spans);
    for (int i = 0; i < n && i < o.n_spans; i++) {
        const int64_t size = o.span[i].end - o.span[i].begin;
        CHECK_MSG(size == (int64_t)strlen(want[i]) &&
                      !memcmp(o.text + o.span[i].begin, want[i], (size_t)size),
                  "got \"%.*s\", want \"%s\"", (int)size, o.text + o.span[i].begin, want[i]);
    }
    jinja_output_fini(&o);
    jinja_destroy(t);
}

static void check_spans(const char *source, const char *json, const char *const *want, int n)
{
    check_spans_from(source, json, 0, want, n);
}

static void test_spans(void)
{
    check_spans(plain, talk, (const char *const[]){"one</>\n", "</>\n"}, 2);
    check_spans(marked, talk, (const char *const[]){"one", ""}, 2);
    check_spans(forgets, talk, (const char *const[]){"one", ""}, 2);
    check_spans(plain, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", NULL, 0);
    check_spans(plain, "{\"messages\": []}", NULL, 0);
    check_spans(both, ANSWER_OF("[" PARTS "]"), (const char *const[]){"(a)(b)"}, 1);
    check_spans(both, ANSWER_OF("[]"), (const char *const[]){""}, 1);
    check_spans(strings, ANSWER_OF("[]"), (const char *const[]){""}, 1);
}

#define REASONED                                                                                   \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "         \
    "\"content\": \"b\", \"reasoning\": \"r\"}, {\"role\": \"user\", \"content\": \"c\"}"

#define TALK_ON REASONED ", {\"role\": \"assistant\", \"content\": \"d\"}]}"

/* Checks that only turns from a given message on must have a place. */
static void test_spans_from(void)
{
    check_refused(otherwise, TALK_ON, "messages[1]", "the turn's place cannot be told");
    check_spans_from(otherwise, TALK_ON, 2, (const char *const[]){"d!"}, 1);
    check_spans_from(plain, talk, 3, (const char *const[]){"</>\n"}, 1);
    check_spans_from(plain, talk, 4, NULL, 0);
}

/* The template of Qwen3 in short. It writes turns after the last question otherwise. */
static const char qwen3[] =
    "{%- set ns = namespace(last=messages|length - 1, seek=true) %}"
    "{%- for m in messages[::-1] %}{%- set index = messages|length - 1 - loop.index0 %}"
    "{%- if ns.seek and m.role == 'user' %}{%- set ns.seek = false %}"
    "{%- set ns.last = index %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{%- if m.role == 'assistant' %}"
    "{%- set content = m.content.split('</think>')[-1].lstrip('\n') %}"
    "{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n')"
    " if '</think>' in m.content else '' %}"
    "{%- if loop.index0 > ns.last and (loop.last or thought) %}"
    "{{- '<|assistant\n<think>\n' + thought + '\n</think>\n\n' + content }}"
    "{%- else %}{{- '<|assistant\n' + content }}{%- endif %}"
    "{%- for call in m.tool_calls %}{{- '\n[' + call.name + ']' }}{%- endfor %}{{- '|>\n' }}"
    "{%- else %}{{- '<|' + m.role + '\n' + m.content + '|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant\n' }}{%- endif %}";

#define USER(text)   "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ANSWER(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define CALLS                                                                                      \
    "{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": \"<think>r</think>\", " \
                                 "\"tool_calls\": [{\"name\": \"f\"}]}, {\"role\": \"tool\", "     \
                                 "\"content\": \"1\"}, " ANSWER("b")

/* Checks turns that a template writes otherwise when more follows: they are as the whole
 * conversation has them. */
static void test_earlier_turns(void)
{
    static const char talks[] =
        "{\"messages\": [" USER("a") ", " ANSWER("b b") ", " USER("b b|>\\n") ", " ANSWER(
            "<think>r</think>c \\n") ", " USER("d") ", " ANSWER("") ", " USER("e") ", " ANSWER("f") "]}";
    static const char *const want[] = {"b b|>\n", "c \n|>\n", "|>\n",
                                       "<think>\n\n</think>\n\nf|>\n"};
    static const char *const calls[] = {"<think>\nr\n</think>\n\n\n[f]|>\n",
                                        "<think>\n\n</think>\n\nb|>\n"};
    check_spans(forgets, REASONED "]}", (const char *const[]){"b"}, 1);
    check_spans(forgets, TALK_ON, (const char *const[]){"b", "d"}, 2);
    check_spans(qwen3, talks, want, 4);
    check_spans(qwen3, CALLS "]}", calls, 2); /* the last question is before the first turn */
    check_spans(qwen3, CALLS ", " USER("c") "]}", (const char *const[]){"\n[f]|>\n", "b|>\n"}, 2);
    check_spans("{% for m in messages %}<{{ m.role }}>{% if loop.last %}!{% endif %}"
                "{% for p in m.content %}{{ p.text }}{% endfor %};{% endfor %}",
                "{\"messages\": [{\"role\": \"assistant\", \"content\": [" PARTS
                "]}, {\"role\": \"user\", \"content\": []}]}",
                (const char *const[]){"<assistant>ab;"}, 1);
}

/* Checks the ends of turns after whose content the template writes nothing. The next
 * message begins with the letter that makes a content longer. */
static void test_ends_of_contents(void)
{
#define SHORT(each)                                                                                \
    "{{ messages|length }}{% for m in messages %}x{{ m.role[0] }}:" each "{% endfor %}"            \
    "{% if add_generation_prompt %}xa:{% endif %}"
    static const struct {
        const char *source, *talk, *want[2];
    } row[] = {
        {SHORT("{{ m.content }}"), TALK_ON, {"b", "d"}},
        {SHORT("{{ m.content }}"),
         "{\"messages\": [" USER("") ", " ANSWER("bx") ", " USER("") ", " ANSWER("xx") "]}",
         {"bx", "xx"}},
        {SHORT("{{ m.content|trim }}"
               "{{ '\n' if not loop.last or add_generation_prompt }}"),
         "{\"messages\": [" USER("a\\n") ", " ANSWER("b\\n") ", " USER("c") ", " ANSWER(
             "d\\n") "]}",
         {"b", "d"}},
        {SHORT("{% for p in m.content %}({{ p.text }}){% endfor %}"),
         "{\"messages\": [{\"role\": \"user\", \"content\": []}, {\"role\": \"assistant\", "
         "\"content\": [" PARTS "]}, {\"role\": \"user\", \"content\": []}, {\"role\": "
         "\"assistant\", \"content\": []}]}",
         {"(a)(b)", ""}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        check_spans(row[i].source, row[i].talk, row[i].want, 2);
#undef SHORT
}

/* Checks contents that are left out, that come twice, and that are not written otherwise alone. */
static void test_not_told(void)
{
    static const char why[] = "the turn's place cannot be told";
    check_refused(otherwise, REASONED "]}", "messages[1]", why);
    check_refused("{% for m in messages %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}",
                  talk, "messages[1]", why);
    check_refused("{% if messages|length > 2 %}{% for m in messages %}{{ m.content }}{% endfor %}"
                  "{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                  "{% if add_generation_prompt %}<assistant>{% endif %}",
                  talk, "messages[1]", why);
}

/* Checks a turn that ends before it begins, as the template leaves out empty messages, and writes
 * the question before it otherwise. If it writes the question as ever, the turn is empty. */
static void test_no_turn(void)
{
#define LEAVES(question)                                                                           \
    "{% for m in messages %}{% if m.content %}<{{ m.role }}>" question "{{ m.content }};"          \
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    static const char left[] = "{\"messages\": [" USER("a") ", " ANSWER("") ", " ANSWER("c") "]}";
    check_spans(LEAVES(""), left, (const char *const[]){"", "c;"}, 2);
    check_refused(LEAVES("{{ '?' if loop.last and m.role == 'user' }}"), left, "messages[1]",
                  "the turn's place cannot be told");
#undef LEAVES
}

/* Checks templates that fail for a content with one more letter. An error of the template means
 * that the place cannot be told. An error of its limits is reported as it is. */
static void test_longer_fails(void)
{
#define FAILS(how)                                                                                 \
    "{{ messages|length }}{% for m in messages %}<{{ m.role }}>{{ m.content }}"                    \
    "{% if m.content[1:] %}" how "{% endif %}{% endfor %}"                                         \
    "{% if add_generation_prompt %}<assistant>{% endif %}"
    check_spans(FAILS(""), TALK_ON, (const char *const[]){"b", "d"}, 2);
    check_refused(FAILS("{{ raise_exception('short') }}"), TALK_ON, "messages[1]",
                  "the turn's place cannot be told");
    check_refused(FAILS("{% set ns = namespace(s='a') %}{% for i in range(40) %}"
                        "{% set ns.s = ns.s + ns.s %}{% endfor %}"),
                  TALK_ON, "", "makes a text of more than 16 MiB");
#undef FAILS
}

static void test_refused(void)
{
    check_refused("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}", talk, "",
                  "{% generation %} inside");
    check_refused(plain, "{\"messages\": {}}", "messages", "a list");
    check_refused(plain, "{\"prompt\": \"a\"}", "messages", "a list");
    check_refused(plain, "{\"messages\": [\"a\"]}", "messages[0]", "an object");
    check_refused(plain, "{\"messages\": [], \"tools\": [{}]}", "tools", "does not take tools");
    check_refused(plain,
                  "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                  "\"text\": \"a\"}, {\"type\": \"image_url\"}]}]}",
                  "messages[0].content[1].type", "no images");
    check_refused(plain, "{\"messages\": [{\"role\": \"user\", \"images\": [1]}]}",
                  "messages[0].images", "only text");
    check_refused(plain, "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [1]}]}",
                  "messages[0].tool_calls", "does not take calls");
    /* The bytes are the same as in transformers, which prints the list and does not join its
     * parts. */
    check_refused(plain, "{\"messages\": [{\"role\": \"user\", \"content\": [" PARTS "]}]}",
                  "messages[0].content", "line 1 of the chat template prints a list");
    /* transformers leaves out this text, so a training would learn the turn without the text. */
    check_refused(strings, ANSWER_OF("[" PARTS "]"), "messages[1].content",
                  "does not read a list of parts: give the content as a string");
    check_refused("{% for m in messages %}{{ m.a }}{% endfor %}",
                  "{\"messages\": [{\"role\": \"user\", \"a\": {\"b\": 1}}]}", "messages",
                  "prints a list or a mapping");
    check_refused("{{ raise_exception('roles alternate') }}", talk, "", "roles alternate");
}

/* ---- a model's directory -------------------------------------------------------------------- */

static char dir[64];

static void put(const char *name, const char *text)
{
    char path[FILE_PATH_SIZE];
    struct err e = {0};
    CHECK(!file_join(path, &e, "%s/%s", dir, name));
    if (text)
        CHECK_MSG(!file_write(path, text, strlen(text), &e), "%s", e.text);
    else
        unlink(path);
}

/* Checks the template of a model. If `want` is NULL, the model must have no template. */
static void check_model(const char *want)
{
    struct chat_model m;
    struct template_output o = {0};
    struct err e = {0};
    CHECK_MSG(!chat_model_open(&m, dir, &e), "%s", e.text);
    CHECK(!m.t == !want);
    if (m.t) {
        CHECK(!chat_render(m.t, talk, (int64_t)strlen(talk), &m.tokens, false, 0, &o, &e));
        CHECK_MSG(o.size == (int64_t)strlen(want) && !memcmp(o.text, want, (size_t)o.size),
                  "got \"%.*s\", want \"%s\"", (int)o.size, o.text, want);
    }
    jinja_output_fini(&o);
    chat_model_close(&m);
}

static void check_bad_model(const char *why)
{
    struct chat_model m;
    struct err e = {0};
    CHECK(chat_model_open(&m, dir, &e) == -1);
    CHECK_MSG(strstr(e.text, dir) && strstr(e.text, why), "%s", e.text);
    CHECK(!m.t);
}

static void test_model(void)
{
    snprintf(dir, sizeof dir, "/tmp/seqd-chat-XXXXXX");
    CHECK(mkdtemp(dir));
    check_model(NULL);
    put("tokenizer_config.json", "{\"bos_token\": \"<b>\", \"x\": [1, {\"bos_token\": 2}]}");
    check_model(NULL);
    put("tokenizer_config.json", "{\"bos_token\": \"<b>\", \"pad_token\": null, \"eos_token\": "
                                 "{\"content\": \"<\\u00e9>\", \"lstrip\": false}, "
                                 "\"chat_template\": \"{{ bos_token }}\\n{{ eos_token }}\"}");
    check_model("<b>\n<\xc3\xa9>");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"no\"}, {\"template\": "
        "\"yes{{ bos_token }}\", \"name\": \"default\"}], \"bos_token\": \"!\"}");
    check_model("yes!");
    put("chat_template.jinja", "first{{ bos_token }}\n");
    check_model("first!");
    put("chat_template.jinja", "a\n{% include 'b' %}");
    check_bad_model("chat_template.jinja: chat template, line 2: the tag 'include'");
    put("chat_template.jinja", NULL);
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"x\", \"template\": \"y\"}]}");
    check_bad_model("\"default\"");
    put("tokenizer_config.json", "{\"chat_template\": \"a\", ");
    check_bad_model("tokenizer_config.json: ");
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": 1, ]}");
    check_bad_model("tokenizer_config.json: ");
    put("tokenizer_config.json", "{\"chat_template\": [1]}");
    check_bad_model("tokenizer_config.json: chat_template: want an object");
    put("tokenizer_config.json", "{\"chat_template\": 1}");
    check_bad_model("a string or a list");
    put("tokenizer_config.json", "[]");
    check_bad_model("tokenizer_config.json: the file: want an object");
    put("tokenizer_config.json", "{\"eos_token\": \"<e>\", \"bos_token\": 7, \"chat_template\": "
                                 "\"{{ bos_token }}{{ eos_token }}{{ cls_token }}\"}");
    put("special_tokens_map.json", "{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": "
                                   "\"no\", \"cls_token\": \"<c>\"}");
    check_model("<b><e><c>");
    put("special_tokens_map.json", "{");
    check_bad_model("special_tokens_map.json: ");
    put("special_tokens_map.json", NULL);
    put("tokenizer_config.json", NULL);
    CHECK(!rmdir(dir));
}

int main(void)
{
    RUN(test_render);
    RUN(test_null);
    RUN(test_parts);
    RUN(test_parts_refused);
    RUN(test_content_named);
    RUN(test_reasoning);
    RUN(test_spans);
    RUN(test_spans_from);
    RUN(test_earlier_turns);
    RUN(test_ends_of_contents);
    RUN(test_not_told);
    RUN(test_no_turn);
    RUN(test_longer_fails);
    RUN(test_refused);
    RUN(test_model);
    return test_done("chat");
}
