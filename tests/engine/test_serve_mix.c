/* test_serve_mix.c: asks 200 seeded requests of a serve job whose cache has pages, in random
 * interleavings on one to four ranks, and compares each answer with that of the same request alone
 * with an empty cache. Requests share prefixes, adapters and users, and differ in length, sampling,
 * continuations and log-probabilities. Others are dropped at any time. The pool has fewer pages
 * than the requests need together, so that pages are used again. Checks the ledger, the plan's
 * memory, and how many tokens of prompts were kept. Then compares second turns of conversations. */
#include <unistd.h>

#include "api/core/log.h"
#include "tests/lib/kinds.h"
#include "tests/lib/mutant.h"
#include "tests/lib/tiny.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/serve.h"
#include "worker/infer/serve_turn.h"
#include "worker/model/host_copy.h"
#include "worker/plan/adapter_facts.h"
#include "worker/plan/check.h"

enum { N_ASKED = 200, N_DROPPED = 20, N_ALL = N_ASKED + N_DROPPED, BODY = 4096, BASES = 4 };

static const char *const facts =
    "{\"rank\":3,\"alpha\":6,\"rslora\":false,\"dropout\":0,\"layers\":2,\"targets\":[\"mlp\"]}";

struct told {
    char *text;
    size_t size;
    int status, place; /* place: the order in which answers ended, from 1 on */
    bool closed;
};

struct mix {
    struct job_spec spec;
    int n; /* number of requests, of which the first n_kept are not dropped */
    int n_wanted;
    bool alone;   /* one request at a time, each from a user of its own */
    bool talks;   /* one request at a time, `delay` passes after the answer before it */
    bool at_once; /* all requests at once */
    int delay, n_passes, n_ended;
    uint64_t rng;
    char (*body)[BODY];
    int32_t *adapter;
    int *user;
    int n_sent;
    struct serve_asks *asks;
    struct told *told;
    struct serve_result out;
};

static uint32_t draw(uint64_t *rng, uint32_t n)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*rng >> 33) % n;
}

/* ---- requests -------------------------------------------------------------------------------- */

static char bodies[N_ALL][BODY];
static int32_t adapters[N_ALL];
static int users[N_ALL];

/* Makes a prompt of ids: the begin of one of a few texts, and tokens of its own. */
static int put_prompt(char *out, uint64_t *rng)
{
    const int base = (int)draw(rng, BASES);
    const int n_base = draw(rng, 3) ? (int)draw(rng, 300) : 64 * (int)draw(rng, 5);
    const int n_own = 1 + (int)draw(rng, draw(rng, 3) ? 8 : 60);
    int at = sprintf(out, "[");
    for (int i = 0; i < n_base; i++) at += sprintf(out + at, "%d,", (i * 7 + base * 31) % 250 + 1);
    for (int i = 0; i < n_own; i++)
        at += sprintf(out + at, "%d%s", (int)draw(rng, 250) + 1, i + 1 < n_own ? "," : "]");
    return at;
}

static void put_body(char out[BODY], uint64_t *rng)
{
    int at = sprintf(out, "{\"prompt\":");
    at += put_prompt(out + at, rng);
    at += sprintf(out + at, ",\"max_tokens\":%d,\"ignore_eos\":true", 1 + (int)draw(rng, 12));
    if (!draw(rng, 4)) at += sprintf(out + at, ",\"logprobs\":%d", (int)draw(rng, 3));
    if (!draw(rng, 8)) at += sprintf(out + at, ",\"echo\":true");
    if (!draw(rng, 5)) at += sprintf(out + at, ",\"n\":%d", 2 + (int)draw(rng, 2));
    if (!draw(rng, 4)) at += sprintf(out + at, ",\"repetition_penalty\":1.3");
    if (!draw(rng, 4)) at += sprintf(out + at, ",\"presence_penalty\":0.4");
    at += sprintf(out + at, ",\"seed\":%d,\"temperature\":%s}", (int)draw(rng, 1000),
                  draw(rng, 3) ? "0.9" : "0");
    CHECK(at < BODY);
}

static void put_bodies(void)
{
    uint64_t rng = 5;
    for (int i = 0; i < N_ALL; i++) {
        put_body(bodies[i], &rng);
        adapters[i] = draw(&rng, 3) ? ADAPTER_BASE : 0;
        users[i] = (int)draw(&rng, 2);
    }
}

