/* config_house.c: keys of config.json that any model may have and that change neither sizes nor
 * arithmetic. They are skipped, unless a family's table has them (RoBERTa's table has
 * pad_token_id). hf/files.c reads eos_token_id and pad_token_id separately. The keys in `neutral`
 * are accepted only with values that change nothing. */
#include <string.h>
#include "worker/family/config_table.h"

static const char *const changes_nothing[] = {
    "architectures", "auto_map", "torch_dtype", "dtype", "transformers_version", "tokenizer_class",
    "use_cache", "initializer_range", "init_std", "pretraining_tp", "bos_token_id", "eos_token_id",
    "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "return_dict",
    "return_dict_in_generate", "output_hidden_states", "output_attentions", "output_scores",
    "torchscript", "use_bfloat16", "tf_legacy_loss", "chunk_size_feed_forward",
    "gradient_checkpointing", "finetuning_task", "id2label", "label2id", "num_labels",
    "problem_type", "task_specific_params", "prefix", "classifier_dropout", "attn_implementation",
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "num_return_sequences", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens",
    /* the job sets the dropout of a training */
    "attention_dropout", "hidden_dropout", "dropout", "embd_pdrop", "resid_pdrop",
    /* the program that has written the file */
    "unsloth_version", "unsloth_fixed", NULL};

bool config_is_nothing(const struct config *c, const char *key)
{
    const char *const *lists[] = {changes_nothing, c->family ? c->family->nothing : NULL};
    if (key[0] == '_') return true; /* private keys of the package, like _name_or_path */
    for (int i = 0; i < 2; i++)
        for (const char *const *k = lists[i]; k && *k; k++)
            if (!strcmp(*k, key)) return true;
    return false;
}

/* ---- keys that change nothing while they have their default ---------------------------------- */

static int want_empty(struct config *c, const char *key)
{
    struct jread here = c->j;
    const enum jtok t = jread_next(&here), end = t == J_OBJECT ? jread_next(&here) : t;
    if (t == J_NULL || end == J_OBJECT_END) return config_ignore(c, key);
    return config_ignore(c, key) < 0 ? -1 : config_refuse(c, key, "only {} is supported");
}

static bool reads_both_ways(const struct config *c)
{
    return !c->family || family_row(c->m)->task != MODEL_CAUSAL_LM;
}

/* Reads is_decoder. For an encoder, true would mean causal attention. The attention of a decoder
 * is causal with any value. */
static int read_decoder(struct config *c, const char *key)
{
    return reads_both_ways(c) ? config_want_false(c, key) : config_ignore(c, key);
}

/* Reads is_causal. If it is false, the package gives a decoder bidirectional attention. */
static int read_causal(struct config *c, const char *key)
{
    return reads_both_ways(c) ? config_want_false(c, key) : config_want_true(c, key);
}

static const struct hf_special neutral[] = {{"is_encoder_decoder", config_want_false, NULL},
                                            {"tie_encoder_decoder", config_want_false, NULL},
                                            {"add_cross_attention", config_want_false, NULL},
                                            {"cross_attention_hidden_size", config_want_null, NULL},
                                            {"is_decoder", read_decoder, NULL},
                                            {"is_causal", read_causal, NULL},
                                            {"is_composition", config_want_false, NULL},
                                            {"pruned_heads", want_empty, NULL},
                                            {"per_layer_config", want_empty, NULL},
                                            {NULL, NULL, NULL}};

const struct hf_special *config_neutral(const char *key)
{
    for (const struct hf_special *x = neutral; x->key; x++)
        if (!strcmp(key, x->key)) return x;
    return NULL;
}
