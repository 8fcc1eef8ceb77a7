/* task_serve.c: runs a serve job. Rank 0 gets requests from the link and sends the answers there.
 * When the job ends, it sends the counts. */
#include <stdlib.h>
#include <string.h>
#include "api/core/clock.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/hf/embedding.h"
#include "worker/infer/serve.h"
#include "worker/rank/model_tokenizer.h"
#include "worker/rank/roots.h"
#include "worker/rank/task_infer.h"
#include "worker/rank/text_ends.h"

/* ---- the link -------------------------------------------------------------------------------- */

/* Tells whether the message is a piece of a request whose sizes agree. */
static bool is_ask(const struct rank_msg *h, const struct rank_ask *a)
{
    return h->type == RANK_ASK && a->size >= 0 && a->size <= RANK_PIECE_SIZE &&
           h->size == sizeof *a + (size_t)a->size && a->endpoint < SERVE_MODELS &&
           memchr(a->model, 0, sizeof a->model) && memchr(a->user, 0, sizeof a->user);
}

static void take(void *asks, const struct rank_msg *h, const char *bytes)
{
    struct rank_ask a;
    uint64_t id;
    if (h->abi != RANK_ABI) return;
    if (h->type == RANK_DROP && h->size == sizeof id) {
        memcpy(&id, bytes, sizeof id);
        serve_asks_drop(asks, id);
        return;
    }
    if (h->size < sizeof a) return;
    memcpy(&a, bytes, sizeof a);
    if (is_ask(h, &a)) serve_asks_take(asks, &a, bytes + sizeof a);
}

static int receive(void *run, int wait_ms, bool room, struct err *e)
{
    struct run *r = run;
    (void)e;
    link_wait(r->link, wait_ms, room);
    run_stopped(r); /* counts; the caller notices that the job was stopped */
    return 0;
}

static int answer(void *run, const struct rank_answer *a, const char *bytes, struct err *e)
{
    return link_send_answer(((struct run *)run)->link, a, bytes, e);
}

static int report(void *run, const struct rank_serving *s, struct err *e)
{
    return link_send_serving(((struct run *)run)->link, s, e);
}

static const char *draining(void *run)
{
    struct link *k = ((struct run *)run)->link;
    if (!link_saving(k)) return NULL;
    return *k->why ? k->why : "the job ends";
}

static int64_t now_us(void *run)
{
    (void)run;
    return clock_us();
}

/* Opens the door on rank 0. Its memory is freed by close_door. */
static int open_door(struct run *r, struct serve_door *d, struct err *e)
{
    struct link *k = r->link;
    *d = (struct serve_door){.receive = receive,
                             .answer = answer,
                             .draining = draining,
                             .report = report,
                             .now_us = now_us,
                             .arg = r};
    d->asks = serve_asks_create();
    k->room = malloc(LINK_ROOM);
    if (!d->asks || !k->room) return err_set(e, ERR_IO, "out of memory for requests");
    k->take_arg = d->asks;
    k->take = take;
    return 0;
}

static void close_door(struct run *r, struct serve_door *d)
{
    r->link->take = NULL;
    free(r->link->room);
    r->link->room = NULL;
    serve_asks_destroy(d->asks);
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Tells seqd that the job takes requests. Waits until all ranks have loaded the model. */
static int say_ready(struct run *r, const struct infer *in, struct err *e)
{
    bool loaded = true;
    if (infer_agree(in, &loaded, e)) return -1;
    if (!run_first(r)) return 0;
    return link_send_note(r->link, RANK_NOTE_SERVES, "the model is loaded, and requests are taken",
                          e);
}

static int send_counts(struct run *r, const struct serve_result *t, const struct model *m,
                       struct err *e)
{
    char json[RANK_RESULT_SIZE];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "requests", t->n_requests);
    jwrite_int(&w, "refused", t->n_refused);
    jwrite_int(&w, "dropped", t->n_dropped);
    jwrite_int(&w, "n_prompt_tokens", t->n_prompt_tokens);
    jwrite_int(&w, "n_tokens", t->n_tokens);
    if (m->plan->paged) {
        jwrite_int(&w, "n_kept_tokens", t->n_kept_tokens);
        jwrite_int(&w, "pages", t->n_pages);
        jwrite_int(&w, "pages_used", t->n_pages_used);
    }
    jwrite_double(&w, "prefill_tokens_s", pace_rate(&t->prefill));
    jwrite_double(&w, "decode_tokens_s", pace_rate(&t->decode));
    run_write_account(&w, r, t->ledger_equal, m);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

/* Reads on rank 0 the prompt that stands before each text that becomes a vector. */
static int read_prompt(struct run *r, char **out, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    const struct job_spec *s = r->spec;
    const char *path = spec_text(s, s->model.path);
    if (!run_first(r) || !job_embeds(s) || !s->embed.prompts || !*path) return 0;
    return roots_model(path, r->roots, r->n_roots, dir, e) ||
                   hf_embedding_prompt(dir, spec_text(s, s->embed.prompt_name), out, e)
               ? -1
               : 0;
}

int task_serve(struct run *r, struct err *e)
{
    struct token_ends ends = {0};
    struct vocabulary vocabulary = {0};
    struct model_tokenizer own = {0};
    struct serve_result out = {0};
    struct serve_door door = {0};
    struct model *m = NULL;
    char *prompt = NULL;
    int rc = -1;
    if (run_first(r) && (open_door(r, &door, e) || model_tokenizer_open(r, &own, e))) goto out;
    m = task_open_model(r, e);
    if (!m || model_tokenizer_share(r, &own, m->bounce, e)) goto out;
    struct infer in = {m, r->spec, r->args->job_dir, run_stopped, r, &r->progress};
    in.tokenizer = own.tokenizer;
    in.no_tokenizer = &own.why;
    in.chat = (struct request_chat){&own.chat, &own.no_chat, r->args->submitted_s};
    in.vocabulary = &vocabulary;
    in.epoch = r->args->epoch;
    if (read_prompt(r, &prompt, e)) goto out;
    in.embed_prompt = prompt;
    if (!job_embeds(r->spec) && text_ends_open(r, m, &ends, &in, e)) goto out;
    if (say_ready(r, &in, e)) goto out;
    if (serve_run(&in, run_first(r) ? &door : NULL, &out, e)) goto out;
    rc = run_first(r) ? send_counts(r, &out, m, e) : 0;
    /* after SAVE the exit status tells seqd that the open requests have ended */
    if (!rc) rc = run_leave(r, -1, e);
out:
    if (run_first(r)) close_door(r, &door);
    vocabulary_fini(&vocabulary);
    model_tokenizer_fini(&own);
    free(prompt);
    free(m);
    return rc;
}
