/* trade.c: the table of foreign words, and the search in it. A row has the field of seqd, or the
 * reason why there is no such field. */
#include "api/core/trade.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char dora[] =
    "adapters are LoRA, whose products have no magnitude of their own: see adapter.type";
#define BLOCKS "\"lora\", with model.weights \"int4\" or \"int8\" beside it"
static const char biases[] = "beside adapters no bias is trained, but that of a head: see "
                             "adapter.modules_to_save";
static const char layers[] = "all layers have the adapters of adapter.targets";
static const char patterns[] = "all products have one adapter.rank and one adapter.alpha";
static const char start[] =
    "an adapter begins with random A and with B of zeros; model.adapter names another";
static const char preferences[] =
    "pairs of answers are learnt by objective.type dpo, with objective.loss sigmoid or ipo";
static const char whole_pairs[] =
    "no answer or prompt is cut: data.overlong says what becomes of a pair that does not fit";
static const char references[] =
    "references are computed once, before the first step, by the model "
    "without its adapter or by its first weights";
static const char plain_pairs[] =
    "every token of an answer counts alike, and so does every pair of answers";
#define OF_PAIRS ", which with objective.type dpo holds the prompt twice and both answers"
static const char curves[] = "every training writes files for TensorBoard among its artifacts, and "
                             "seqctl metrics has all steps";
static const char attention[] = "attention never holds its matrix: there is nothing to switch on";