/* ---- the door -------------------------------------------------------------------------------- */

static void ask(struct mix *x, int i)
{
    struct rank_ask a = {.id = (uint64_t)i,
                         .endpoint = SERVE_COMPLETIONS,
                         .flags = RANK_ASK_LAST,
                         .adapter_named = x->adapter[i],
                         .size = (int32_t)strlen(x->body[i]),
                         .model = "m"};
    snprintf(a.user, sizeof a.user, "user %d", x->alone ? i : x->user[i]);
    serve_asks_take(x->asks, &a, x->body[i]);
}

static int n_open(const struct mix *x)
{
    return serve_asks_count(x->asks, SERVE_WHOLE) + serve_asks_count(x->asks, SERVE_WAITS) +
           serve_asks_count(x->asks, SERVE_AT_WORK);
}

static void drop_some(struct mix *x)
{
    for (int i = x->n_wanted; i < x->n_sent; i++)
        if (!x->told[i].closed && !draw(&x->rng, 6)) {
            serve_asks_drop(x->asks, (uint64_t)i);
            x->told[i].closed = true;
        }
}

/* Asks the next turn of a conversation if it is time. */
static void go_on(struct mix *x, bool idle)
{
    if (x->n_sent == x->n || (x->n_sent && !x->told[x->n_sent - 1].closed)) return;
    if (x->n_sent && !idle && x->n_passes++ < x->delay) return;
    ask(x, x->n_sent++);
}

static int receive(void *arg, int wait_ms, bool room, struct err *e)
{
    struct mix *x = arg;
    const int most = x->alone ? 1 : x->at_once ? x->n : 1 + (int)draw(&x->rng, 9);
    (void)room, (void)e;
    if (x->talks) {
        go_on(x, wait_ms > 0);
        return 0;
    }
    drop_some(x);
    while (x->n_sent < x->n && n_open(x) < most && (x->alone || x->at_once || draw(&x->rng, 3)))
        ask(x, x->n_sent++);
    return 0;
}

static int answer(void *arg, const struct rank_answer *a, const char *bytes, struct err *e)
{
    struct mix *x = arg;
    struct told *t = &x->told[a->id];
    (void)e;
    if (a->status) t->status = a->status;
    t->text = realloc(t->text, t->size + (size_t)a->size + 1);
    memcpy(t->text + t->size, bytes, (size_t)a->size);
    t->size += (size_t)a->size;
    t->text[t->size] = 0;
    t->closed |= (a->flags & RANK_ANSWER_LAST) != 0;
    if (t->closed && !t->place) t->place = ++x->n_ended;
    return 1;
}

static const char *draining(void *arg)
{
    struct mix *x = arg;
    drop_some(x);
    return x->n_sent == x->n && !serve_asks_open(x->asks) ? "the test ends" : NULL;
}

