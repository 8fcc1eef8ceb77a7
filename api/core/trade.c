/* trade.c: the tables of foreign words, of fields and of values, and the search in them. A row of a
 * field has the field of seqd, or the reason why there is no such field. */
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

static const char alone[] = "an evaluation takes sequences one after another: see eval.max_tokens";
static const char steps[] = "every step is reported";
static const char kernels[] = "kernels are those of the program: there is nothing to switch on";
static const char hub[] = "nothing is sent to a hub: seqctl pull fetches results";
static const char lowest[] = "the lowest loss of eval.data decides: see checkpoint.best";
static const char kept[] =
    "checkpoints stay with the node: seqctl pull fetches one, checkpoint.resume begins from one";
static const char tokens[] = "tokens and their ids are those of model.path's tokenizer";
static const char templates[] = "the template is chat_template.jinja of model.path";
static const char ends[] =
    "a text ends at the ids of model.path's eos_token_id, and at strings of sampling.stop";
static const char placed[] = "resources.ranks are placed on the nodes that have room";
static const char beams[] = "answers are drawn or greedy: see sampling.temperature";
static const char apart[] = "held-out data are files of their own: see eval.data";
#define OF_DATA " (input.path in score, generate and embed jobs)"

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
    {"adapter.modules", "adapter.targets", NULL},
    {"loftq_config", NULL, start},
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
    {"logging_steps", NULL, steps},
    {"logging_strategy", NULL, steps},
    {"logging_first_step", NULL, steps},
    {"log_interval", NULL, steps},
    {"output_dir", NULL, "results are the job's: seqctl pull ID DIR fetches them"},
    {"attn_implementation", NULL, attention},
    {"flash_attention", NULL, attention},
    {"flash_attn", NULL, attention},
    {"use_flash_attention_2", NULL, attention},
    {"torch_compile", NULL, "kernels are compiled with the program"},
    {"num_beams", NULL, beams},
    {"n_beams", NULL, beams},
    {"length_penalty", NULL, beams},
    {"no_repeat_ngram_size", NULL, "see sampling.repetition_penalty"},
    {"typical_p", NULL, "see sampling.top_p and sampling.min_p"},
    {"use_liger_kernel", NULL, kernels},
    {"liger_kernel", NULL, kernels},
    {"push_to_hub", NULL, hub},
    {"hub_model_id", NULL, hub},
    {"hub_token", NULL, hub},
    {"run_name", "name", NULL},
    {"job_name", "name", NULL},
    {"experiment_name", "name", NULL},
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
    {"parallel.cp", "parallel.sp", NULL},
    {"parallel.context", "parallel.sp", NULL},
    {"parallel.sequence", "parallel.sp", NULL},
    {"parallel.tensor", "parallel.tp", NULL},
    {"parallel.pipeline", "parallel.pp", NULL},
    {"parallel.data", "parallel.dp", NULL},
    {"ddp_backend", "parallel.transport", NULL},
    {"use_cpu", "resources.device", NULL, " \"cpu\""},
    {"no_cuda", "resources.device", NULL, " \"cpu\""},
    {"num_nodes", NULL, placed},
    {"nnodes", NULL, placed},
    {"nproc_per_node", "resources.ranks", NULL},
    {"num_processes", "resources.ranks", NULL},
    {"num_gpus", "resources.ranks", NULL},
    {"gpus", "resources.ranks", NULL},
    {"world_size", "resources.ranks", NULL},
    {"dataloader_num_workers", "resources.threads", NULL},
    {"gradient_checkpointing", "memory.recompute", NULL},
    {"activation_checkpointing", "memory.recompute", NULL},
    {"use_gradient_checkpointing", "memory.recompute", NULL},
    {"gradient_checkpointing_kwargs", "memory.recompute", NULL},
    {"cpu_offload", "memory.offload", NULL},
    {"offload_optimizer", "memory.offload", NULL, " \"optimizer\""},
    {"optimizer_offload", "memory.offload", NULL, " \"optimizer\""},
    {"offload_activations", "memory.offload", NULL, " \"activations\""},
    {"activation_offloading", "memory.offload", NULL, " \"activations\""},
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
    {"train.batch", "train.global_batch", NULL},
    {"gradient_accumulation", "train.global_batch", NULL},
    {"per_device_eval_batch_size", NULL, alone},
    {"eval_batch_size", NULL, alone},
    {"eval.batch_size", NULL, alone},
    {"eval_accumulation_steps", NULL, alone},
    {"lr", "optim.lr", NULL},
    {"learning_rate", "optim.lr", NULL},
    {"min_lr", "schedule.min_lr_ratio", NULL, ", a share of optim.lr"},
    {"min_lr_rate", "schedule.min_lr_ratio", NULL},
    {"beta1", "optim.betas", NULL},
    {"beta2", "optim.betas", NULL},
    {"optimizer", "optim.name", NULL},
    {"optim.type", "optim.name", NULL},
    {"grad_clip", "optim.max_grad_norm", NULL},
    {"gradient_clip_val", "optim.max_grad_norm", NULL},
    {"clip", "optim.max_grad_norm", NULL},
    {"adam_beta1", "optim.betas", NULL},
    {"adam_beta2", "optim.betas", NULL},
    {"adam_epsilon", "optim.eps", NULL},
    {"gradient_clipping", "optim.max_grad_norm", NULL},
    {"clip_grad", "optim.max_grad_norm", NULL},
    {"lr_scheduler_type", "schedule.type", NULL},
    {"lr_scheduler", "schedule.type", NULL},
    {"scheduler", "schedule.type", NULL},
    {"warmup_ratio", "schedule.warmup_steps", NULL, ", a number of steps"},
    {"num_warmup_steps", "schedule.warmup_steps", NULL},
    {"lr_warmup_steps", "schedule.warmup_steps", NULL},
    {"warmup", "schedule.warmup_steps", NULL},
    {"data_seed", "seed", NULL},
    {"shuffle", NULL, "each pass has samples in an order of its own, drawn from seed"},
    {"bf16", "precision.params", NULL},
    {"fp16", "precision.params", NULL},
    {"dtype", "precision.params", NULL},
    {"torch_dtype", "precision.params", NULL},
    {"mixed_precision", "precision.params", NULL},
    {"save_steps", "checkpoint.every_steps", NULL},
    {"save_total_limit", "checkpoint.keep", NULL},
    {"save_strategy", "checkpoint.every_steps", NULL},
    {"save_interval", "checkpoint.every_steps", NULL},
    {"checkpoint.steps", "checkpoint.every_steps", NULL},
    {"checkpoint.dir", NULL, kept},
    {"checkpoint.path", NULL, kept},
    {"output.dir", "output.path", NULL},
    {"overwrite_output_dir", NULL, "every job has a directory of its own"},
    {"save_only_model", NULL, "seqctl pull with --part hf fetches a checkpoint's model alone"},
    {"metric_for_best_model", NULL, lowest},
    {"greater_is_better", NULL, lowest},
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
    {"eval.strategy", "eval.every_steps", NULL},
    {"eval_interval", "eval.every_steps", NULL},
    {"eval_on_start", "eval.at_start", NULL},
    {"eval.dataset", "eval.data", NULL},
    {"eval.datasets", "eval.data", NULL},
    {"eval.path", "eval.data.path", NULL},
    {"eval.file", "eval.data.path", NULL},
    {"eval.format", "eval.data.format", NULL},
    {"eval_data", "eval.data", NULL},
    {"val_set_size", NULL, apart},
    {"test_size", NULL, apart},
    {"validation_file", "eval.data", NULL},
    {"eval_dataset", "eval.data", NULL},
    {"dataset", "data.train", NULL},
    {"datasets", "data.train", NULL},
    {"dataset_name", "data.train", NULL},
    {"data.train.*.dataset", "data.train.path", NULL},
    {"eval.data.*.dataset", "eval.data.path", NULL},
    {"train_file", "data.train", NULL},
    {"train_dataset", "data.train", NULL},
    {"train_data", "data.train", NULL},
    {"data.path", "data.train.path", NULL, OF_DATA},
    {"data.file", "data.train.path", NULL, OF_DATA},
    {"data.files", "data.train", NULL},
    {"data_path", "data.train.path", NULL, OF_DATA},
    {"data_files", "data.train", NULL},
    {"streaming", NULL, "data are prepared on disk, once, before the first step"},
    {"group_by_length", "data.packing", NULL},
    {"sample_packing", "data.packing", NULL},
    {"packing_strategy", "data.packing", NULL},
    {"eval_packing", "data.packing", NULL},
    {"truncation", "data.overlong", NULL},
    {"dataset_num_proc", "resources.threads", NULL},
    {"preprocessing_num_workers", "resources.threads", NULL},
    {"eos_token", NULL, tokens},
    {"pad_token", NULL, tokens},
    {"chat_template", NULL, templates},
    {"chat_template_path", NULL, templates},
    {"dataset_text_field", "data.train.text_key", NULL},
    {"model_name_or_path", "model.path", NULL},
    {"model_name", "model.path", NULL},
    {"base_model", "model.path", NULL},
    {"model.name", "model.path", NULL},
    {"model.dir", "model.path", NULL},
    {"revision", NULL, "model.path is a directory, which has one revision"},
    {"trust_remote_code", NULL, "no code of a model directory is run"},
    {"rope_scaling", "model.rope.type", NULL},
    {"tokenizer_name", "data.tokenizer", NULL},
    {"max_new_tokens", "sampling.max_tokens", NULL},
    {"sampling.max_length", "sampling.max_tokens", NULL, ", of new tokens alone"},
    {"temp", "sampling.temperature", NULL},
    {"max_completion_tokens", "sampling.max_tokens", NULL},
    {"num_return_sequences", "sampling.n", NULL},
    {"best_of", "sampling.n", NULL},
    {"stop_strings", "sampling.stop", NULL},
    {"stop_sequences", "sampling.stop", NULL},
    {"stop_token_ids", NULL, ends},
    {"eos_token_id", NULL, ends},
    {"input.text", "input.prompt", NULL},
    {"input.file", "input.path", NULL},
    {"input.data", "input.path", NULL},
    {"input.messages", NULL,
     "a conversation is a request in a file of the format openai_batch: see input.path"},
    {"do_sample", "sampling.temperature", NULL},
    {"completion_only_loss", "data.loss_on", NULL},
    {"train_on_inputs", "data.loss_on", NULL},
    {"assistant_only_loss", "data.loss_on", NULL},
};

