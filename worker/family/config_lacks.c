/* config_lacks.c: a table of published text models that are not supported, with the feature that
 * each of them needs. Every model_type of transformers with a head for causal or masked language
 * models is in this table or in the table of a family (tests/engine/test_classes.c). */
#include <string.h>
#include "worker/family/config_table.h"

/* The model_types that need a feature. There is a space after each of them. */
static const struct {
    const char *needs, *types;
} rows[] = {
    /* clang-format off */
    {"an encoder and a decoder",
     "t5 mt5 umt5 longt5 t5gemma switch_transformers bart bigbird_pegasus blenderbot "
     "blenderbot-small led m2m_100 marian mbart mvp nllb-moe pegasus pegasus_x plbart prophetnet "},
    {"an encoder of audio", "whisper moshi moss_transcribe_diarize "},
    {"an encoder of pictures",
     "fuyu git got_ocr2 trocr modernvbert ultravbert neomme "},
    {"encoders of pictures and audio", "phi4_multimodal "},
{"attention from latents to what is read", "perceiver "},
    {"an encoder of bytes that forms patches", "blt "},
    {"selective state spaces",
     "mamba mamba2 falcon_mamba jamba bamba zamba zamba2 falcon_h1 granitemoehybrid nemotron_h "},
    {"the recurrence of RWKV", "rwkv "},
    {"the recurrence of xLSTM", "xlstm "},
    {"gated linear recurrences", "recurrent_gemma "},
    {"short convolutions in place of attention", "lfm2 lfm2_moe lfm3 "},
    {"convolutions within attention", "convbert squeezebert zaya "},
    {"Fourier transforms in place of attention", "fnet "},
    {"gates of each column", "kimi_linear bailing_hybrid "},
    {"gated delta networks beside attention whose norms stand elsewhere", "olmo_hybrid "},
    {"gated delta networks with one projection, and shared experts of another router", "lara_mini "},
    {"gated delta networks beside attention that skips keys", "qwen4_exp_text "},
    {"latent attention", "minicpm3 youtu "},
    {"latent attention and shared experts",
     "deepseek_v2 deepseek_v3 kimi_k2 glm4_moe_lite axk1 "},
    {"latent attention, and an index that chooses its keys",
     "deepseek_v32 glm_moe_dsa axk2 hy_v4 dots3_note_text "},
    {"latent attention, and experts that compute nothing", "longcat_flash "},
    {"attention to compressed keys, with sinks", "deepseek_v4 "},
    {"attention that skips blocks of keys", "big_bird longformer minimax_m3_vl_text "},
    {"attention that is approximated by other means", "nystromformer yoso mra reformer funnel "},
    {"attention that is a difference of two softmaxes", "diffllama "},
    {"attention whose mask is learnt", "doge "},
    {"attention whose output has a gate", "dory afmoe laguna beam "},
    {"attention in chunks, and shared experts", "llama4_text llama4 "},
    {"attention to streams of two orders", "xlnet "},
    {"shared experts",
     "deepseek aria_text cohere2_moe dots1 ernie4_5_moe exaone_moe flint glm4_moe hunyuan_v1_moe "
     "hy_v3 kolibri1 solar_open granitemoeshared "},
    {"short convolutions beside attention with relative positions",
     "inkling_text inkling2_text inkling2_loop_text "},
    {"experts whose gate and up are one tensor", "granitemoe dbrx "},
    {"experts of attention", "jetmoe "},
    {"experts between norms of what attention and MLP make", "flex_olmo "},
    {"experts with a router of its own, and LayerNorms", "phimoe "},
    {"experts that a sigmoid with a bias chooses", "minimax_m2 "},
    {"experts in layers with windows and RoPE of two kinds", "mellum "},
    {"experts beside attention with sinks", "mimo_v2_flash granitemoe_swa "},
    {"multipliers of Granite beside windows and sinks", "granite_swa "},
    {"ALiBi in softmax attention", "bloom mpt "},
    {"relative positions", "cpmant deberta deberta-v2 mpnet "},
    {"sines of fixed positions", "ctrl xglm "},
    {"attention and MLP side by side, of one input",
     "cohere cohere2 cohere_compass_text codegen gptj gpt_neox gpt_neox_japanese falcon phi "},
    {"keys and values that all heads share, beside learnt positions", "gpt_bigcode "},
    {"layers of GPT-2 with windows, and scores without a scale", "gpt_neo "},
    {"norms after attention and MLP, as the first GPT has them", "openai-gpt "},
    {"learnt positions that begin at row 2", "opt biogpt "},
    {"LayerNorms beside RoPE", "olmo stablelm starcoder2 jais2 "},
    {"an MLP of squared relu",
     "arcee nemotron persimmon bitnet nanochat "},
    {"an MLP whose activation is learnt", "apertus apertus1p5_text "},
    {"RoPE of neighbouring columns", "ernie4_5 helium "},
    {"RoPE of neighbouring columns in a part of a head", "glm glm4 "},
    {"RMSNorms with 1 + weight in Llama's layers", "gemma "},
    {"layers of Gemma 2 without their last norms", "vaultgemma "},
    {"embeddings of each layer, and layers that share keys",
     "gemma3n gemma3n_text gemma4 gemma4_text gemma4_assistant gemma4_unified gemma4_unified_text "
     "gemma4_unified_assistant "},
    {"norms of queries and keys after RoPE", "hunyuan_v1_dense "},
    {"norms after attention and MLP beside windows", "exaone4 olmo3 "},
    {"a norm that follows the MLP, in layers of Granite", "hyperclovax "},
    {"layers of Llama with windows in some", "cwm "},
    {"biases of q, k and v beside an output of another width", "seed_oss "},
    {"queries that are scaled by their position", "ministral3 "},
    {"layers that run several times", "hrm_text "},
    {"layers of Llama that read both ways", "eurobert ultrabert esmc "},
    {"layers of ModernBERT that read one way", "modernbert-decoder "},
    {"RoPE in an encoder with biases", "roformer esm gte jina_embeddings_v3 nomic_bert "},
    {"one set of weights for all layers", "albert "},
    {"layers of RoBERTa under names of its own", "camembert data2vec-text "},
    {"layers of BERT under names of its own", "distilbert "},
    {"BERT's norms before attention and MLP", "megatron-bert roberta-prelayernorm xlm-roberta-xl "},
    {"adapters of each language", "xmod "},
    {"embeddings of another width than layers", "electra rembert mobilebert "},
    {"embeddings of tasks beside those of types", "ernie "},
    {"embeddings of places on a page", "layoutlm "},
    {"embeddings of cells of a table", "tapas "},
    {"embeddings of languages", "xlm flaubert "},
{"embeddings of entities", "luke "},
    {"embeddings of sounds and shapes", "roc_bert "},
    {"integers in place of floats", "ibert "},
    {"a head without a transform, in BERT's layers", "bert-generation "},
    /* clang-format on */
};

const char *config_lacks(const char *type)
{
    const size_t n = strlen(type);
    for (size_t i = 0; n && i < sizeof rows / sizeof *rows; i++)
        for (const char *p = rows[i].types; (p = strstr(p, type)); p += n)
            if ((p == rows[i].types || p[-1] == ' ') && p[n] == ' ') return rows[i].needs;
    return NULL;
}
