#include "worker/train/infer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/core/jwrite.h"
#include "worker/comm/ledger.h"
#include "worker/plan/volume.h"
#include "worker/train/data.h"
#include "worker/train/sample.h"

const char *infer_finish_name(enum infer_finish f)
{
    return f == FINISH_STOP ? "stop" : "length";
}

int infer_check_stop(const struct infer *in, struct err *e)
{
    if (in->stopped && in->stopped(in->arg)) return err_set(e, ERR_ABORTED, "stopped on request");
    return 0;
}

/* Since infer_at: did attention move what the formula says, to the byte? How a result then reaches
 * every rank is not the algorithm's and not compared. */
static bool moved(const struct infer *in, int64_t n_prefills, int64_t n_decodes)
{
    struct model *m = in->model;
    if (!m->comm) return true;
    const struct model_shape *s = &m->shape;
    int P = comm_size(m->comm);
    struct comm_count kv = {0}, decode = {0};
    volume_add(&kv,
               volume_ring_kv(P, m->sp.shard.T, s->n_kv_heads, s->head_dim, m->plan->precision),
               n_prefills * s->n_layers);
    volume_add(&decode, plan_decode_comm(s, P), n_decodes);
    const struct comm_count *got = comm_ledger(m->comm);
    return ledger_equal(&got[PURPOSE_RING_KV], &kv) && ledger_equal(&got[PURPOSE_DECODE], &decode);
}

int infer_agree(const struct infer *in, bool *ok, struct err *e)
{
    struct model *m = in->model;
    int64_t bad = !*ok;
    if (m->comm && comm_sum_i64(m->comm, PURPOSE_CONTROL, &bad, 1, m->bounce, e)) return -1;
    *ok = bad == 0;
    return 0;
}

void infer_at(const struct infer *in, int64_t step)
{
    struct model *m = in->model;
    if (m->comm) comm_where(m->comm)->step = step;
    if (m->comm) comm_ledger_reset(m->comm);
}

/* ---- generate ------------------------------------------------------------------------------- */

static void fill_prompt(struct model *m, const int32_t *tokens, int64_t n)
{
    struct batch *b = &m->batch;
    const struct shard *sh = &m->sp.shard;
    b->n_tokens = n;
    b->n_targets = 0;
    for (int64_t i = 0; i < sh->T; i++) {
        int64_t pos = shard_pos(sh, i);
        bool real = pos < n;
        b->ids[i] = real ? tokens[pos] : TOKEN_PAD;
        b->targets[i] = -1;
        b->pos[i] = real ? pos : 0;
        b->lo[i] = 0;
        b->hi[i] = real ? pos + 1 : 0;
    }
}

/* Which rank holds global position pos, and in which row. */
static int owner_of(struct model *m, int64_t pos, int64_t *row, struct err *e)
{
    const struct plan *p = m->plan;
    for (int q = 0; q < p->sp; q++) {
        struct shard sh;
        if (shard_init(&sh, m->sp.shard.S, p->sp, q, p->layout, p->rank_bits, e)) return -1;
        for (int s = 0; s < sh.n_segs; s++) {
            if (pos < sh.pos[s] || pos >= sh.pos[s] + sh.seg_len) continue;
            *row = s * sh.seg_len + pos - sh.pos[s];
            return q;
        }
    }
    return err_set(e, ERR_INTERNAL, "no rank holds position %lld", (long long)pos);
}

int infer_prefill(const struct infer *in, const int32_t *tokens, int64_t n, float *logits,
                  struct err *e)
{
    struct model *m = in->model;
    int64_t row = 0;
    if (n > m->plan->S)
        return err_field(e, ERR_TOO_LARGE, "data.seq_len",
                         "the prompt has %lld tokens and this job was planned for %lld: raise "
                         "data.seq_len to %lld",
                         (long long)n, (long long)m->plan->S, (long long)n);
    if (model_set_seq(m, n, e)) return -1;
    fill_prompt(m, tokens, n);
    if (model_forward(m, &m->batch, e)) return -1;
    int root = owner_of(m, n - 1, &row, e);
    if (root < 0) return -1;
    int64_t size = m->shape.vocab * (int64_t)sizeof *logits;
    if (root == m->sp.shard.r) {
        struct tensor last = model_logits(m, row, 1);
        m->be->ops->download(m->be, logits, last.data, size);
    }
    if (!m->comm) return 0;
    return comm_broadcast(m->comm, PURPOSE_CONTROL, root, logits, size, m->bounce, e);
}

/* The token behind `position` tokens; -1 when the logits are not numbers. */
static int32_t choose(const struct infer *in, const float *logits, int64_t request,
                      int64_t position)
{
    int64_t V = in->model->shape.vocab;
    struct sample_options o = {in->spec->sampling.temperature, in->spec->sampling.seed, request,
                               position};
    for (int64_t i = 0; i < V; i++)
        if (!isfinite(logits[i])) return -1;
    return sample_token(logits, V, &o);
}

