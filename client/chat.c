/* chat.c: a conversation with a job that serves. It reads a question from each line of stdin, and
 * writes the answer to stdout as it arrives. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "client/api.h"
#include "client/follow.h"
#include "client/sse.h"
#include "client/talk.h"
#include "client/text.h"
#include "client/verbs.h"

enum { LINE_SIZE = 16 << 20 }; /* bytes of a question */

struct chat_state {
    struct cli *c;
    struct talk talk;
    int signals; /* fd */
    bool asks;   /* stdin is a terminal, and gets a prompt */
    char *in;    /* bytes that were read, and are not a whole line yet */
    size_t n, room;
    bool at_end;
};

/* ---- questions ------------------------------------------------------------------------------- */

static void prompt(const struct chat_state *h)
{
    if (!h->asks) return;
    fflush(stdout);
    fputs("> ", stderr);
}

/* Reads more bytes. Returns CLI_OK, or the exit code of an error. */
static int read_more(struct chat_state *h)
{
    if (h->n + 1 >= h->room) {
        h->room = h->room ? 2 * h->room : 4096;
        h->in = realloc(h->in, h->room);
        assert(h->in);
    }
    const ssize_t n = read(STDIN_FILENO, h->in + h->n, h->room - h->n - 1);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return cli_fail(CLI_ERROR, "stdin cannot be read: %s", strerror(errno));
    if (n > 0) h->n += (size_t)n;
    if (!n) h->at_end = true;
    if (h->n > LINE_SIZE)
        return cli_fail(CLI_ERROR, "a line of stdin is longer than %d MiB, the limit of a question",
                        LINE_SIZE >> 20);
    return CLI_OK;
}

/* Takes the first line of the bytes that were read. The caller frees it. Returns NULL if there is
 * no whole line; the end of stdin ends a line, too. */
static char *take_line(struct chat_state *h)
{
    const char *end = h->n ? memchr(h->in, '\n', h->n) : NULL;
    if (!end && !(h->at_end && h->n)) return NULL;
    const size_t n = end ? (size_t)(end - h->in) : h->n, used = n + (end != NULL);
    char *line = strndup(h->in, n);
    assert(line);
    h->n -= used;
    memmove(h->in, h->in + used, h->n);
    line[strcspn(line, "\r")] = 0;
    return line;
}

/* Handles Ctrl-C while a question is typed: the terminal has dropped the line. SIGTERM, or Ctrl-C
 * without a terminal, ends the chat. */
static int interrupted(struct chat_state *h)
{
    const int signal = follow_signal(h->signals);
    if (!signal) return CLI_OK;
    if (h->asks) fputc('\n', stderr);
    if (signal == SIGTERM || !h->asks) return CLI_DETACHED;
    h->n = 0;
    prompt(h);
    return CLI_OK;
}

/* Waits for the next question, which the caller frees. *line is NULL at the end of stdin. */
static int next_line(struct chat_state *h, char **line)
{
    struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                          {.fd = h->signals, .events = POLLIN}};
    int rc = CLI_OK;
    prompt(h);
    while (!(*line = take_line(h)) && !h->at_end && !rc) {
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return cli_fail(CLI_ERROR, "stdin cannot be read: %s", strerror(errno));
        if (p[1].revents)
            rc = interrupted(h);
        else if (p[0].revents)
            rc = read_more(h);
    }
    return rc;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void print_text(const struct chat_state *h, const char *text, size_t n)
{
    if (!h->c->tty) {
        fwrite(text, 1, n, stdout);
    } else {
        char *clean = malloc(n + 1);
        assert(clean);
        fputs(text_clean(clean, n + 1, text, n, "\n\t"), stdout);
        free(clean);
    }
    fflush(stdout);
}

static void on_event(void *arg, const struct sse_event *ev)
{
    struct chat_state *h = arg;
    const size_t n = talk_take(&h->talk, ev->data, ev->size);
    if (n) print_text(h, h->talk.answer + h->talk.size - n, n);
}

static void on_bytes(void *arg, const char *p, size_t n)
{
    sse_feed(arg, p, n);
}

/* One try to ask, and its outcome. */
struct chat_try {
    int rc;
    int signal;      /* SIGINT or SIGTERM if the answer was interrupted */
    int64_t wait_ms; /* above 0 if the job is busy: the time until the next try */
};

/* Says why an answer has ended. */
static int verdict(const struct chat_state *h, const struct http_reply *r, const struct err *e)
{
    const struct talk *t = &h->talk;
    if (r->status && r->status != 200) return api_refused(r, talk_path(t));
    if (t->error) return cli_fail(CLI_ERROR, "%s (%s)", t->error, t->error_code);
    if (e->code != ERR_NONE) return cli_fail(CLI_ERROR, "%s", e->text);
    if (!t->done) return cli_fail(CLI_ERROR, "the connection ended before the answer: ask again");
    if (!strcmp(t->finish, "length"))
        cli_say(h->c, "(the answer has as many tokens as it may: --max-tokens, or "
                      "sampling.max_tokens of the job)");
    return CLI_OK;
}

/* Reads the answer until it ends or a signal comes. */
static int read_answer(struct chat_state *h, struct http_stream *s)
{
    while (!http_done(s, NULL)) {
        const int signal = http_turn(h->c->http, 1000, h->signals) ? follow_signal(h->signals) : 0;
        if (signal) return signal;
    }
    return 0;
}