static const struct trade_word rows[] = {
    {"qlora", "adapter.type", NULL, " " BLOCKS},
    {"dora", NULL, dora},
    {"use_dora", NULL, dora},
    {"modules_to_save", "adapter.modules_to_save", NULL},
    {"additional_target", "adapter.modules_to_save", NULL},
    {"lora_bias", NULL, biases},
    {"adapter.bias", NULL, biases},
    {"layers_to_transform", NULL, layers},
    {"layers_pattern", NULL, layers},
    {"rank_pattern", NULL, patterns},
    {"alpha_pattern", NULL, patterns},
    {"target_parameters", NULL, "experts and routers have no adapters: see adapter.targets"},
    {"exclude_modules", NULL, "adapter.targets names the products that have an adapter"},
    {"init_lora_weights", NULL, start},
    {"adapter.init", NULL, start},
    {"adapter.path", "model.adapter", NULL},
    {"adapter.name", "model.adapter", NULL},
    {"adapter.r", "adapter.rank", NULL},
    {"lora", "adapter.type", NULL},
    {"peft", "adapter.type", NULL},
    {"peft_config", "adapter.type", NULL},
    {"peft_type", "adapter.type", NULL},
    {"use_peft", "adapter.type", NULL},
    {"lora_r", "adapter.rank", NULL},
    {"lora_rank", "adapter.rank", NULL},
    {"lora_alpha", "adapter.alpha", NULL},
    {"lora_dropout", "adapter.dropout", NULL},
    {"target_modules", "adapter.targets", NULL},
    {"lora_target", "adapter.targets", NULL},
    {"lora_target_modules", "adapter.targets", NULL},
    {"use_rslora", "adapter.rslora", NULL},
    {"adapter_path", "model.adapter", NULL},
    {"adapter_name_or_path", "model.adapter", NULL},
    {"lora_path", "model.adapter", NULL},
    {"dpo", "objective.type", NULL},
    {"dpo_config", "objective.type", NULL},
    {"rl", "objective.type", NULL},
    {"ipo", "objective.loss", NULL},
    {"loss_type", "objective.loss", NULL},
    {"dpo_loss", "objective.loss", NULL},
    {"pref_loss", "objective.loss", NULL},
    {"dpo_beta", "objective.beta", NULL},
    {"pref_beta", "objective.beta", NULL},
    {"rl_beta", "objective.beta", NULL},
    {"rpo_alpha", "objective.sft_weight", NULL},
    {"pref_ftx", "objective.sft_weight", NULL},
    {"dpo_label_smoothing", "objective.label_smoothing", NULL},
    {"orpo", NULL, preferences},
    {"kto", NULL, preferences},
    {"simpo", NULL, preferences},
    {"cpo", NULL, preferences},
    {"bco", NULL, preferences},
    {"ppo", NULL, preferences},
    {"grpo", NULL, preferences},
    {"rlhf", NULL, preferences},
    {"rloo", NULL, preferences},
    {"reward_model", NULL, preferences},
    {"hinge", NULL, preferences},
    {"robust", NULL, preferences},
    {"exo_pair", NULL, preferences},
    {"sigmoid_norm", NULL, preferences},
    {"simpo_gamma", NULL, preferences},
    {"cpo_alpha", NULL, preferences},
    {"max_prompt_length", NULL, whole_pairs},
    {"max_completion_length", NULL, whole_pairs},
    {"max_target_length", NULL, whole_pairs},
    {"truncation_mode", NULL, whole_pairs},
    {"ref_model", NULL, references},
    {"reference_free", NULL, references},
    {"precompute_ref_log_probs", NULL, references},
    {"precompute_ref_batch_size", NULL, references},
    {"sync_ref_model", NULL, references},
    {"ref_model_sync_steps", NULL, references},
    {"ref_model_mixup_alpha", NULL, references},
    {"f_divergence_type", NULL, "the distance to the reference is the reverse KL divergence"},
    {"loss_weights", NULL, "see objective.sft_weight, the factor of the loss of chosen answers"},
    {"ld_alpha", NULL, plain_pairs},
    {"use_weighting", NULL, plain_pairs},
    {"padding_free", "data.packing", NULL},
    {"load_in_4bit", "model.weights", NULL, " \"int4\""},
    {"load_in_8bit", "model.weights", NULL, " \"int8\""},
    {"quantization", "model.weights", NULL},
    {"quantization_config", "model.weights", NULL},
    {"bnb_config", "model.weights", NULL},
    {"report_to", NULL, curves},
    {"wandb", NULL, curves},
    {"tensorboard", NULL, curves},
    {"logging_dir", NULL, curves},
    {"logging_steps", NULL, "every step is reported"},
    {"output_dir", NULL, "results are the job's: seqctl pull ID DIR fetches them"},
    {"attn_implementation", NULL, attention},
    {"flash_attention", NULL, attention},
    {"flash_attn", NULL, attention},
    {"use_flash_attention_2", NULL, attention},
    {"torch_compile", NULL, "kernels are compiled with the program"},
    {"num_beams", NULL, "answers are drawn or greedy: see sampling.temperature"},
    {"neftune_noise_alpha", "train.neftune_alpha", NULL},
    {"noisy_embedding_alpha", "train.neftune_alpha", NULL},
    {"label_smoothing", "objective.label_smoothing", NULL},
    {"label_smoothing_factor", "objective.label_smoothing", NULL},
    {"z_loss", "objective.z_loss", NULL},
    {"z_loss_coef", "objective.z_loss", NULL},
    {"z_loss_coeff", "objective.z_loss", NULL},
    {"z_loss_weight", "objective.z_loss", NULL},
    {"z_loss_multiplier", "objective.z_loss", NULL},
    {"softmax_auxiliary_loss", "objective.z_loss", NULL},
    {"fsdp", "parallel.zero", NULL},
    {"fsdp_config", "parallel.zero", NULL},
    {"deepspeed", "parallel.zero", NULL},
    {"zero_stage", "parallel.zero", NULL},
    {"zero_optimization", "parallel.zero", NULL},
    {"tensor_parallel_size", "parallel.tp", NULL},
    {"tensor_model_parallel_size", "parallel.tp", NULL},
    {"pipeline_parallel_size", "parallel.pp", NULL},
    {"pipeline_model_parallel_size", "parallel.pp", NULL},
    {"data_parallel_size", "parallel.dp", NULL},
    {"context_parallel_size", "parallel.sp", NULL},
    {"sequence_parallel_size", "parallel.sp", NULL},
    {"ring_attn_size", "parallel.sp", NULL},
    {"nproc_per_node", "resources.ranks", NULL},
    {"num_processes", "resources.ranks", NULL},
    {"num_gpus", "resources.ranks", NULL},
    {"gpus", "resources.ranks", NULL},
    {"world_size", "resources.ranks", NULL},
    {"dataloader_num_workers", "resources.threads", NULL},
    {"gradient_checkpointing", "memory.recompute", NULL},
    {"activation_checkpointing", "memory.recompute", NULL},
    {"cpu_offload", "memory.offload", NULL},
    {"num_train_epochs", "train.passes", NULL},
    {"num_epochs", "train.passes", NULL},
    {"max_steps", "train.steps", NULL},
    {"train_iters", "train.steps", NULL},
    {"max_iters", "train.steps", NULL},
    {"max_seq_length", "data.seq_len", NULL},
    {"max_seq_len", "data.seq_len", NULL},
    {"max_length", "data.seq_len", NULL, OF_PAIRS},
    {"max_model_len", "data.seq_len", NULL},
    {"block_size", "data.seq_len", NULL},
    {"context_length", "data.seq_len", NULL},
    {"sequence_len", "data.seq_len", NULL},
    {"cutoff_len", "data.seq_len", NULL, OF_PAIRS},
    {"batch_size", "train.global_batch", NULL},
    {"train_batch_size", "train.global_batch", NULL},
    {"global_batch_size", "train.global_batch", NULL},
    {"per_device_train_batch_size", "train.global_batch", NULL},
    {"gradient_accumulation_steps", "train.global_batch", NULL},
    {"learning_rate", "optim.lr", NULL},
    {"adam_beta1", "optim.betas", NULL},
    {"adam_beta2", "optim.betas", NULL},
    {"adam_epsilon", "optim.eps", NULL},
    {"gradient_clipping", "optim.max_grad_norm", NULL},
    {"clip_grad", "optim.max_grad_norm", NULL},
    {"lr_scheduler_type", "schedule.type", NULL},
    {"lr_scheduler", "schedule.type", NULL},
    {"warmup_ratio", "schedule.warmup_steps", NULL},
    {"bf16", "precision.params", NULL},
    {"fp16", "precision.params", NULL},
    {"dtype", "precision.params", NULL},
    {"torch_dtype", "precision.params", NULL},
    {"mixed_precision", "precision.params", NULL},
    {"save_steps", "checkpoint.every_steps", NULL},
    {"save_total_limit", "checkpoint.keep", NULL},
    {"resume_from_checkpoint", "checkpoint.resume", NULL},
    {"load_best_model_at_end", "checkpoint.best", NULL},
    {"eval_steps", "eval.every_steps", NULL},
    {"eval.steps", "eval.every_steps", NULL},
    {"data.eval", "eval.data", NULL},
    {"data.validation", "eval.data", NULL},
    {"early_stopping_patience", "eval.patience", NULL},
    {"early_stopping", "eval.patience", NULL},
    {"patience", "eval.patience", NULL},
    {"eval_strategy", "eval.every_steps", NULL},
    {"evaluation_strategy", "eval.every_steps", NULL},
    {"validation_file", "eval.data", NULL},
    {"eval_dataset", "eval.data", NULL},
    {"dataset", "data.train", NULL},
    {"datasets", "data.train", NULL},
    {"dataset_name", "data.train", NULL},
    {"data.train.*.dataset", "data.train.path", NULL},
    {"eval.data.*.dataset", "eval.data.path", NULL},
    {"train_file", "data.train", NULL},
    {"dataset_text_field", "data.train.text_key", NULL},
    {"model_name_or_path", "model.path", NULL},
    {"model_name", "model.path", NULL},
    {"base_model", "model.path", NULL},
    {"tokenizer_name", "data.tokenizer", NULL},
    {"max_new_tokens", "sampling.max_tokens", NULL},
    {"do_sample", "sampling.temperature", NULL},
    {"completion_only_loss", "data.loss_on", NULL},
    {"train_on_inputs", "data.loss_on", NULL},
    {"assistant_only_loss", "data.loss_on", NULL},
};

const struct trade_word *trade_row(int i)
{
    return i < (int)(sizeof rows / sizeof *rows) ? &rows[i] : NULL;
}

static char plain(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

/* Tells whether a text is a word of the table, in which "*" stands for an index. */
static bool is_word(const char *text, const char *word)
{
    for (; *word; word++) {
        const size_t n = *word == '*' ? strspn(text, "0123456789*") : *word == plain(*text);
        if (!n) return false;
        text += n;
    }
    return !*text;
}

const struct trade_word *trade_find(const char *path)
{
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path;
    const struct trade_word *found = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool whole = strchr(rows[i].word, '.') != NULL;
        if (!is_word(whole ? path : last, rows[i].word)) continue;
        if (whole) return &rows[i];
        if (!found) found = &rows[i];
    }
    return found;
}