#define DPO  "\"train\", and objective.type \"dpo\""
#define LORA "\"train\", and adapter.type \"lora\""
#define NEXT "\"causal_lm\", or leave it out"

static const struct trade_value values[] = {
    {"kind", "sft", "\"train\""},
    {"kind", "finetune", "\"train\""},
    {"kind", "fine_tune", "\"train\""},
    {"kind", "finetuning", "\"train\""},
    {"kind", "pretrain", "\"train\""},
    {"kind", "training", "\"train\""},
    {"kind", "dpo", DPO},
    {"kind", "ipo", DPO},
    {"kind", "lora", LORA},
    {"kind", "qlora", LORA ", with model.weights \"int4\" or \"int8\""},
    {"kind", "eval", "\"score\""},
    {"kind", "evaluate", "\"score\""},
    {"kind", "perplexity", "\"score\""},
    {"kind", "inference", "\"generate\""},
    {"kind", "infer", "\"generate\""},
    {"kind", "predict", "\"generate\""},
    {"kind", "chat", "\"generate\""},
    {"kind", "completion", "\"generate\""},
    {"kind", "embedding", "\"embed\""},
    {"kind", "embeddings", "\"embed\""},
    {"objective.type", "sft", NEXT},
    {"objective.type", "clm", NEXT},
    {"objective.type", "lm", NEXT},
    {"objective.type", "language_modeling", NEXT},
    {"objective.type", "mlm", "\"masked_lm\", or leave it out"},
    {"objective.type", "flow_matching", "\"rectified_flow\", or leave it out"},
    {"objective.type", "ipo", "\"dpo\", and objective.loss \"ipo\""},
    {"objective.type", "lora", NEXT ", and set adapter.type to \"lora\""},
    {"objective.loss", "dpo", "\"sigmoid\""},
    {"precision.params", "bfloat16", "\"bf16\""},
    {"precision.params", "float16", "\"fp16\""},
    {"precision.params", "half", "\"fp16\""},
    {"precision.params", "float32", "\"fp32\""},
    {"precision.params", "float", "\"fp32\""},
    {"precision.params", "int8", "\"bf16\", and model.weights \"int8\""},
    {"precision.params", "int4", "\"bf16\", and model.weights \"int4\""},
    {"model.weights", "q8_0", "\"int8\""},
    {"model.weights", "8bit", "\"int8\""},
    {"model.weights", "4bit", "\"int4\""},
    {"model.weights", "nf4", "\"int4\""},
    {"adapter.type", "qlora", "\"lora\", and model.weights \"int4\" or \"int8\""},
    {"optim.name", "adam", "\"adamw\""},
    {"optim.name", "adamw_torch", "\"adamw\""},
    {"optim.name", "adamw_torch_fused", "\"adamw\""},
    {"optim.name", "adamw_hf", "\"adamw\""},
    {"schedule.type", "linear_with_warmup", "\"linear\""},
    {"schedule.type", "cosine_with_warmup", "\"cosine\""},
    {"schedule.type", "constant_with_warmup", "\"constant\""},
    {"schedule.type", "cosine_with_min_lr", "\"cosine\", and schedule.min_lr_ratio"},
    {"schedule.type", "warmup_stable_decay", "\"wsd\""},
    {"parallel.strategy", "ring", "\"rsa\""},
    {"parallel.strategy", "ring_attention", "\"rsa\""},
    {"parallel.strategy", "context_parallel", "\"rsa\""},
    {"parallel.strategy", "fsdp", "\"auto\", and parallel.zero 3"},
    {"parallel.strategy", "megatron", "\"auto\", and parallel.tp"},
    {"memory.offload", "cpu", "\"all\""},
    {"memory.recompute", "true", "\"full\""},
    {"data.packing", "bfd", "\"best_fit\""},
    {"data.packing", "true", "\"best_fit\""},
    {"data.packing", "false", "\"none\""},
};

const struct trade_value *trade_value_row(int i)
{
    return i < (int)(sizeof values / sizeof *values) ? &values[i] : NULL;
}

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

const struct trade_value *trade_value_find(const char *field, const char *word)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (!strcmp(values[i].field, field) && is_word(word, values[i].word)) return &values[i];
    return NULL;
}
