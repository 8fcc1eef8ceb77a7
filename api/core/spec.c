/* spec.c: the tables of a job spec, and the search for the field nearest to a misspelt field. The
 * tables have the words of each enum and a row for each scalar field. */
#include "api/core/job.h"

#include <stdio.h>
#include <string.h>
#include "api/core/nearest.h"

/* Kinds of job in which a field may appear. A verify job also accepts the fields that only
 * training reads (train, optim, schedule, checkpoint), so that changing only `kind` turns the spec
 * of a training into its verification. 0 marks an internal field, which is sent on the wire but
 * cannot be given by a user. */
#define K(kind)    (1u << (kind))
#define TRAINING   (K(JOB_TRAIN) | K(JOB_VERIFY))
#define SCORE      K(JOB_SCORE)
#define EMBED      K(JOB_EMBED)
#define READS_DATA (TRAINING | SCORE | EMBED)
#define READS_IN   (SCORE | GENERATE | EMBED)
#define VERIFY     K(JOB_VERIFY)
#define GENERATE   K(JOB_GENERATE)
#define SERVE      K(JOB_SERVE)
#define ANSWERS    (GENERATE | SERVE)
#define VECTORS    (EMBED | SERVE)
#define ALL        (K(JOB_KIND_N) - 1)
#define RUNS       (ALL & ~K(JOB_MERGE)) /* the kinds that run a model */
#define SAMPLES    (RUNS & ~SERVE)       /* kinds of a diffusion model */
#define INTERNAL   0u

#define BIG ((double)((int64_t)1 << 50)) /* doubles are exact for integers up to 2^53 */

/* Row of a list of words that a peer of WIRE_ABI_BEFORE does not know. The row of a field ends
 * with the name of its list. */
#define NEWER(path, word, since) word, since, path " \"" word "\""

static const char *const kind_words[] = {"train", "score", "generate", "verify",
                                         "embed", "merge", "serve",    NULL};
static const struct field_word kind_newer[] = {
    {NEWER("kind", "merge", 7)}, {NEWER("kind", "serve", 7)}, {NULL}};
static const char *const init_words[] = {"auto", "random", NULL};
const char *const spec_weights_words[] = {"model", "int8", "int4", NULL};
/* Words, by 1 + enum rope_id. longrope is missing because its factors are fitted to one model. */
static const char *const rope_type_words[] = {"auto",   "default", "linear", "dynamic",
                                              "llama3", "yarn",    NULL};
static const char *const rope_compute_words[] = {"exact", "hf", NULL};
const char *const spec_form_words[] = {"blockwise", "two_pass",         "all_gather",
                                       "auto",      "two_pass_scatter", "switch",
                                       "ulysses",   "ulysses_both",     NULL};
static const struct field_word form_newer[] = {{NEWER("parallel.form", "switch", 7)},
                                               {NEWER("parallel.form", "ulysses", 7)},
                                               {NEWER("parallel.form", "ulysses_both", 7)},
                                               {NULL}};
static const char *const exchange_words[] = {"auto", "ring", "all_gather", "scan", NULL};
const char *const spec_objective_words[] = {"auto",  "causal_lm", "masked_lm", "rectified_flow",
                                            "iddpm", "dpo",       NULL};
static const struct field_word objective_newer[] = {
    {NEWER("objective.type", "iddpm", 7)}, {NEWER("objective.type", "dpo", 7)}, {NULL}};
static const char *const preference_loss_words[] = {"sigmoid", "ipo", NULL};
static const char *const timestep_words[] = {"uniform", "logit-normal", NULL};
#define STRATEGY_WORD(id, name) #name,
static const char *const strategy_words[] = {"auto", STRATEGIES(STRATEGY_WORD) NULL};
static const struct field_word strategy_newer[] = {{NEWER("parallel.strategy", "usp", 7)}, {NULL}};
static const char *const layout_words[] = {"auto", "contiguous", "zigzag", NULL};
static const char *const recompute_words[] = {"auto", "none", "selective", "full", NULL};
static const char *const offload_words[] = {"auto",      "none", "activations",
                                            "optimizer", "all",  NULL};
static const char *const determinism_words[] = {"off", "run", "ranks", NULL};
static const char *const resume_words[] = {"auto", "none", "path", NULL};
static const char *const format_words[] = {"text", "jsonl",        "llmc",    "nanogpt", "megatron",
                                           "npy",  "openai_batch", "latents", NULL};
static const char *const tokenizer_words[] = {"auto", "byte", NULL};
static const char *const packing_words[] = {"concat", "best_fit", "none", NULL};
static const char *const overlong_words[] = {"auto", "error", "split", "truncate", "drop", NULL};
static const char *const loss_on_words[] = {"auto", "completion", "all", "assistant", NULL};
static const char *const precision_words[] = {"fp32", "bf16", "fp16", NULL};
static const char *const adapter_words[] = {"none", "lora", NULL};
static const char *const optim_words[] = {"adamw", NULL};
static const char *const schedule_words[] = {"cosine", "linear", "constant", "wsd", NULL};
static const char *const decay_words[] = {"linear", "1-sqrt", "cosine", "exponential", NULL};
static const char *const nonfinite_words[] = {"rollback", "skip", "fail", NULL};
static const char *const transport_words[] = {"auto", "shm", "tcp", "nccl", NULL};
static const char *const serve_task_words[] = {"auto", "text", "embed", NULL};
static const char *const pooling_words[] = {"last", "mean", "cls", NULL};

/* Rows of fields that WIRE_ABI_BEFORE and tests/previous.fields lack. Each ends with the first ABI
 * that has the field. */