int infer_continue(const struct infer *in, const int32_t *tokens, int64_t n_prompt, int64_t request,
                   int32_t *out, int64_t room, int64_t *n_out, enum infer_finish *finish,
                   struct err *e)
{
    struct model *m = in->model;
    int64_t size = m->shape.vocab * (int64_t)sizeof(float), n = 0;
    float *logits = malloc((size_t)size);
    int rc = -1;
    if (!logits)
        return err_set(e, ERR_IO, "out of memory for %lld logits", (long long)m->shape.vocab);
    *finish = FINISH_LENGTH;
    if (infer_prefill(in, tokens, n_prompt, logits, e)) goto out;
    while (n < room) {
        int32_t token = choose(in, logits, request, n_prompt + n);
        struct tensor next;
        if (token < 0) {
            err_field(e, ERR_CORRUPT, "model.path",
                      "logits behind token %lld of prompt %lld are not finite: the weights are "
                      "damaged",
                      (long long)(n_prompt + n), (long long)request);
            goto out;
        }
        if (token == TOKEN_EOD) {
            *finish = FINISH_STOP;
            break;
        }
        out[n++] = token;
        if (n == room) break;
        if (infer_check_stop(in, e) || model_decode(m, token, &next, e)) goto out;
        m->be->ops->download(m->be, logits, next.data, size);
    }
    rc = 0;
out:
    *n_out = n;
    free(logits);
    return rc;
}

/* Tokens to UTF-8; owned by the caller. Ids that are no byte (a larger vocabulary) become U+FFFD. */
static char *text_of(const int32_t *tokens, int64_t n)
{
    unsigned char *bytes = malloc((size_t)n + 1);
    char *text = malloc(3 * (size_t)n + 1);
    for (int64_t i = 0; bytes && i < n; i++)
        bytes[i] = tokens[i] < 256 ? (unsigned char)tokens[i] : 0xFF;
    if (bytes && text) sample_utf8(bytes, (size_t)n, text);
    if (!bytes) free(text);
    free(bytes);
    return bytes ? text : NULL;
}

struct line { /* one prompt's row of generate.jsonl */
    const char *text;
    int64_t n_prompt, n_tokens;
    enum infer_finish finish;
};

static int write_line(struct artifact *a, const char *prompt, int64_t size, const struct line *l,
                      struct err *e)
{
    int rc = -1;
    char *shown = malloc(3 * (size_t)size + 1), *buf = NULL;
    if (!shown) goto out;
    size_t shown_size = sample_utf8((const unsigned char *)prompt, (size_t)size, shown);
    size_t room = 6 * (shown_size + strlen(l->text)) + 512; /* an escape has six characters */
    buf = malloc(room);
    if (!buf) goto out;
    struct jwrite w;
    jwrite_init(&w, buf, room);
    jwrite_object(&w, NULL);
    jwrite_strn(&w, "prompt", shown, shown_size);
    jwrite_str(&w, "text", l->text);
    jwrite_int(&w, "n_prompt_tokens", l->n_prompt);
    jwrite_int(&w, "n_tokens", l->n_tokens);
    jwrite_str(&w, "finish_reason", infer_finish_name(l->finish));
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    assert(n > 0);
    buf[n] = '\n';
    rc = artifact_write(a, buf, (size_t)n + 1, e);
out:
    if (!buf) err_set(e, ERR_IO, "out of memory for a line of generate.jsonl");
    free(shown);
    free(buf);
    return rc;
}

static int one_prompt(const struct infer *in, const struct prompts *p, int i, struct artifact *a,
                      struct infer_text *out, struct err *e)
{
    int64_t size, n = 0, room = in->spec->sampling.max_tokens;
    const char *prompt = prompts_at(p, i, &size);
    int32_t *tokens = malloc((size_t)(size + room) * sizeof *tokens);
    struct line l = {.n_prompt = size};
    char *text = NULL;
    int rc = -1;
    if (!tokens)
        return err_set(e, ERR_IO, "out of memory for a prompt of %lld tokens", (long long)size);
    for (int64_t k = 0; k < size; k++) tokens[k] = (unsigned char)prompt[k];
    infer_at(in, i + 1);
    if (infer_continue(in, tokens, size, i, tokens + size, room, &n, &l.finish, e)) goto out;
    out->ledger_equal = out->ledger_equal && moved(in, 1, in->model->n_decoded);
    out->n_prompt_tokens += size;
    out->n_tokens += n;
    text = text_of(tokens + size, n);
    if (!text) {
        err_set(e, ERR_IO, "out of memory for %lld tokens of text", (long long)n);
        goto out;
    }
    l.text = text;
    l.n_tokens = n;
    if (a && write_line(a, prompt, size, &l, e)) goto out;
    if (i == 0) {
        out->finish = l.finish;
        out->text = text;
        text = NULL;
    }
    rc = 0;
out:
    free(text);
    free(tokens);
    return rc;
}

int infer_generate(const struct infer *in, const struct prompts *p, struct infer_text *out,
                   struct err *e)
{
    bool writer = in->model->sp.shard.r == 0;
    struct artifact a = {0};
    int rc = -1;
    *out = (struct infer_text){.n_prompts = p->n, .ledger_equal = true};
    if (writer && artifact_open(&a, in->job_dir, "generate.jsonl", e)) return -1;
    for (int i = 0; i < p->n; i++)
        if (infer_check_stop(in, e) || one_prompt(in, p, i, writer ? &a : NULL, out, e)) goto out;
    if (infer_agree(in, &out->ledger_equal, e)) goto out;
    if (writer && artifact_finish(&a, e)) goto out;
    out->artifact = a.done;
    rc = 0;
out:
    artifact_drop(&a);
    if (rc) infer_text_fini(out);
    return rc;
}

void infer_text_fini(struct infer_text *t)
{
    free(t->text);
    t->text = NULL;
}
