/* bert.c: BERT (1810.04805). RSA was published with this model. It has bidirectional attention,
 * norms after the residual, learned positions, biases, and the head of a masked language model.
 *
 *   x = n(word[ids] + position[pos] + type[0])
 *   per layer   x = n(x + Wo attn(Wq x, Wk x, Wv x));  x = n(x + W2 act(W1 x))
 *   logits = Wword n(act(Wt x)) + b */
#include "worker/family/bert.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "api/core/limits.h"

/* Writes LayerNorm of x with the weights "NAME.weight" and "NAME.bias". */
#define LAYER_NORM(p, m, x, name)                                                                  \
    write_norm(p, x,                                                                               \
               &(struct write_norm){name ".weight", name ".bias", NORM_LAYER, (m)->norm_eps, 0})

static int embedded(struct program *p, const struct model_shape *m, int x, const char *name,
                    int64_t rows, enum embed_index by)
{
    const int w = prog_tensor(p, name, rows, m->width, INIT_NORMAL);
    const int64_t first = by == INDEX_POSITION ? m->first_pos : 0;
    return prog_op(
        p,
        &(struct op){
            .kind = OP_EMBED_ADD, .in = {x}, .w = w, .n_w = 1, .u.embed = {1, by, false, first}},
        &(struct value){
            .name = "embedded", .rows = p->value[x].rows, .cols = m->width, .keep = KEEP_NEVER});
}

static void write_in(struct program *in, const struct model_shape *m, const char *prefix)
{
    prog_init(in, prefix);
    const int w = write_of_ids(in, "word_embeddings.weight", m->vocab, m->width, INIT_NORMAL);
    int x = write_embedded(in, m, w, 1);
    x = embedded(in, m, x, "position_embeddings.weight", m->max_pos, INDEX_POSITION);
    if (m->type_vocab)
        x = embedded(in, m, x, "token_type_embeddings.weight", m->type_vocab, INDEX_TYPE);
    in->result = LAYER_NORM(in, m, x, "LayerNorm");
}

/* Indices of a matrix and of its bias among the weights of a program. */
struct dense {
    int w, bias;
};
static struct dense dense(struct program *p, const char *weight, const char *bias, int64_t rows,
                          int64_t cols, enum init_id init)
{
    struct dense d = {.w = prog_tensor(p, weight, rows, cols, init)};
    d.bias = prog_tensor(p, bias, rows, 0, INIT_ZERO);
    return d;
}

static int attention(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width, HD = m->n_heads * m->head_dim;
    const int q_w = prog_tensor(p, "attention.self.query.weight", HD, C, INIT_NORMAL);
    const int kv_w = prog_tensor(p, "attention.self.key.weight", HD, C, INIT_NORMAL);
    prog_joined(p, "attention.self.value.weight", HD, C, INIT_NORMAL);
    const int q_b = prog_tensor(p, "attention.self.query.bias", HD, 0, INIT_ZERO);
    const int kv_b = prog_tensor(p, "attention.self.key.bias", HD, 0, INIT_ZERO);
    prog_joined(p, "attention.self.value.bias", HD, 0, INIT_ZERO);
    const struct dense o = dense(p, "attention.output.dense.weight", "attention.output.dense.bias",
                                 C, HD, INIT_RESIDUAL);
    const int all = write_gathered(p, m, x);
    const int q = write_linear(
        p, &(struct write_linear){all, PROG_NONE, q_w, 1, q_b, "q", KEEP_NONE_MODE});
    const int kv = write_linear(
        p, &(struct write_linear){all, PROG_NONE, kv_w, 2, kv_b, "kv", KEEP_NONE_MODE});
    const int a = write_attention(p, m, &(struct write_attention){q, kv, false, 0});
    const int sum = write_summed(
        p, m, &(struct write_linear){a, x, o.w, 1, o.bias, "attn_sum", KEEP_NONE_MODE});
    return LAYER_NORM(p, m, sum, "attention.output.LayerNorm");
}

static int mlp(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width, I = m->ffn_width;
    const struct dense up = dense(p, "intermediate.dense.weight", "intermediate.dense.bias", I, C,
                                  INIT_NORMAL);
    const struct dense down = dense(p, "output.dense.weight", "output.dense.bias", C, I,
                                    INIT_RESIDUAL);
    const int all = write_gathered(p, m, x);
    const int h = write_linear(
        p, &(struct write_linear){all, PROG_NONE, up.w, 1, up.bias, "mlp_up", KEEP_NONE_MODE});
    const int a = write_act(p, (enum act_id)m->act, h, "mlp_act", KEEP_NEVER);
    const int sum = write_summed(
        p, m, &(struct write_linear){a, x, down.w, 1, down.bias, "mlp_sum", KEEP_NONE_MODE});
    return LAYER_NORM(p, m, sum, "output.LayerNorm");
}

static void write_out(struct program *out, const struct model_shape *m, const struct bert_names *n,
                      enum act_id act)
{
    const int64_t C = m->width;
    prog_init(out, n->head);
    int x = write_stream(out, m);
    const struct dense t = dense(out, n->up, n->up_bias, C, C, INIT_NORMAL);
    x = write_linear(out,
                     &(struct write_linear){x, PROG_NONE, t.w, 1, t.bias, "head_up", KEEP_NEVER});
    x = write_act(out, act, x, "head_act", KEEP_NEVER);
    x = write_norm(out, x, &(struct write_norm){n->norm, n->norm_bias, NORM_LAYER, m->norm_eps, 0});
    const int w = m->tied ? PROG_TIED
                          : write_of_ids(out, "decoder.weight", m->vocab, C, INIT_NORMAL);
    const int b = write_of_ids(out, n->bias, m->vocab, 0, INIT_ZERO);
    x = write_gathered(out, m, x);
    prog_op(out, &(struct op){.kind = OP_XENT, .in = {x}, .w = w, .n_w = 1, .bias = b, .n_bias = 1},
            NULL);
}