static struct chat_try try_once(struct chat_state *h, const char *body, bool last)
{
    struct chat_try o = {0};
    struct err e = {0};
    struct sse sse;
    char url[512];
    if (cli_url_moves(h->c) && !cli_url(h->c, url, sizeof url, NULL))
        http_set_url(h->c->http, url); /* a restarted seqd may have a new port */
    sse_init(&sse, on_event, h);
    const struct http_request q = {.method = "POST",
                                   .path = talk_path(&h->talk),
                                   .body = body,
                                   .accept = "text/event-stream",
                                   .patient = true};
    struct http_stream *s = http_open(h->c->http, &q, on_bytes, &sse, &e);
    if (!s) {
        o.rc = cli_fail(CLI_ERROR, "%s", e.text);
    } else if (!(o.signal = read_answer(h, s))) {
        http_done(s, &e);
        const struct http_reply *r = http_answer(s);
        if (!last && e.code == ERR_NONE && api_busy(r->status))
            o.wait_ms = api_wait_ms(r, 200);
        else
            o.rc = verdict(h, r, &e);
    }
    http_close(s);
    sse_fini(&sse);
    return o;
}

/* Asks, and asks again while the job is busy. Without a terminal a signal ends the chat. */
static int answer(struct chat_state *h, const char *body)
{
    struct chat_try o;
    for (int i = 1;; i++) {
        o = try_once(h, body, i == API_TRIES);
        if (!o.wait_ms || o.signal) break;
        struct pollfd p = {.fd = h->signals, .events = POLLIN};
        if (poll(&p, 1, (int)o.wait_ms) > 0 && (o.signal = follow_signal(h->signals))) break;
    }
    if (o.signal && h->asks) fputc('\n', stderr);
    if (o.signal) o.rc = o.signal == SIGINT && h->asks ? CLI_OK : CLI_DETACHED;
    return o.rc;
}

static int ask(struct chat_state *h, const char *question)
{
    struct talk *t = &h->talk;
    char *body = talk_ask(t, question);
    if (!body) return cli_fail(CLI_ERROR, "the question is not UTF-8: it was not sent");
    const int rc = answer(h, body);
    free(body);
    if (t->size ? t->answer[t->size - 1] != '\n' : !rc) putchar('\n');
    fflush(stdout);
    talk_end(t);
    return rc;
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Handles one line of stdin. */
static int take(struct chat_state *h, const char *line)
{
    if (!line[strspn(line, " \t")]) return CLI_OK;
    if (strcmp(line, "/reset") != 0) return ask(h, line);
    talk_reset(&h->talk);
    return CLI_OK;
}

/* Talks until stdin ends. Without a terminal, also until a question fails. */
static int converse(struct chat_state *h)
{
    for (;;) {
        char *line;
        int rc = next_line(h, &line);
        if (rc || !line) return rc;
        rc = take(h, line);
        free(line);
        if (rc == CLI_DETACHED || (rc && !h->asks)) return rc;
    }
}

/* Asks whether there is such a job, so that a wrong name is refused before the first question. */
static int find_model(struct cli *c)
{
    char name[1024], path[1100];
    struct jv *model = NULL;
    snprintf(path, sizeof path, "/openai/v1/models/%s", http_escape(name, sizeof name, c->arg[0]));
    const int rc = api_get(c, path, &model);
    jv_free(model);
    return rc;
}

static int check_temperature(const struct cli *c)
{
    char *end;
    const char *text = c->opt.temperature;
    if (!text || (isfinite(strtod(text, &end)) && *text && !*end)) return CLI_OK;
    return cli_fail(CLI_USAGE, "--temperature \"%s\": want a number, as 0.7; 0 is greedy", text);
}

static int chat_run(struct cli *c)
{
    struct chat_state h = {.c = c,
                           .talk = {.model = c->arg[0],
                                    .system = c->opt.system,
                                    .temperature = c->opt.temperature,
                                    .max_tokens = c->opt.max_tokens,
                                    .raw = c->opt.raw},
                           .asks = isatty(STDIN_FILENO)};
    if (c->opt.raw && c->opt.system)
        return cli_fail(CLI_USAGE, "--raw has no messages: leave --system out");
    int rc = check_temperature(c);
    if (!rc) rc = find_model(c);
    if (rc) return rc;
    h.signals = follow_signals();
    if (h.asks) cli_say(c, "Ctrl-C ends an answer, /reset forgets all turns, Ctrl-D ends the chat");
    rc = converse(&h);
    if (h.asks && h.at_end) fputc('\n', stderr);
    close(h.signals);
    talk_fini(&h.talk);
    free(h.in);
    return rc;
}

const struct verb verb_chat = {
    .name = "chat",
    .operands = "NAME[:ADAPTER]",
    .summary = "talk with a job that serves",
    .min_args = 1,
    .max_args = 1,
    .run = chat_run,
    .options = OPT_CHAT,
    .help =
        "Talks with a job of kind \"serve\", by its name or id: each line is a question, and the\n"
        "answer is printed as it comes. The job is asked with all turns so far. Ctrl-C ends an\n"
        "answer, Ctrl-D the chat; /reset forgets all turns.\n\n"
        "  --system TEXT       the first message, of the role \"system\"\n"
        "  --max-tokens N      of an answer, at most; default: the job's\n"
        "  --temperature X     0 is greedy; default: the job's\n"
        "  --raw               continue each line as a text, for a model without a chat "
        "template\n\n"
        "From a pipe, answers go to stdout, and the first error ends the chat with exit code 1.\n\n"
        "  seqctl chat reader --system \"Answer in one sentence.\"\n"
        "  echo \"Who wrote it?\" | seqctl chat reader:law --temperature 0",
};
