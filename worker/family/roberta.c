/* roberta.c: RoBERTa (1907.11692) and XLM-RoBERTa (1911.02116). They are BERT with two
 * differences. Positions begin after the padding id. The tensors of the head have other names, and
 * its activation is gelu.
 *
 *   position i of a document is row i + pad_token_id + 1 of the table
 *
 * transformers does not count a token with the id pad_token_id. In transformers, a token with that
 * id has row pad_token_id, and does not increase the positions of later tokens. Here a document
 * has no padding, and a token with that id counts like every other token. */
#include <stdio.h>
#include "worker/family/bert.h"

enum { FIRST = 2 }; /* 1 + pad_token_id; pad_token_id is 1 in the class */

/* Writes the model. Files have two biases of the logits. If the head is not tied, transformers
 * adds decoder.bias. */
static void write_roberta(const struct model_shape *m, struct family *f)
{
    const struct bert_names names = {.embeddings = "roberta.embeddings.",
                                     .layer = "roberta.encoder.layer.%d.",
                                     .head = "lm_head.",
                                     .up = "dense.weight",
                                     .up_bias = "dense.bias",
                                     .norm = "layer_norm.weight",
                                     .norm_bias = "layer_norm.bias",
                                     .bias = m->tied ? "bias" : "decoder.bias"};
    bert_write(m, f, &names, ACT_GELU);
}

static int check_roberta(struct model_shape *m, struct err *e)
{
    if (!m->first_pos) m->first_pos = FIRST;
    if (m->first_pos >= m->max_pos)
        return err_field(e, ERR_INVALID, "model.config.max_position_embeddings",
                         "max_position_embeddings %lld: positions begin at row %lld, pad_token_id "
                         "+ 1, so that the table has none for a token",
                         (long long)m->max_pos, (long long)m->first_pos);
    return bert_check(m, e);
}

/* ---- config.json ----------------------------------------------------------------------------- */

#define ABSENT                                                                                     \
    HF_ABSENT(512, 1e-12, 10000), {"type_vocab_size", 2}, {"hidden_act", ACT_GELU},                \
        {"tie_word_embeddings", 1},                                                                \
    {                                                                                              \
        "first_position", FIRST                                                                    \
    }
static const struct hf_absent roberta[] = {
    ABSENT, HF_ABSENT_SIZES(768, 12, 12, 3072, 50265), {NULL, 0}};
static const struct hf_absent xlm[] = {
    ABSENT, HF_ABSENT_SIZES(768, 12, 12, 3072, 30522), {NULL, 0}};
static const struct hf_model models[] = {
    {"roberta", roberta, {"RobertaForMaskedLM", "RobertaModel"}},
    {"xlm-roberta", xlm, {"XLMRobertaForMaskedLM", "XLMRobertaModel"}},
    {NULL, NULL, {NULL}}};

static int read_pad(struct config *c, const char *key)
{
    struct jread here = c->j;
    int64_t pad = 0;
    if (jread_next(&here) == J_NULL)
        return config_invalid(c, key, "a number: positions are counted from it");
    if (config_read_int(c, key, 0, 1 << 20, &pad) < 0) return -1;
    c->m->first_pos = pad + 1;
    return 0;
}

static void write_pad(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->first_pos - 1);
}

static const struct hf_field fields[] = {
    BERT_FIELDS, {"first_position", NULL, HF_UNWRITTEN}, {NULL, NULL, 0}};
static const struct hf_special specials[] = {
    BERT_SPECIALS, {"pad_token_id", read_pad, write_pad}, {NULL, NULL, NULL}};

static const struct hf_family config = {
    .fields = fields, .specials = specials, .models = models, .nothing = bert_nothing};

/* ---- the row --------------------------------------------------------------------------------- */

static const char *const beside[] = {"roberta.pooler.", "roberta.embeddings.position_ids",
                                     "lm_head.bias", "lm_head.decoder.bias", NULL};

const struct family_row family_roberta = {.base = "roberta.",
                                          .head = "lm_head.decoder.weight",
                                          .beside = beside,
                                          .position_table = true,
                                          .config = &config,
                                          .name = "roberta",
                                          .task = MODEL_MASKED_LM,
                                          .softmax = true,
                                          .shares_layers = true,
                                          .check = check_roberta,
                                          .write = write_roberta};