void bert_write(const struct model_shape *m, struct family *f, const struct bert_names *n,
                enum act_id act)
{
    struct program *layer = &f->layer[0];
    write_in(&f->in, m, n->embeddings);
    prog_init(layer, n->layer);
    layer->result = mlp(layer, m, attention(layer, m, write_stream(layer, m)));
    f->n_kinds = 1;
    write_out(&f->out, m, n, act);
}

static void write_bert(const struct model_shape *m, struct family *f)
{
    const struct bert_names names = {.embeddings = "bert.embeddings.",
                                     .layer = "bert.encoder.layer.%d.",
                                     .head = "cls.predictions.",
                                     .up = "transform.dense.weight",
                                     .up_bias = "transform.dense.bias",
                                     .norm = "transform.LayerNorm.weight",
                                     .norm_bias = "transform.LayerNorm.bias",
                                     /* if the head is not tied, a file has two biases, and "bias"
                                      * is not used */
                                     .bias = m->tied ? "bias" : "decoder.bias"};
    bert_write(m, f, &names, (enum act_id)m->act);
}

int bert_check(struct model_shape *m, struct err *e)
{
    if (write_check_heads(m, e)) return -1;
    if (!m->head_dim && m->width % m->n_heads == 0) m->head_dim = m->width / m->n_heads;
    if (m->head_dim * m->n_heads != m->width)
        return err_field(e, ERR_INVALID, "model.config.num_attention_heads",
                         "hidden_size %lld is not num_attention_heads %lld heads of one size",
                         (long long)m->width, (long long)m->n_heads);
    if (m->max_pos > JOB_MAX_SEQ)
        return err_field(e, ERR_UNSUPPORTED, "model.config.max_position_embeddings",
                         "max_position_embeddings %lld: a table of at most %lld is supported",
                         (long long)m->max_pos, (long long)JOB_MAX_SEQ);
    if (m->act == ACT_IDENTITY) m->act = ACT_GELU; /* the family's default */
    if (m->act == ACT_ELU1 || m->act == ACT_SIGMOID)
        return err_field(e, ERR_UNSUPPORTED, "model.config.hidden_act",
                         "hidden_act: this family takes gelu, gelu_tanh, relu, silu or tanh");
    return 0;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {
    HF_ABSENT(512, 1e-12, 10000), HF_ABSENT_SIZES(768, 12, 12, 3072, 30522),
    {"type_vocab_size", 2},       {"hidden_act", ACT_GELU},
    {"tie_word_embeddings", 1},   {NULL, 0}};
static const struct hf_model models[] = {
    {"bert", own, {"BertForMaskedLM", "BertModel", "BertForPreTraining"}}, {NULL, NULL, {NULL}}};

int bert_want_absolute(struct config *c, const char *key)
{
    return config_want_word(c, key, "absolute");
}

static const struct hf_field bert_fields[] = {BERT_FIELDS, {NULL, NULL, 0}};
static const struct hf_special bert_specials[] = {BERT_SPECIALS, {NULL, NULL, NULL}};

const char *const bert_nothing[] = {"attention_probs_dropout_prob",
                                    "hidden_dropout_prob",
                                    "directionality",
                                    "pooler_fc_size",
                                    "pooler_num_attention_heads",
                                    "pooler_num_fc_layers",
                                    "pooler_size_per_head",
                                    "pooler_type",
                                    "output_past",
                                    NULL};

static const struct hf_family config = {
    .fields = bert_fields, .specials = bert_specials, .models = models, .nothing = bert_nothing};

/* ---- the row --------------------------------------------------------------------------------- */

static bool ends(const char *s, size_t n, const char *end)
{
    return n >= strlen(end) && !strcmp(s + n - strlen(end), end);
}

/* Renames the tensors gamma and beta of old files to weight and bias. */
static void rename_tensor(const char *stored, char *name, size_t size)
{
    size_t n = strlen(stored);
    const char *end = "";
    if (ends(stored, n, ".gamma"))
        n -= 5, end = "weight";
    else if (ends(stored, n, ".beta"))
        n -= 4, end = "bias";
    snprintf(name, size, "%.*s%s", (int)n, stored, end);
}

/* Tensors that a file may have although its model does not use them: other heads, ids of
 * positions, and one of two biases. write_bert uses the other bias. */
static const char *const beside[] = {
    "bert.pooler.",         "cls.seq_relationship.",        "bert.embeddings.position_ids",
    "cls.predictions.bias", "cls.predictions.decoder.bias", NULL};

const struct family_row family_bert = {.base = "bert.",
                                       .head = "cls.predictions.decoder.weight",
                                       .beside = beside,
                                       .rename = rename_tensor,
                                       .position_table = true,
                                       .config = &config,
                                       .name = "bert",
                                       .task = MODEL_MASKED_LM,
                                       .softmax = true,
                                       .shares_layers = true,
                                       .check = bert_check,
                                       .write = write_bert};