static int64_t now_us(void *arg)
{
    (void)arg;
    return 1;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* Fills the weights of the adapter, which a model begins with at 0. */
static int fill(struct model *m, struct err *e)
{
    struct device_array there = {m->be, m->dtype, m->params};
    for (int i = 0; i < param_tensors(&m->shape); i++) {
        struct param p;
        uint64_t rng = (uint64_t)i;
        param_get(&m->shape, i, &p);
        if (!p.adapter) continue;
        float *w = malloc((size_t)p.count * sizeof *w);
        for (int64_t c = 0; c < p.count; c++) w[c] = (float)draw(&rng, 1000) / 1000 - 0.5f;
        const int rc = device_array_write(&there, p.offset, p.count, w, e);
        free(w);
        if (rc) return -1;
    }
    return 0;
}

static void body(struct ranks *g, int rank, void *arg)
{
    struct mix *x = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct serve_result out = {0};
    struct err e = {0};
    const struct serve_door door = {x->asks, receive, answer, draining, now_us, x};
    int rc = tiny_open(t, &x->spec, g, rank, &e) || fill(&t->model, &e);
    struct infer in = {.model = &t->model, .spec = &x->spec, .job_dir = "/", .stopped = never};
    if (!rc) rc = serve_run(&in, rank ? NULL : &door, &out, &e);
    if (rc) ranks_fail(g, rank, &e);
    CHECK(rc || (out.ledger_equal && t->plan.paged));
    CHECK(rc || rank || t->model.placed_size == t->plan.arena_size + t->plan.segment_size);
    if (!rank) x->out = out;
    tiny_close(t);
    free(t);
}

static void spec_of(struct job_spec *s, int P, bool states)
{
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = JOB_SERVE;
    s->model.shape = kind_of(states ? "qwen3_next" : "llama")->shape;
    if (states) s->model.shape.dense_mask[0] = 3;
    small_sizes(&s->model.shape, 48);
    s->model.shape.n_kv_heads = 2;
    s->seed = 3;
    s->resources.ranks = P;
    s->data.seq_len = 400;
    s->sampling.max_tokens = 16;
    s->model.adapters[0] = (struct spec_adapter){tiny_text(s, "one"), tiny_text(s, "/a"),
                                                 tiny_text(s, facts)};
    s->serve.max_requests = 4;
    s->serve.queue = 64;
    s->serve.prefill_tokens = 128;
    s->serve.cache_tokens = 1280;
}

static void run(struct mix *x)
{
    static struct plan p;
    struct ranks g;
    struct err e = {0};
    CHECK_MSG(!family_check(&x->spec, &e), "%s: %s", e.field, e.text);
    CHECK_MSG(!plan_make(&x->spec, 0, &p, &e), "%s", e.text);
    x->asks = serve_asks_create();
    x->told = calloc((size_t)x->n, sizeof *x->told);
    ranks_open(&g, p.n_ranks, p.segment_size, NULL);
    ranks_run(&g, body, x);
    ranks_check(&g);
    ranks_close(&g);
    serve_asks_destroy(x->asks);
}

static void free_told(struct mix *x)
{
    for (int i = 0; i < x->n; i++) free(x->told[i].text);
    free(x->told);
}

static void mix_of(struct mix *x, int P, bool states, bool alone, uint64_t seed)
{
    *x = (struct mix){.n = alone ? N_ASKED : N_ALL,
                      .n_wanted = N_ASKED,
                      .alone = alone,
                      .rng = seed,
                      .body = bodies,
                      .adapter = adapters,
                      .user = users};
    spec_of(&x->spec, P, states);
    if (alone) x->spec.serve.max_requests = 1;
}

/* Returns a copy of the choices of an answer. */
static char *choices_of(const struct told *t)
{
    const char *from = t->text && t->status == 200 ? strstr(t->text, "\"choices\"") : NULL;
    const char *to = from ? strstr(from, ",\"usage\"") : NULL;
    return to ? strndup(from, (size_t)(to - from)) : strdup("none");
}

static int n_different(const struct mix *x, const struct mix *want, const char *name, bool says)
{
    int n = 0;
    for (int i = 0; i < N_ASKED; i++) {
        char *is = choices_of(&x->told[i]), *was = choices_of(&want->told[i]);
        const bool same = !strcmp(is, was) && strcmp(is, "none") != 0;
        if (says)
            CHECK_MSG(same, "%s, request %d:\n%s\n%.300s\n%.300s", name, i, bodies[i], is, was);
        n += !same;
        free(is);
        free(was);
    }
    return n;
}

static void run_interleaved(int P, bool states, int n_seeds)
{
    static struct mix alone, x;
    char name[64];
    mix_of(&alone, P, states, true, 1);
    run(&alone);
    CHECK(alone.out.n_kept_tokens == 0);
    for (uint64_t seed = 1; seed <= (uint64_t)n_seeds; seed++) {
        if (small_leaves((int64_t)seed - 1, 3)) continue;
        mix_of(&x, P, states, false, seed);
        run(&x);
        snprintf(name, sizeof name, "%sP %d, seed %d", states ? "states, " : "", P, (int)seed);
        n_different(&x, &alone, name, true);
        CHECK_MSG(x.out.n_kept_tokens > 1000 && x.out.n_dropped > 0 &&
                      x.out.n_pages_used > x.out.n_pages / 2,
                  "%s: %lld kept, %lld dropped, %lld of %lld pages", name,
                  (long long)x.out.n_kept_tokens, (long long)x.out.n_dropped,
                  (long long)x.out.n_pages_used, (long long)x.out.n_pages);
        free_told(&x);
    }
    free_told(&alone);
}

static void test_interleaved(void)
{
    for (int P = 1; P <= 4; P++)
        if (!small_leaves(P - 2, 4)) run_interleaved(P, false, 3);
}

/* Checks prefixes that end where states are kept. */
static void test_states(void)
{
    for (int P = 1; P <= 3; P += 2)
        if (!small_leaves(P - 3, 4)) run_interleaved(P, true, 2);
}

/* ---- a conversation -------------------------------------------------------------------------- */

enum { ANSWER = 100, LATE = 99 };

/* Writes a turn of a conversation: n tokens and, in the second turn, the first answer and new
 * tokens. An answer has few kinds of tokens, so that its text tells them. */
static void put_turn(char out[BODY], int n, const char *answer)
{
    int at = sprintf(out,
                     "{\"max_tokens\":%d,\"ignore_eos\":true,\"seed\":3,\"logprobs\":2,\"logit_"
                     "bias\":{\"97\":90,"
                     "\"98\":90,\"99\":90},\"prompt\":[1",
                     ANSWER);
    for (int i = 1; i < n; i++) at += sprintf(out + at, ",%d", i % 200 + 1);
    for (const char *c = answer; c && *c; c++) at += sprintf(out + at, ",%d", *c);
    strcpy(out + at, answer ? ",7,8,9,10]}" : "]}");
}

/* Asks turns one after another. Each comes when the job has had `delay` passes after the answer
 * before it, or has nothing left to do. */
static void talk(struct mix *x, int P, bool states, char (*turn)[BODY], int n, int delay)
{
    static int32_t adapter[2] = {ADAPTER_BASE, ADAPTER_BASE};
    static int user[2];
    *x = (struct mix){.n = n,
                      .n_wanted = n,
                      .talks = true,
                      .delay = delay,
                      .rng = 1,
                      .body = turn,
                      .adapter = adapter,
                      .user = user};
    spec_of(&x->spec, P, states);
    x->spec.sampling.max_tokens = ANSWER;
    x->spec.serve.max_requests = 1;
    run(x);
    for (int i = 0; i < n; i++) CHECK_MSG(x->told[i].status == 200, "%s", x->told[i].text);
}

/* Asks two turns. The second one takes n_kept tokens of the first, and has the bits of the same
 * request with an empty cache. Returns whether it has. */
static bool check_turns(int P, bool states, int n_prompt, int delay, int n_kept, bool says)
{
    static struct mix first, both, second;
    static char turn[2][BODY];
    char text[ANSWER + 1] = "", kept[40];
    put_turn(turn[0], n_prompt, NULL);
    talk(&first, P, states, turn, 1, LATE);
    const char *at = strstr(first.told[0].text, "\"text\":\"");
    for (int i = 0; at && i < ANSWER; i++) text[i] = at[8 + i];
    CHECK(strspn(text, "abc") == ANSWER);
    put_turn(turn[1], n_prompt, text);
    talk(&both, P, states, turn, 2, delay);
    talk(&second, P, states, turn + 1, 1, LATE);
    char *is = choices_of(&both.told[1]), *was = choices_of(&second.told[0]);
    const bool same = !strcmp(is, was) && strcmp(is, "none") != 0;
    snprintf(kept, sizeof kept, "\"cached_tokens\":%d}", n_kept);
    if (says)
        CHECK_MSG(same && strstr(both.told[1].text, kept),
                  "P %d, %d, delay %d, %s:\n%.400s\n%.400s", P, n_prompt, delay, kept,
                  both.told[1].text, was);
    free(is);
    free(was);
    free_told(&first);
    free_told(&both);
    free_told(&second);
    return same;
}

/* Checks that the next turn computes its new tokens alone, and at most 63 before them. */
static void test_turns(void)
{
    check_turns(2, false, 180, 0, 256, true);
    /* the states after the answer are there when the job has had time to compute them */
    check_turns(1, true, 100, LATE, 192, true);
    check_turns(1, true, 100, 1, 128, true);
    check_turns(1, true, 100, 0, 64, true);
    check_turns(2, true, 20, LATE, 64, true);
    check_turns(3, true, 128, LATE, 192, true);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Checks the choice of pieces: in turn the prompt with the least left, and the oldest. */
static void test_pieces(void)
{
    struct serve_prompt p[4] = {{4, 900}, {3, 90}, {2, 0}, {5, 90}};
    CHECK(serve_turn_piece(p, 4, 0) == 1 && serve_turn_piece(p, 4, 1) == 1);
    p[0].turn = 1;
    CHECK(serve_turn_piece(p, 4, 2) == 1 && serve_turn_piece(p, 4, 3) == 0);
    p[3].left = 89;
    CHECK(serve_turn_piece(p, 4, 4) == 3 && serve_turn_piece(p, 4, 5) == 0);
    CHECK(serve_turn_piece(p + 2, 1, 0) == -1 && serve_turn_piece(p, 0, 1) == -1);
}

static bool fits_but_first(void *arg, struct serve_request *q)
{
    ++*(int *)arg;
    return q->ask.id != 0;
}

/* Checks that requests pass one that does not fit, the oldest first, until it was passed often. */
static void test_passing(void)
{
    struct serve_asks *s = serve_asks_create();
    struct serve_request *q;
    int n_looks = 0, n = 0;
    for (int i = 0; i < SERVE_TURN_PASSED + 2; i++) {
        const struct rank_ask a = {.id = (uint64_t)i, .flags = RANK_ASK_LAST, .model = "m"};
        serve_asks_take(s, &a, "");
        serve_asks_find(s, a.id, -1)->state = SERVE_WAITS;
    }
    serve_asks_find(s, 2, -1)->turn = 1; /* prompts of one list have one turn */
    while ((q = serve_turn_request(s, fits_but_first, &n_looks)) != NULL) {
        CHECK(q->ask.id == (uint64_t)++n && q->n_passed == 0);
        serve_asks_begin(q, 0);
    }
    CHECK(n == SERVE_TURN_PASSED && n_looks == 2 * n + 1);
    CHECK(serve_asks_next(s, SERVE_WAITS)->n_passed == n);
    serve_asks_destroy(s);
}

/* Asks for a token after three long prompts and after a short one, which comes last. */
static void test_short(void)
{
    static struct mix x;
    static char prompt[4][BODY];
    int32_t adapter[4] = {ADAPTER_BASE, ADAPTER_BASE, ADAPTER_BASE, ADAPTER_BASE};
    int user[4] = {0, 1, 2, 3};
    for (int k = 0; k < 4; k++) {
        int at = sprintf(prompt[k], "{\"max_tokens\":1,\"ignore_eos\":true,\"prompt\":[1");
        for (int i = 1; i < (k < 3 ? 900 : 9); i++)
            at += sprintf(prompt[k] + at, ",%d", (i + k) % 200 + 1);
        strcpy(prompt[k] + at, "]}");
    }
    spec_of(&x.spec, 1, false);
    x.spec.data.seq_len = 1000;
    x.spec.serve.cache_tokens = 4096;
    x.n = x.n_wanted = 4;
    x.at_once = true;
    x.body = prompt;
    x.adapter = adapter;
    x.user = user;
    run(&x);
    for (int i = 0; i < 4; i++) CHECK_MSG(x.told[i].status == 200, "%s", x.told[i].text);
    CHECK(x.told[3].place == 1 && x.told[0].place == 2);
    free_told(&x);
}

#ifdef SEQD_MUTANTS
/* Runs the fault in a job that must then give an answer with other bits. */
static void check_fault(int id, bool states)
{
    static struct mix alone, x;
    mix_of(&alone, 2, states, true, 1);
    run(&alone);
    mix_of(&x, 2, states, false, 1);
    mutant_choose(id);
    run(&x);
    mutant_choose(MUTANT_NONE);
    mutant_report(id, n_different(&x, &alone, "", false) > 0, "200 requests of a server");
    free_told(&x);
    free_told(&alone);
}

/* A prefix of another owner has the right bits: test_serve_pages.c finds it. */
static void test_mutants(void)
{
    check_fault(MUTANT_PAGE_FOREIGN, false);
    check_fault(MUTANT_PAGE_STALE, false);
    check_fault(MUTANT_PREFIX_ADAPTER, false);
    check_fault(MUTANT_STATE_TOKEN, true);
    verify_blind(MUTANT_STATE_TOKEN);
    mutant_choose(MUTANT_ANSWER_DECODED);
    const bool same = check_turns(1, true, 100, LATE, 192, false);
    mutant_choose(MUTANT_NONE);
    mutant_report(MUTANT_ANSWER_DECODED, !same, "the second turn of a conversation");
    verify_blind(MUTANT_ANSWER_DECODED);
}
#endif

int main(void)
{
    setenv("SEQD_LOG", "error", 0);
    log_init("test_serve_mix");
    put_bodies();
    RUN(test_interleaved);
    RUN(test_states);
    RUN(test_turns);
    RUN(test_pieces);
    RUN(test_passing);
    RUN(test_short);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    return test_done("serve_mix");
}