/* clang-format off */
#define AT(member) offsetof(struct job_spec, member)
#define INT(path, m, lo, hi, dflt, kinds, help, ...)   {path, FIELD_INT, AT(m), lo, hi, NULL, dflt, NULL, help, kinds, __VA_ARGS__}
#define INT32(path, m, lo, hi, dflt, kinds, help, ...) {path, FIELD_INT32, AT(m), lo, hi, NULL, dflt, NULL, help, kinds, __VA_ARGS__}
#define REAL(path, m, lo, hi, dflt, kinds, help, ...)  {path, FIELD_DOUBLE, AT(m), lo, hi, NULL, dflt, NULL, help, kinds, __VA_ARGS__}
#define BOOL(path, m, dflt, kinds, help, ...)          {path, FIELD_BOOL, AT(m), 0, 1, NULL, dflt, NULL, help, kinds, __VA_ARGS__}
#define ENUM(path, m, words, dflt, kinds, help, ...)   {path, FIELD_ENUM, AT(m), 0, 0, words, dflt, NULL, help, kinds, __VA_ARGS__}
#define TEXT(path, m, dflt, kinds, help, ...)          {path, FIELD_STRING, AT(m), 0, 0, NULL, 0, dflt, help, kinds, __VA_ARGS__}
#define TARGET(i)                                      TEXT("adapter.targets." #i, adapter.targets[i], "", ALL, "Names of the products that have an adapter: all-linear, attention, mlp, or names of modules, as q_proj; default: all-linear, which is all products of layers, except those of experts and routers.", 7)
#define TARGET_8(a, b, c, d, e, f, g, h)               TARGET(a), TARGET(b), TARGET(c), TARGET(d), TARGET(e), TARGET(f), TARGET(g), TARGET(h)
#define SAVED(i)                                       TEXT("adapter.modules_to_save." #i, adapter.modules_to_save[i], "", ALL, "Modules that are trained whole beside the adapters, by the names of the package peft: the embedding, as embed_tokens, and the head, as lm_head, of a model in which they are not tied.", 7)
#define ADAPTER(i)                                     TEXT("model.adapters." #i ".name", model.adapters[i].name, "", INTERNAL, "The name by which requests choose the adapter.", 7), \
                                                       TEXT("model.adapters." #i ".path", model.adapters[i].path, "", INTERNAL, "The adapter, as model.adapter has it.", 7), \
                                                       TEXT("model.adapters." #i ".facts", model.adapters[i].facts, "", INTERNAL, "The properties of its directory, which seqd has found out.", 7)
#define FREEZE(i)                                      TEXT("train.freeze." #i, train.freeze[i], "", TRAINING, "A pattern of names of tensors, with * and ?, that the training leaves as they are.", 7)
#define FREEZE_8(a, b, c, d, e, f, g, h)               FREEZE(a), FREEZE(b), FREEZE(c), FREEZE(d), FREEZE(e), FREEZE(f), FREEZE(g), FREEZE(h)

const struct field spec_fields[] = {
    ENUM("kind", kind, kind_words, JOB_TRAIN, ALL, "What to do: train, score, generate, verify, embed, merge or serve.", 0, kind_newer),
    TEXT("name", name, "", ALL, "A name for people, at most 128 bytes; not digits alone, which are ids."),
    INT32("priority", priority, 0, 100, 50, ALL, "Higher goes first in the queue."),
    TEXT("model.path", model.path, "", ALL, "A model directory as transformers saves it, or a GGUF file, by its path, upload:NAME, job:ID or job:ID/step-N; else model.config."),
    ENUM("model.init", model.init, init_words, MODEL_INIT_AUTO, RUNS, "auto: weights are those of model.path, and random for model.config; random: drawn from the seed for model.path too, of which the job takes config.json, tokenizer and template alone: it needs no weights."),
    ENUM("model.weights", model.weights, spec_weights_words, WEIGHTS_MODEL, RUNS, "The storage of the weights of products: model, in precision.params; int8, blocks of 32 with an fp16 scale (Q8_0), 1.06 bytes a weight; int4, blocks of 32 with an fp16 scale and minimum (Q4_1), 0.63 bytes, head and tied embedding in int8. They are quantised while they are loaded; activations never are. A training leaves them as they are, and trains an adapter.", 7),
    TEXT("model.adapter", model.adapter, "", ALL, "An adapter for the model, by its path, upload:NAME, job:ID or job:ID/step-N: a directory as the package peft saves it. A node reads it, and it gives adapter.type, rank, alpha, rslora, targets and modules_to_save their values: a job that names one of them must name the same.", 7),
    ENUM("model.rope.compute", model.rope.rule.compute, rope_compute_words, ROPE_EXACT, ALL, "Angles of RoPE: exact, in double, or hf, position times frequency in fp32 as transformers forms it: far from the start the two differ (0.05 radians at a million tokens)."),
    ENUM("model.rope.type", model.rope.type, rope_type_words, 0, ALL, "Another rule of RoPE's frequencies than the model's, by the words of transformers' rope_parameters, with the parameters below; auto: the model's own."),
    REAL("model.rope.theta", model.rope.theta, 1, 1e12, 0, ALL, "Another base of RoPE, under the model's own rule too; of layers without a window where a family has two."),
    REAL("model.rope.factor", model.rope.rule.factor, 1e-3, 1e9, 0, ALL, "model.rope.type: how many times longer sequences are than those the model was trained on."),
    INT("model.rope.original_max_position_embeddings", model.rope.rule.original, 1, BIG, 0, ALL, "llama3, yarn: the length the model was trained on; default: max_position_embeddings."),
    REAL("model.rope.low_freq_factor", model.rope.rule.low_freq, 1e-6, 1e9, 0, ALL, "llama3: low_freq_factor."),
    REAL("model.rope.high_freq_factor", model.rope.rule.high_freq, 1e-6, 1e9, 0, ALL, "llama3: high_freq_factor."),
    REAL("model.rope.beta_fast", model.rope.rule.beta_fast, 1e-6, 1e9, 0, ALL, "yarn: beta_fast; default: 32."),
    REAL("model.rope.beta_slow", model.rope.rule.beta_slow, 1e-6, 1e9, 0, ALL, "yarn: beta_slow; default: 1."),
    REAL("model.rope.mscale", model.rope.rule.mscale, 1e-6, 1e9, 0, ALL, "yarn: mscale, with mscale_all_dim."),
    REAL("model.rope.mscale_all_dim", model.rope.rule.mscale_all_dim, 1e-6, 1e9, 0, ALL, "yarn: mscale_all_dim, with mscale."),
    REAL("model.rope.attention_factor", model.rope.rule.attention_factor, 1e-6, 1e9, 0, ALL, "yarn: what cosines and sines are multiplied by; default: by the rule."),
    BOOL("model.rope.truncate", model.rope.truncate, 1, ALL, "yarn: the ends of the ramp are whole numbers."),
    INT("data.seq_len", data.seq_len, 1, JOB_MAX_SEQ, 0, RUNS, "Tokens per sequence S."),
    ENUM("data.tokenizer", data.tokenizer, tokenizer_words, TOKENIZER_AUTO, ALL, "What cuts text: byte, ids 0 to 255 are bytes and 256 ends a document; auto: the tokenizer.json of model.path, and byte for new models and for those with seqd's own tokenizer. A model without a tokenizer takes token ids only and refuses text. Where this is byte, a model is trained and queried in bytes, whatever its ids meant, and its checkpoints carry the byte tokenizer."),
    BOOL("data.document_mask", data.document_mask, 1, READS_DATA, "Attention stays within a document."),
    INT("data.frames", data.frames, 1, 65536, 0, SAMPLES, "latents: frames of the largest sample."),
    INT("data.height", data.height, 1, 65536, 0, SAMPLES, "latents: rows of the largest sample, in latents."),
    INT("data.width", data.width, 1, 65536, 0, SAMPLES, "latents: columns of the largest sample, in latents."),
    BOOL("data.reset_positions", data.reset_positions, 1, READS_DATA, "Positions count from the document's start."),
    ENUM("data.packing", data.packing, packing_words, PACKING_CONCAT, READS_DATA, "How documents fill sequences: concat, end to end, then cut; best_fit, whole documents; none, a sequence for each; default: concat, and best_fit with objective.type dpo. A score takes concat or best_fit, embed concat or none."),
    ENUM("data.overlong", data.overlong, overlong_words, OVERLONG_AUTO, READS_DATA, "Documents longer than seq_len: error, split, truncate or drop; auto: split, but error where the loss is masked. A score takes auto or split, which are one there, embed auto or error, which are one, or truncate."),
    ENUM("data.loss_on", data.loss_on, loss_on_words, LOSS_ON_AUTO, TRAINING, "What is learnt: all; completion: what follows the prompt; assistant: the assistant's turns of conversations; auto: those of conversations, and all of the rest."),
    INT("eval.seq_len", eval.seq_len, 1, JOB_MAX_SEQ, 0, TRAINING, "Tokens of an evaluation's windows, in every stage; at most the longest stage's; default: data.seq_len."),
    INT("eval.every_steps", eval.every_steps, 0, 1e9, 0, TRAINING, "Steps between evaluations."),
    INT("eval.max_tokens", eval.max_tokens, 0, BIG, 0, TRAINING, "Tokens of eval.data used; default: all."),
    BOOL("eval.at_start", eval.at_start, 0, TRAINING, "Evaluate before the first step."),
    BOOL("eval.at_end", eval.at_end, 1, TRAINING, "Evaluate after the last step, where there is eval.data."),
    INT("eval.patience", eval.patience, 0, 1e9, 0, TRAINING, "The training ends, saved and succeeded, after this many evaluations in a row whose loss is not below the lowest before them; an evaluation before the first step does not count. 0: it never ends early.", 7),
    ENUM("precision.params", precision.params, precision_words, PRECISION_FP32, ALL, "fp32; bf16: weights, activations and products in bfloat16, sums and optimizer in fp32; fp16: the same in half floats, with a loss scale where it trains; a training whose gradients all overflow fails."),
    INT("train.steps", train.steps, 1, 1e9, 0, TRAINING, "Optimizer steps; or give tokens, or passes."),
    INT("train.tokens", train.tokens, 1, BIG, 0, TRAINING, "Tokens to train on; or give steps, or passes."),
    INT("train.passes", train.passes, 1, 1e6, 0, TRAINING, "Passes over the data; or give steps, or tokens."),
    INT("train.global_batch", train.global_batch, 1, 65536, 1, TRAINING, "Sequences per optimizer step."),
    INT("train.micro_batch", train.micro_batch, 1, 1, 1, TRAINING, "Sequences per forward pass."),
    REAL("train.attention_dropout", train.attention_dropout, 0, 0.99, 0, TRAINING, "Share of attention weights dropped, the same ones on any number of ranks."),
    REAL("train.neftune_alpha", train.neftune_alpha, 0, 1000, 0, TRAINING, "Noise is added to the embeddings of tokens, uniform within alpha / sqrt(tokens of the sequence * width), the same on any number of ranks; 0: none.", 7),
    FREEZE_8(0, 1, 2, 3, 4, 5, 6, 7),
    FREEZE_8(8, 9, 10, 11, 12, 13, 14, 15),
    FREEZE_8(16, 17, 18, 19, 20, 21, 22, 23),
    FREEZE_8(24, 25, 26, 27, 28, 29, 30, 31),
    ENUM("adapter.type", adapter.type, adapter_words, ADAPTER_NONE, ALL, "none; lora: products of layers have matrices of low rank beside their weights, which are trained in the place of the weights, in the form of the package peft.", 7),
    INT("adapter.rank", adapter.rank, 1, 1024, 0, ALL, "Rank of the adapters; default: 8.", 7),
    REAL("adapter.alpha", adapter.alpha, 1e-6, 1e6, 0, ALL, "The adapters' part is multiplied by alpha / rank; default: the rank.", 7),
    REAL("adapter.dropout", adapter.dropout, 0, 0.99, 0, TRAINING, "Share of the inputs of an adapter that are dropped, the same ones on any number of ranks; default: that of model.adapter in a training, else 0.", 7),
    BOOL("adapter.rslora", adapter.rslora, 0, ALL, "The adapters' part is multiplied by alpha / sqrt(rank) instead.", 7),
    TARGET_8(0, 1, 2, 3, 4, 5, 6, 7),
    TARGET_8(8, 9, 10, 11, 12, 13, 14, 15),
    TARGET_8(16, 17, 18, 19, 20, 21, 22, 23),
    TARGET_8(24, 25, 26, 27, 28, 29, 30, 31),
    SAVED(0), SAVED(1),
    ENUM("objective.type", objective.type, spec_objective_words, OBJECTIVE_AUTO, TRAINING | GENERATE, "auto: what model.path says that it was trained on, else what the family is: causal_lm, masked_lm or rectified_flow; of Latte and STDiT 1.0 with published weights iddpm, noise with a learned variance; dpo: which of two answers is better, from records with prompt, chosen and rejected.", 0, objective_newer),
    REAL("objective.mask_prob", objective.mask_prob, 0, 1, 0.15, TRAINING, "masked_lm: share of the tokens that are predicted."),
    INT("objective.mask_token", objective.mask_token, 0, 1 << 22, 258, TRAINING, "masked_lm: the id that hides a token; default: mask_token of model.path's tokenizer, else the byte tokenizer's, so that the vocabulary needs 259."),
    ENUM("objective.timestep", objective.timestep, timestep_words, TIMESTEP_LOGIT_NORMAL, TRAINING, "rectified_flow: how the time of a sample is drawn; iddpm draws its steps uniformly."),
    BOOL("objective.transform", objective.transform, 1, TRAINING | GENERATE, "rectified_flow: times are shifted towards noise for large pictures and long videos."),
    REAL("objective.text_dropout", objective.text_dropout, 0, 1, 0.1, TRAINING, "Diffusion: share of samples trained without their caption or class."),
    REAL("objective.frame_mask.random", objective.frame_mask[0], 0, 1, 0, TRAINING, "rectified_flow: share of samples with a random few frames given clean."),
    REAL("objective.frame_mask.head", objective.frame_mask[1], 0, 1, 0, TRAINING, "rectified_flow: with the first frames given."),
    REAL("objective.frame_mask.tail", objective.frame_mask[2], 0, 1, 0, TRAINING, "rectified_flow: with the last frames given."),
    REAL("objective.frame_mask.head_tail", objective.frame_mask[3], 0, 1, 0, TRAINING, "rectified_flow: with both ends given."),
    ENUM("objective.loss", objective.loss, preference_loss_words, PREFERENCE_SIGMOID, TRAINING, "dpo: sigmoid, or ipo, in which log-probabilities are divided by the answer's tokens.", 7),
    REAL("objective.beta", objective.beta, 1e-6, 1e3, 0.1, TRAINING, "dpo: factor of the margin between the two answers; of ipo, 1 / (2 beta) is the margin that is aimed at.", 7),
    REAL("objective.label_smoothing", objective.label_smoothing, 0, 0.499, 0, TRAINING, "causal_lm, masked_lm: share of a target's probability that is spread over the whole vocabulary; dpo with sigmoid: share of the pairs that are taken to be the wrong way round.", 7),
    REAL("objective.z_loss", objective.z_loss, 0, 1, 0, TRAINING, "causal_lm, masked_lm: the mean over targets of the square of log sum exp of the logits is added with this factor.", 7),
    REAL("objective.sft_weight", objective.sft_weight, 0, 1e3, 0, TRAINING, "dpo: the mean loss of the chosen answer's tokens is added with this factor.", 7),
    REAL("ema.decay", ema.decay, 0, 0.9999999, 0, TRAINING, "Keep an exponential average of the weights; 0: none."),
    REAL("optim.lr", optim.lr, 0, 10, 3e-4, TRAINING, "Peak learning rate."),
    REAL("optim.lr_saved", optim.lr_saved, 1e-12, 10, 0, TRAINING, "Peak learning rate of adapter.modules_to_save, scheduled as optim.lr is; default: optim.lr.", 7),
    REAL("optim.betas.0", optim.beta1, 0, 0.999999, 0.9, TRAINING, "Decay of the first moment."),
    REAL("optim.betas.1", optim.beta2, 0, 0.99999999, 0.95, TRAINING, "Decay of the second moment."),
    REAL("optim.eps", optim.eps, 1e-30, 1, 1e-8, TRAINING, "Added to the root of the second moment."),
    REAL("optim.weight_decay", optim.weight_decay, 0, 10, 0.1, TRAINING, "Decoupled decay of matrices."),
    REAL("optim.max_grad_norm", optim.max_grad_norm, 0, 1e12, 1.0, TRAINING, "Global L2 clip; 0 clips nothing."),
    INT("schedule.warmup_steps", schedule.warmup_steps, 0, 1e9, -1, TRAINING, "Steps of linear warmup; auto: 2 % of all steps."),
    REAL("schedule.min_lr_ratio", schedule.min_lr_ratio, 0, 1, 0.1, TRAINING, "Where the cosine ends, as a part of lr."),
    ENUM("schedule.type", schedule.type, schedule_words, SCHEDULE_COSINE, TRAINING, "After the warmup: cosine, linear, constant or wsd."),
    REAL("schedule.decay_fraction", schedule.decay_fraction, 0, 1, 0.1, TRAINING, "wsd: the last part of the run, which decays."),
    ENUM("schedule.decay_shape", schedule.decay_shape, decay_words, DECAY_ONE_MINUS_SQRT, TRAINING, "wsd: linear, 1-sqrt, cosine or exponential."),
    ENUM("parallel.strategy", parallel.strategy, strategy_words, STRATEGY_AUTO, RUNS, "How a sequence is split over ranks.", 0, strategy_newer),
    ENUM("parallel.layout", parallel.layout, layout_words, LAYOUT_AUTO, RUNS, "Which tokens a rank holds."),
    ENUM("parallel.form", parallel.form, spec_form_words, FORM_AUTO, RUNS, "rsa: blockwise, two_pass (the paper's, or with its gradients reduce-scattered) or all_gather; dsp: switch, or ulysses or ulysses_both, which it is compared with; auto: by the plan.", 0, form_newer),
    ENUM("parallel.exchange", parallel.exchange, exchange_words, EXCHANGE_AUTO, RUNS, "lasp: how states pass: ring, all_gather or scan; auto: by the plan."),
    INT32("parallel.sp", parallel.sp, 1, JOB_MAX_RANKS, 0, RUNS, "Ranks of the ring; auto: by the plan, else resources.ranks."),
    INT32("parallel.ulysses", parallel.ulysses, 1, JOB_MAX_RANKS, 0, RUNS, "usp: ranks in a row that share attention heads as under ulysses, a divisor of sp; keys and values pass round a ring of sp / ulysses ranks. Default: by the plan.", 7),
    INT32("parallel.dp", parallel.dp, 1, JOB_MAX_RANKS, 0, RUNS, "Rings side by side; default resources.ranks / (sp * pp * tp)."),
    INT32("parallel.tp", parallel.tp, 1, JOB_MAX_RANKS, 0, TRAINING, "Ranks that share every layer, attention by heads and the MLP by columns (tensor parallelism). Default: by the plan, else 1.", 7),
    INT32("parallel.pp", parallel.pp, 1, JOB_MAX_RANKS, 0, RUNS, "Stages of a pipeline, each with consecutive layers. Default: by the plan, else 1.", 7),
    INT32("parallel.zero", parallel.zero, 0, 3, 1, TRAINING, "ZeRO: 0 none, 1 optimizer, 2 and gradients, 3 and weights."),
    INT32("parallel.zero_group", parallel.zero_group, 1, JOB_MAX_RANKS, 0, TRAINING, "Ranks in a row over which ZeRO shards state, a divisor of sp * dp; each such group has all of it. Default: by the plan, else all.", 7),
    ENUM("parallel.transport", parallel.transport, transport_words, TRANSPORT_AUTO, RUNS, "auto: shared memory within a node, TCP between, and NCCL for what GPUs send each other where every rank has one of its own; shm; tcp; nccl: that or a refusal."),
    BOOL("parallel.tls", parallel.tls, 1, RUNS, "Encrypt TCP between ranks: TLS 1.3, keyed for the attempt. Shared memory and NCCL are not encrypted: false there."),
    ENUM("guard.nonfinite", guard.nonfinite, nonfinite_words, NONFINITE_ROLLBACK, TRAINING, "A loss or gradient that is NaN or infinity: rollback, skip or fail. A training that ends without one update fails whatever this says.", .waits = FIELD_WAITS_FOR(NONFINITE_SKIP)), /* every other word lets the job fail or return to older weights */
    INT32("guard.rollbacks", guard.rollbacks, 0, 1000, 3, TRAINING, "Rollbacks at most; then the job fails.", .waits = FIELD_WAITS_NEVER), /* only limits guard.nonfinite */
    REAL("guard.loss_z", guard.loss_z, 0, 1e6, 0, TRAINING, "Skip the update of a step whose loss lies this many deviations above the recent mean; default: never.", .waits = FIELD_WAITS_IF_SET),
    REAL("guard.grad_norm_z", guard.grad_norm_z, 0, 1e6, 0, TRAINING, "The same for the gradient norm.", .waits = FIELD_WAITS_IF_SET),
    ENUM("memory.recompute", memory.recompute, recompute_words, RECOMPUTE_AUTO, TRAINING, "Activations to compute again in backward."),
    INT("memory.loss_chunk_tokens", memory.loss_chunk_tokens, 1, JOB_MAX_SEQ, 0, READS_DATA, "Tokens per chunk of the loss; auto: equal chunks of at most 64 MiB of logits, in a training of up to 512 tokens whose logits are no larger than the gradient of the head."),
    INT("memory.mlp_chunk_tokens", memory.mlp_chunk_tokens, 0, JOB_MAX_SEQ, -1, TRAINING, "Tokens per piece of dense MLPs, which then keep their input alone and compute the rest again in backward; 0: whole; auto: whole where that fits, else 2048 before memory.recompute is raised, and whole under determinism ranks.", 7),
    INT("memory.time_chunk", memory.time_chunk, 0, JOB_MAX_SEQ, 0, TRAINING, "lasp: a rank runs its tokens in windows of this size, in constant memory; 0: at once."),
    ENUM("memory.offload", memory.offload, offload_words, OFFLOAD_AUTO, TRAINING, "activations: what layers keep for backward is copied to the host's memory, on the cpu device to a file beneath memory.offload_dir, while others compute; optimizer: gradients, moments and master weights of a training lie there; all: both; auto: where nothing else makes the job fit and there is such a place.", 7),
    TEXT("memory.offload_dir", memory.offload_dir, "", TRAINING, "cpu: a directory beneath a --writable-root of the node, for files that hold what is offloaded; they have no names.", 7),
    INT("checkpoint.every_steps", checkpoint.every_steps, 0, 1e9, 500, TRAINING, "Steps between checkpoints; 0: only at the end."),
    INT32("checkpoint.keep", checkpoint.keep, 1, 1000, 3, TRAINING, "Checkpoints kept, the newest ones."),
    INT("checkpoint.every_s", checkpoint.every_s, 0, 1e9, 0, TRAINING, "And whenever this many seconds have passed."),
    INT("checkpoint.keep_every", checkpoint.keep_every, 0, 1e9, 0, TRAINING, "Checkpoints of steps divisible by it are never removed."),
    BOOL("checkpoint.best", checkpoint.best, 1, TRAINING, "Keep the checkpoint of the lowest eval loss as well."),
    ENUM("checkpoint.resume", checkpoint.resume, resume_words, RESUME_AUTO, TRAINING, "auto, none, job:ID, job:ID/step-N, or the path of a step directory."),
    BOOL("checkpoint.changes", checkpoint.changes, 0, TRAINING, "With a path: steps, rate, schedule, stages and data may differ from those of the checkpoint; the optimizer state is kept.", 7),
    BOOL("checkpoint.merge", checkpoint.merge, 0, TRAINING, "With an adapter: checkpoints also have hf/, the model with the adapter merged into its weights.", 7),
    TEXT("checkpoint.resume_path", checkpoint.resume_path, "", INTERNAL, "The path given as checkpoint.resume."),
    INT("verify.max_tokens", verify.max_tokens, 1, JOB_MAX_SEQ, 2048, TRAINING, "Tokens of a sequence that are compared; at most data.seq_len."),
    REAL("verify.loss_rel", verify.loss_rel, 0, 1, -1, TRAINING, "Allowed relative difference of the loss; default 1e-6, in bf16 2e-3, in fp16 2.5e-4."),
    REAL("verify.grad_rel_l2", verify.grad_rel_l2, 0, 1, -1, TRAINING, "Allowed relative L2 difference of each gradient; default 1e-5, in bf16 2e-2, in fp16 4e-3, and more for a tensor in which one rank's own roundings make more: a bound given here is kept."),
    BOOL("verify.first_step", verify.first_step, 0, TRAINING, "train: compare all ranks with one before step 1, and fail if they differ."),
    BOOL("verify.keep_grads", verify.keep_grads, 0, TRAINING, "Keep both sides' gradients as artifacts: two files of 4 bytes a parameter.", 7),
    TEXT("input.prompt", input.prompt, "", GENERATE, "The prompt itself; or give input.path."),
    REAL("sampling.temperature", sampling.temperature, 0, 100, 0, ANSWERS, "0: greedy."),
    INT("sampling.max_tokens", sampling.max_tokens, 1, JOB_MAX_SEQ, 256, ANSWERS, "New tokens at most: the most that a request of a batch may ask for, and all of them where it says no number. Not said with an openai_batch or by a serve job: 256, but less than data.seq_len."),
    INT("sampling.seed", sampling.seed, 0, BIG, 0, ANSWERS, "Seed of the sampler."),
    INT("sampling.min_tokens", sampling.min_tokens, 0, JOB_MAX_SEQ, 0, ANSWERS, "New tokens at least."),
    INT("sampling.top_k", sampling.top_k, 0, 1 << 22, 0, ANSWERS, "Choose among the k likeliest tokens; default: all."),
    REAL("sampling.top_p", sampling.top_p, 1e-9, 1, 1, ANSWERS, "Choose among the likeliest tokens that together have this probability."),
    REAL("sampling.min_p", sampling.min_p, 0, 1, 0, ANSWERS, "Drop tokens less likely than min_p times the likeliest."),
    REAL("sampling.repetition_penalty", sampling.repetition_penalty, 1e-3, 1e3, 1, ANSWERS, "Divides the logits of tokens seen before; 1: none."),
    REAL("sampling.frequency_penalty", sampling.frequency_penalty, -100, 100, 0, ANSWERS, "Subtracted once for each time a token was generated."),
    REAL("sampling.presence_penalty", sampling.presence_penalty, -100, 100, 0, ANSWERS, "Subtracted from tokens that were generated."),
    TEXT("sampling.stop.0", sampling.stop[0], "", ANSWERS, "A string that ends the text."),
    TEXT("sampling.stop.1", sampling.stop[1], "", ANSWERS, "A second one."),
    TEXT("sampling.stop.2", sampling.stop[2], "", ANSWERS, "A third one."),
    TEXT("sampling.stop.3", sampling.stop[3], "", ANSWERS, "A fourth one."),
    INT("sampling.n", sampling.n, 1, 1024, 1, ANSWERS, "Continuations of each prompt."),
    INT32("sampling.logprobs", sampling.logprobs, -1, 20, -1, ANSWERS, "Report each token's log-probability, before temperature and penalties, and this many alternatives."),
    BOOL("sampling.ignore_eos", sampling.ignore_eos, 0, ANSWERS, "Continue after the end of a document."),
    INT("sampling.steps", sampling.steps, 1, 10000, 30, GENERATE, "Diffusion: steps of a sample, of Euler's rule or, under iddpm, of DDIM: 2 to 1000 there."),
    REAL("sampling.guidance", sampling.guidance, 0, 1000, 7, GENERATE, "Diffusion: classifier-free guidance scale; 1: none."),
    INT32("sampling.eta", sampling.eta, 0, 1, 0, GENERATE, "Diffusion under iddpm: 0: DDIM, 1: ancestral sampling, by the learned variance.", 7),
    INT32("infer.batch", infer.batch, 0, JOB_MAX_BATCH, 1, GENERATE, "Prompts of input.path that are answered at once: a pass over the weights gives each of them a token. Answers are the same bits whatever it is; memory has a cache for each. auto (0): as many as fit and as bring something, 1 where the job answers one at a time.", 7, .unsaid = "auto"),
    TEXT("context.load", context.load, "", GENERATE, "lasp: begin from the states that another job has saved after its context."),
    BOOL("context.save", context.save, 0, GENERATE, "lasp: save the states after the context as an artifact."),
    INT("score.by_position_bucket", score.by_position_bucket, 0, JOB_MAX_SEQ, 0, SCORE, "Loss as a function of position, in buckets of this many tokens."),
    INT("score.stride", score.stride, 0, JOB_MAX_SEQ, 0, SCORE, "Tokens from the start of one window to the start of the next; each scores its new tokens; default: seq_len."),
    BOOL("score.token_logprobs", score.token_logprobs, 0, SCORE, "The log-probability of every token, as an artifact."),
    ENUM("embed.pooling", embed.pooling, pooling_words, POOLING_LAST, VECTORS, "last: the hidden state of the last token, cls: of the first, or mean over the document; not said: as 1_Pooling of model.path has it, else last."),
    BOOL("embed.normalize", embed.normalize, 1, VECTORS, "Embeddings of length 1; not said: as modules.json of model.path has it, else true."),
    TEXT("embed.prompt_name", embed.prompt_name, "", VECTORS, "The prompt of config_sentence_transformers.json in model.path that stands before every text; not said: its default_prompt_name.", 7),
    BOOL("embed.prompts", embed.prompts, 1, VECTORS, "Put that prompt before every text; false: none.", 7),
    TEXT("output.path", output.path, "", ALL, "Publish results there too, a training's hf/, or adapter/ (with checkpoint.merge both), a merge's hf/, and other jobs' artifacts: a directory that is not there yet, beneath a --writable-root of the node.", 7),
    TEXT("resources.device", resources.device, "cpu", ALL, "What every rank computes on: cpu, its threads; cuda, a GPU of its own."),
    INT32("resources.ranks", resources.ranks, 1, JOB_MAX_RANKS, 0, ALL, "Processes of the gang; default parallel.sp, else 1."),
    INT32("resources.threads", resources.threads, 1, 256, 1, ALL, "Threads per rank."),
    INT("resources.memory_mib", resources.memory_mib, 0, BIG / 1048576, 0, ALL, "Memory a rank may plan, in MiB; default: its share of the largest node, or what its GPU has but 1024."),
    INT32("limits.restarts", limits.restarts, 0, 100, 3, ALL, "Restarts after failures of the job's own making."),
    INT("limits.step_timeout_s", limits.step_timeout_s, 1, 1e6, 0, ALL, "Longest step in seconds; auto: max(30, 10 x the slowest)."),
    INT("limits.init_timeout_s", limits.init_timeout_s, 1, 1e6, 600, ALL, "Longest start in seconds."),
    INT("limits.hop_timeout_s", limits.hop_timeout_s, 1, 1e6, 30, RUNS, "A peer that gives no sign of life for this long is lost, and so is one for which a connection or a transfer by NCCL waits this long."),
    INT("limits.wall_s", limits.wall_s, 0, 1e9, 0, ALL, "Seconds that the job may run, over all its attempts, once its ranks are ready; then it saves, stops and has failed with wall_limit. 0: any.", 7),
    INT("seed", seed, 0, BIG, 0, RUNS, "Seed of initial weights and of the order of the data."),
    ENUM("determinism", determinism, determinism_words, DET_RUN, RUNS, "off, run: same bits on the same ranks, ranks: on any number of ranks at the same parallel.dp, except in decoding: log-probabilities of generated tokens have other last bits on other ranks, in a serve job those of prompts too."),
    ADAPTER(0), ADAPTER(1), ADAPTER(2), ADAPTER(3), ADAPTER(4), ADAPTER(5), ADAPTER(6), ADAPTER(7),
    INT32("embed.unsaid", embed.unsaid, 0, 3, 0, INTERNAL, "Bits of enum embed_unsaid: what the job leaves to model.path.", 7),
    INT32("serve.max_requests", serve.max_requests, 0, JOB_MAX_BATCH, 1, SERVE, "Requests that are answered at once: a pass over the weights gives each of them a token. Answers are the same bits whatever it is; memory has a cache for each. auto (0): as many as fit and as bring something, 1 where the job answers one at a time.", 7, .unsaid = "auto"),
    INT32("serve.queue", serve.queue, 0, 4096, 64, SERVE, "Requests that wait for their turn; one more is refused with 429.", 7),
    INT("serve.idle_s", serve.idle_s, 0, 1e9, 0, SERVE, "The job ends, succeeded, after this many seconds without a request; 0: it never ends by itself.", 7),
    INT("serve.drain_s", serve.drain_s, 0, 86400, 30, SERVE, "Seconds that open requests have to finish after a cancel, at most --save-grace of seqd; new ones are refused at once.", 7),
    INT("serve.cache_tokens", serve.cache_tokens, 0, (double)JOB_MAX_SEQ * JOB_MAX_BATCH, 0, SERVE, "Tokens whose keys and values fit in the memory of all ranks together: those of all requests at work, and those of kept prefixes. A multiple of 64, at least data.seq_len. auto (0): data.seq_len for each of max_requests.", 7, .unsaid = "auto"),
    INT("serve.prefill_tokens", serve.prefill_tokens, CACHE_PAGE, JOB_MAX_SEQ, 512, SERVE, "A prompt is computed in pieces of at most this many tokens, a multiple of 64. Between two pieces, each other request at work gets a token.", 7),
    BOOL("serve.share_prefixes", serve.share_prefixes, 0, SERVE, "Let the requests of one user begin from the kept prefix of another user; false: of the same user alone.", 7),
    INT32("serve.cache_states", serve.cache_states, 0, 4096, 16, SERVE, "States of linear layers that are kept at the ends of pages of prompts and answers, so that later prompts may begin there; each takes as much memory as the states of one request. A model without such layers keeps none.", 7),
    ENUM("serve.task", serve.task, serve_task_words, SERVE_TASK_AUTO, SERVE, "text: continuations and chats; embed: vectors, as embed says. auto: embed with a model that reads both ways, with one whose model.path has 1_Pooling, and where embed.pooling is mean or cls; else text.", 7),
    BOOL("serve.shared", serve.shared, 0, SERVE, "Let every user with a token send requests, to the model OWNER/NAME; false: the owner alone.", 7),
    {NULL}
};

#undef AT
#define AT(member) offsetof(struct spec_source, member)
const struct field source_fields[] = {
    TEXT("path", path, "", READS_DATA | READS_IN, "File or glob beneath a root of the node, upload:NAME/FILE or job:ID/artifacts/NAME."),
    ENUM("format", format, format_words, DATA_TEXT, READS_DATA | READS_IN, "text, jsonl, llmc, nanogpt, megatron, npy, openai_batch or latents; default by suffix."),
    TEXT("text_key", text_key, "text", READS_DATA | READS_IN, "jsonl: the member that holds the text."),
    REAL("weight", weight, 0, 1e9, 0, TRAINING, "Share of the samples, relative to the others; default: by size."),
    INT("eod", eod, -1, 1 << 22, -1, READS_DATA, "Token files: the id between documents; default: the format's own."),
    {NULL}
};
#undef AT
#define AT(member) offsetof(struct spec_stage, member)
const struct field stage_fields[] = {
    INT("from_step", from_step, 1, 1e9, 0, TRAINING, "The stage begins after this many steps."),
    INT("seq_len", seq_len, 0, JOB_MAX_SEQ, 0, TRAINING, "Tokens per sequence from there on; default: as before."),
    REAL("lr", lr, 0, 1e3, 0, TRAINING, "Peak learning rate from there on; default: as before."),
    REAL("rope_theta", rope_theta, 0, 1e12, 0, TRAINING, "Base of the rotary embedding from there on; default: as before."),
    {NULL}
};
#undef AT

/* Fields that accept only one word and have no member. A spec may contain them. spec_effective
 * always contains them, so that the words of a job remain known when a later version accepts a
 * second word. */
#define WORD(path, words, kinds, help) {path, FIELD_ENUM, 0, 0, 0, words, 0, NULL, help, kinds}
const struct field spec_constants[] = {
    WORD("optim.name", optim_words, TRAINING, "Optimizer."),
    {NULL}
};
/* clang-format on */

/* Paths of a spec that name objects and lists, for "did you mean", and the kinds of job that have
 * them. */
static const struct other_path {
    const char *path;
    uint32_t kinds;
} other_paths[] = {
    {"labels", ALL},
    {"after", ALL},
    {"after_any", ALL},
    {"model", ALL},
    {"model.adapters", ANSWERS},
    {"model.config", ALL},
    {"model.rope", ALL},
    {"data", ALL},
    {"data.train", TRAINING},
    {"data.train.path", TRAINING},
    {"data.train.format", TRAINING},
    {"data.train.text_key", TRAINING},
    {"optim", TRAINING},
    {"optim.betas", TRAINING},
    {"train", TRAINING},
    {"train.global_batch_tokens", TRAINING},
    {"train.freeze", TRAINING},
    {"train.epochs", TRAINING},
    {"schedule", TRAINING},
    {"parallel", RUNS},
    {"memory", READS_DATA},
    {"checkpoint", TRAINING},
    {"verify", TRAINING},
    {"input", READS_IN},
    {"input.path", READS_IN},
    {"input.format", READS_IN},
    {"input.text_key", READS_IN},
    {"eval", TRAINING},
    {"eval.data", TRAINING},
    {"eval.data.path", TRAINING},
    {"eval.data.format", TRAINING},
    {"stages", TRAINING},
    {"guard", TRAINING},
    {"score", SCORE},
    {"embed", EMBED},
    {"sampling", ANSWERS},
    {"sampling.stop", ANSWERS},
    {"resources", ALL},
    {"limits", ALL},
    {"precision", ALL},
    {"objective", TRAINING | GENERATE},
    {"objective.frame_mask", TRAINING},
    {"ema", TRAINING},
    {"infer", GENERATE},
    {"context", GENERATE},
    {"serve", SERVE},
    {"output", ALL},
    {"adapter", ALL},
    {"adapter.targets", ALL},
    {"adapter.modules_to_save", ALL},
    {NULL, 0},
};

const char *spec_text(const struct job_spec *s, spec_ref ref)
{
    return ref < s->text_used ? s->text + ref : "";
}

bool spec_new_model(const struct job_spec *s)
{
    return !*spec_text(s, s->model.path);
}

bool spec_random_weights(const struct job_spec *s)
{
    return spec_new_model(s) || s->model.init == MODEL_INIT_RANDOM;
}

int spec_intern(struct job_spec *s, const char *str, size_t len, spec_ref *ref)
{
    if (!len) {
        *ref = 0;
        return 0;
    }
    if (len >= SPEC_TEXT_SIZE - s->text_used) return -1;
    memcpy(s->text + s->text_used, str, len);
    s->text[s->text_used + len] = 0;
    *ref = s->text_used;
    s->text_used += (uint32_t)len + 1;
    return 0;
}

void spec_set_default(struct job_spec *s, const struct field *f, void *base)
{
    char *at = (char *)base + f->offset;
    switch (f->type) {
    case FIELD_INT: *(int64_t *)at = (int64_t)f->fallback; break;
    case FIELD_INT32:
    case FIELD_BOOL:
    case FIELD_ENUM: *(int32_t *)at = (int32_t)f->fallback; break;
    case FIELD_DOUBLE: *(double *)at = f->fallback; break;
    case FIELD_STRING: spec_intern(s, f->text, strlen(f->text), (spec_ref *)at); break;
    default: break;
    }
}

void spec_source_defaults(struct spec_source *src)
{
    *src = (struct spec_source){.eod = -1};
}

void spec_defaults(struct job_spec *s)
{
    memset(s, 0, sizeof *s);
    s->text_used = 1; /* offset 0 is the empty string */
    for (const struct field *f = spec_fields; f->path; f++) spec_set_default(s, f, s);
    spec_source_defaults(&s->input.source);
    for (int i = 0; i < SPEC_SOURCES; i++) {
        spec_source_defaults(&s->data.train[i]);
        spec_source_defaults(&s->eval.data[i]);
    }
}

static const struct field *find(const struct field *table, const char *path)
{
    for (const struct field *f = table; f->path; f++)
        if (!strcmp(f->path, path)) return f;
    return NULL;
}

bool spec_is_default(const struct job_spec *s, const struct field *f, const void *v)
{
    switch (f->type) {
    case FIELD_INT: return (double)*(const int64_t *)v == f->fallback;
    case FIELD_DOUBLE: return *(const double *)v == f->fallback;
    case FIELD_STRING: return !strcmp(spec_text(s, *(const spec_ref *)v), f->text);
    default: return *(const int32_t *)v == (int32_t)f->fallback;
    }
}

const struct field *spec_field(const char *path)
{
    return find(spec_fields, path);
}

struct nearest {
    const char *path;
    int distance; /* twice the distance of `path`; a new path replaces `path` only if its distance
                   * is smaller */
};

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static struct nearest nearest_of(const char *path)
{
    const int most = nearest_most(last_part(path));
    return (struct nearest){NULL, 2 * (most < 3 ? most + 1 : 4)};
}

/* Tells whether `path` is `word`, followed by "_" and more. */
static bool has_more(const char *path, const char *word)
{
    const size_t n = strlen(word);
    return !strncmp(path, word, n) && path[n] == '_';
}

static void consider(struct nearest *best, const char *path, const char *candidate)
{
    int d = 2 * nearest_distance(path, candidate);
    /* The right word in the wrong section counts like one wrong letter and a half, and so does a
     * part of a word. */
    if (d > 3 && (!strcmp(last_part(path), last_part(candidate)) || has_more(path, candidate) ||
                  has_more(candidate, path)))
        d = 3;
    if (d < best->distance) *best = (struct nearest){candidate, d};
}

const char *spec_suggest(const char *path, uint32_t kinds)
{
    struct nearest best = nearest_of(path);
    const struct field *tables[] = {spec_fields, spec_constants};
    for (size_t t = 0; t < 2; t++)
        for (const struct field *f = tables[t]; f->path; f++)
            if (f->kinds & kinds) consider(&best, path, f->path);
    for (const struct other_path *p = other_paths; p->path; p++)
        if (p->kinds & kinds) consider(&best, path, p->path);
    return best.path;
}

uint32_t spec_kinds(const char *path)
{
    const struct field *f = find(spec_fields, path);
    if (!f) f = find(spec_constants, path);
    if (f) return f->kinds;
    for (const struct other_path *p = other_paths; p->path; p++)
        if (!strcmp(p->path, path)) return p->kinds;
    return 0;
}

const char *spec_field_nearest(const struct field *table, const char *path)
{
    struct nearest best = nearest_of(path);
    for (const struct field *f = table; f->path; f++)
        if (f->kinds != INTERNAL) consider(&best, path, f->path);
    return best.path ? last_part(best.path) : NULL;
}

const char *spec_data_format_name(int format)
{
    const int n = sizeof format_words / sizeof *format_words - 1;
    return format >= 0 && format < n ? format_words[format] : "unknown";
}

const char *spec_kind_name(int kind)
{
    return kind >= 0 && kind < JOB_KIND_N ? kind_words[kind] : "unknown";
}
