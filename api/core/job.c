/* job.c: job_check(), which checks ranges by the table of fields, and then the rules of model,
 * data, lengths and ranks. The rules of inference, text and training are in job_*.c. */
#include "api/core/job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/device.h"

#define NAME_MAX_BYTES 128

/* ---- job_check ------------------------------------------------------------------------------- */

/* Checks the range of a number. A number that equals its default is always allowed, because
 * defaults that mean "auto" or "not given" are outside the range. */
static int check_number(const struct job_spec *s, const struct field *f, struct err *e)
{
    const char *at = (const char *)s + f->offset;
    double v;
    switch (f->type) {
    case FIELD_INT: v = (double)*(const int64_t *)at; break;
    case FIELD_INT32:
    case FIELD_BOOL: v = *(const int32_t *)at; break;
    case FIELD_DOUBLE: v = *(const double *)at; break;
    default: return 0;
    }
    if (v == f->fallback) return 0;
    return field_check(f, v, ERR_INVALID, e);
}

static int n_words(const char *const *words)
{
    int n = 0;
    while (words[n]) n++;
    return n;
}

static int check_table(const struct job_spec *s, struct err *e)
{
    for (const struct field *f = spec_fields; f->path; f++) {
        const char *at = (const char *)s + f->offset;
        if (check_number(s, f, e)) return -1;
        if (f->type == FIELD_ENUM) {
            int32_t v = *(const int32_t *)at;
            if (v < 0 || v >= n_words(f->words))
                return err_field(e, ERR_INVALID, f->path,
                                 "%s holds %d, which is the number of no word", f->path, v);
        }
        if (f->type == FIELD_STRING && *(const spec_ref *)at >= s->text_used)
            return err_field(e, ERR_INVALID, f->path, "%s lies outside the string table", f->path);
    }
    return 0;
}

static int check_text_table(const struct job_spec *s, struct err *e)
{
    if (s->text_used < 1 || s->text_used > SPEC_TEXT_SIZE || s->text[0] ||
        s->text[s->text_used - 1])
        return err_set(e, ERR_INVALID, "the string table of the spec is damaged");
    if (s->n_labels < 0 || s->n_labels > SPEC_LABELS)
        return err_field(e, ERR_INVALID, "labels", "labels has %d members, at most %d are allowed",
                         s->n_labels, SPEC_LABELS);
    for (int i = 0; i < s->n_labels; i++)
        if (s->labels[i].key >= s->text_used || s->labels[i].value >= s->text_used)
            return err_field(e, ERR_INVALID, "labels", "label %d lies outside the string table", i);
    if (strlen(spec_text(s, s->name)) > NAME_MAX_BYTES)
        return err_field(e, ERR_INVALID, "name", "name is longer than %d bytes", NAME_MAX_BYTES);
    return 0;
}

/* Refuses a job that has neither a model directory nor sizes for a new model. */
static int check_model(const struct job_spec *s, struct err *e)
{
    if (!spec_new_model(s) || *s->model.config || s->model.shape.width) return 0;
    return err_field(e, ERR_INVALID, "model",
                     "model is missing: give model.path (a directory) or model.config (sizes)");
}

/* Refuses an eod for text and for Megatron's format. They need none, because documents of text end
 * with the id 256, and Megatron's index has the ends of documents. */
static int check_eod(const struct spec_source *src, const char *field, struct err *e)
{
    const int f = src->format;
    const bool tokens = f == DATA_LLMC || f == DATA_NANOGPT || f == DATA_NPY;
    char member[48];
    snprintf(member, sizeof member, "%s.eod", field);
    if (src->eod < 0 || (!src->eod && !tokens)) return 0; /* 0 if the job sets none */
    if (!tokens)
        return err_field(e, ERR_INVALID, member,
                         "%s %lld: only the formats llmc, nanogpt and npy find documents by an id",
                         member, (long long)src->eod);
    return 0;
}

static int check_source(const struct job_spec *s, const struct spec_source *src, const char *field,
                        struct err *e)
{
    if (src->path >= s->text_used || src->text_key >= s->text_used || src->format < 0 ||
        src->format >= DATA_FORMAT_N)
        return err_field(e, ERR_INVALID, field, "%s is damaged", field);
    if (!*spec_text(s, src->path))
        return err_field(e, ERR_INVALID, field, "%s.path is missing: name a file or a glob", field);
    if (src->format == DATA_OPENAI_BATCH && s->kind != JOB_GENERATE)
        return err_field(e, ERR_INVALID, field,
                         "%s.format \"openai_batch\" holds requests: only a generate job reads it",
                         field);
    return check_eod(src, field, e);
}

/* Checks the weights of sources. Either all sources have a weight, or none has one. Each weight
 * must be at least a thousandth of the sum of weights, because a thousandth is the smallest share
 * of a block of samples (worker/data/mixture.h). */
static int check_weights(const struct job_spec *s, struct err *e)
{
    double sum = 0;
    int n_weighted = 0;
    for (int i = 0; i < s->data.n_train; i++) {
        double w = s->data.train[i].weight;
        char field[32];
        snprintf(field, sizeof field, "data.train.%d.weight", i);
        if (!(w >= 0 && w <= 1e9))
            return err_field(e, ERR_INVALID, field, "%s is %g: it must lie between 0 and 1e9",
                             field, w);
        n_weighted += w > 0;
        sum += w;
    }
    for (int i = 0; n_weighted && i < s->data.n_train; i++) {
        double w = s->data.train[i].weight;
        char field[32];
        snprintf(field, sizeof field, "data.train.%d.weight", i);
        if (w == 0)
            return err_field(e, ERR_INVALID, field,
                             "%s is missing: other sources have one, so give every source a weight "
                             "above 0, or none",
                             field);
        if (w / sum < 1e-3)
            return err_field(e, ERR_INVALID, field,
                             "%s %g is %.3g of the mixture: a source needs a thousandth at least",
                             field, w, w / sum);
    }
    return 0;
}

/* Checks the fields that decide which tokens of a record are targets. */
static int check_packing(const struct job_spec *s, struct err *e)
{
    bool jsonl = false;
    for (int i = 0; i < s->data.n_train; i++) jsonl |= s->data.train[i].format == DATA_JSONL;
    if (s->data.loss_on == LOSS_ON_COMPLETION && !jsonl)
        return err_field(e, ERR_INVALID, "data.loss_on",
                         "data.loss_on \"completion\" needs a source of format \"jsonl\" with "
                         "\"prompt\" and \"completion\" in every record");
    if (s->data.loss_on == LOSS_ON_ASSISTANT && !jsonl)
        return err_field(e, ERR_INVALID, "data.loss_on",
                         "data.loss_on \"assistant\" needs a source of format \"jsonl\" with "
                         "\"messages\" in every record");
    return 0;
}

static int check_eval_data(const struct job_spec *s, struct err *e)
{
    if (s->eval.n_data < 0 || s->eval.n_data > SPEC_SOURCES)
        return err_field(e, ERR_INVALID, "eval.data",
                         "eval.data has %d sources, at most %d are allowed", s->eval.n_data,
                         SPEC_SOURCES);
    for (int i = 0; i < s->eval.n_data; i++) {
        char field[32];
        snprintf(field, sizeof field, "eval.data.%d", i);
        if (check_source(s, &s->eval.data[i], field, e)) return -1;
        if (s->eval.data[i].weight != 0)
            return err_field(e, ERR_INVALID, field,
                             "%s.weight: an evaluation reads every source once, in order; leave "
                             "it out",
                             field);
    }
    return 0;
}

static int check_train_data(struct job_spec *s, struct err *e)
{
    if (s->data.n_train < 1)
        return err_field(e, ERR_INVALID, "data.train",
                         "data.train is missing: give [{\"path\": \"file-or-glob\"}]");
    if (s->data.n_train > SPEC_SOURCES)
        return err_field(e, ERR_INVALID, "data.train",
                         "data.train has %d sources, at most %d are allowed", s->data.n_train,
                         SPEC_SOURCES);
    for (int i = 0; i < s->data.n_train; i++) {
        char field[32];
        snprintf(field, sizeof field, "data.train.%d", i);
        if (check_source(s, &s->data.train[i], field, e)) return -1;
    }
    return check_weights(s, e) || check_packing(s, e) || check_eval_data(s, e) ? -1 : 0;
}

/* Checks the input of a generate job. If the prompt is inline, the sequence has the prompt and the
 * generated text. family_check() checks the sizes of latents, and the lengths of prompts in a
 * file. */
static int check_generate(struct job_spec *s, struct err *e)
{
    const char *prompt = spec_text(s, s->input.prompt);
    const bool file = *spec_text(s, s->input.source.path) != 0;
    if (!*prompt == !file)
        return err_field(e, ERR_INVALID, "input",
                         "a generate job takes either input.prompt or input.path");
    if (file) return check_source(s, &s->input.source, "input", e);
    /* Count one token for each byte of an inline prompt, because for most prompts a tokenizer
     * makes no more tokens than that. */
    if (!s->data.seq_len) s->data.seq_len = (int64_t)strlen(prompt) + s->sampling.max_tokens;
    return 0;
}

static int check_serve(const struct job_spec *s, struct err *e)
{
    if (s->data.seq_len) return 0;
    return err_field(e, ERR_INVALID, "data.seq_len",
                     "data.seq_len is missing: the tokens of the longest request, its prompt and "
                     "its answer together");
}

/* Sets data.seq_len from the sizes of latents if the spec leaves it out. A sample has at most one
 * token per latent. */
static void count_latents(struct job_spec *s)
{
    const double n = (double)s->data.frames * (double)s->data.height * (double)s->data.width;
    if (!s->data.seq_len && n > 0)
        s->data.seq_len = n < (double)JOB_MAX_SEQ ? (int64_t)n : JOB_MAX_SEQ;
}

static int check_data(struct job_spec *s, struct err *e)
{
    count_latents(s);
    if (s->kind == JOB_GENERATE) return check_generate(s, e);
    if (s->kind == JOB_SERVE) return check_serve(s, e);
    if (!s->data.seq_len && s->data.n_train && s->data.train[0].format == DATA_LATENTS)
        return err_field(e, ERR_INVALID, "data.frames",
                         "data.frames, data.height and data.width say how large the largest "
                         "sample's latents are: one is missing");
    if (!s->data.seq_len)
        return err_field(e, ERR_INVALID, "data.seq_len",
                         "data.seq_len is missing: the tokens of one sequence");
    if (s->kind == JOB_SCORE || s->kind == JOB_EMBED) {
        if (!*spec_text(s, s->input.source.path))
            return err_field(e, ERR_INVALID, "input",
                             "input.path is missing: the file a %s job reads",
                             spec_kind_name(s->kind));
        return check_source(s, &s->input.source, "input", e);
    }
    if (s->kind == JOB_VERIFY && s->verify.max_tokens > s->data.seq_len)
        s->verify.max_tokens = s->data.seq_len;
    return check_train_data(s, e);
}

/* The allowed differences between P ranks and one rank, if the job does not set them. P ranks and
 * one rank run the same kernels on the same data. Only the order of fp32 sums differs between
 * them.
 *   fp32   some tens of roundings of 2^-24 each
 *   bf16   A sum that differs in its last bits is sometimes rounded to the other neighbour, and
 *          then the later values differ, too. At worst the roundings on one rank and on P ranks
 *          are independent. A rounding has the rms 0.41 u, where u = 2^-9. If each side makes n
 *          roundings in a row, the rms of the difference is 0.41 u sqrt(2 n). 2e-2 allows n = 300,
 *          which is twenty per layer, forward and backward, in a model of 15 layers. Four layers
 *          differ by only 2e-3, because the roundings are far from independent. The loss is
 *          a mean over many tokens, in which roundings cancel, so its bound is one u. A wrong
 *          block, position or scale causes a difference of tens of percent.
 *   fp16   The same with u = 2^-12. Its spacing is an eighth of bf16's, so that the same
 *          differences of fp32 sums cross eight times as many borders, and the roundings are
 *          nearer to independent. 4e-3 allows n = 800. The bound of the loss is one u.
 * Some gradients magnify roundings more than that. A proof that exceeds a bound measures this
 * magnification, and widens the bounds of these gradients (worker/verify/rounding.h). */
struct job_tolerance job_tolerance(int32_t precision)
{
    static const struct job_tolerance usual[PRECISION_N] = {[PRECISION_FP32] = {1e-6, 1e-5},
                                                            [PRECISION_BF16] = {2e-3, 2e-2},
                                                            [PRECISION_FP16] = {2.5e-4, 4e-3}};
    return usual[precision];
}

static void set_tolerance(struct job_spec *s)
{
    const struct job_tolerance usual = job_tolerance(s->precision.params);
    if (s->verify.loss_rel < 0) s->verify.loss_rel = usual.loss_rel;
    if (s->verify.grad_rel_l2 < 0) s->verify.grad_rel_l2 = usual.grad_rel_l2;
}

/* Checks the length of a training run. It does not check that only one of steps, tokens and passes
 * is given, because once the data is counted, a spec with tokens or passes has steps, too. The
 * reader (daemon/spec/read.c) makes that check. */
static int check_length(struct job_spec *s, struct err *e)
{
    if (s->kind != JOB_TRAIN) return 0;
    if (!s->train.steps && !s->train.tokens && !s->train.passes)
        return err_field(e, ERR_INVALID, "train.steps",
                         "train.steps is missing: give steps, tokens or passes");
    if (s->train.tokens && s->train.passes)
        return err_field(e, ERR_INVALID, "train.tokens",
                         "train.tokens and train.passes both say how long to train: give one");
    if (s->schedule.warmup_steps < 0 && s->train.steps)
        s->schedule.warmup_steps = (s->train.steps + 49) / 50;
    if (s->train.steps && s->schedule.warmup_steps > s->train.steps)
        return err_field(
            e, ERR_INVALID, "schedule.warmup_steps",
            "schedule.warmup_steps %lld is more than the %lld steps of the run: lower it, "
            "or leave it out for 2 %% of the steps",
            (long long)s->schedule.warmup_steps, (long long)s->train.steps);
    if (s->checkpoint.resume == RESUME_PATH && !*spec_text(s, s->checkpoint.resume_path))
        return err_field(e, ERR_INVALID, "checkpoint.resume", "checkpoint.resume names no path");
    if (s->checkpoint.changes && s->checkpoint.resume != RESUME_PATH)
        return err_field(e, ERR_INVALID, "checkpoint.changes",
                         "checkpoint.changes needs checkpoint.resume with the path of a step "
                         "directory");
    return 0;
}

/* Checks the transport. TCP cannot carry tensors in a device's memory, and NCCL can carry only
 * tensors in a device's memory. Only TCP is encrypted, so parallel.tls becomes 0 if the job cannot
 * use TCP. */
static int check_transport(struct job_spec *s, struct err *e)
{
    const char *device = spec_text(s, s->resources.device);
    const bool own = device_find(device)->own_memory;
    if (own || s->parallel.transport == TRANSPORT_SHM) s->parallel.tls = 0;
    if (!own && s->parallel.transport == TRANSPORT_NCCL)
        return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                         "parallel.transport \"nccl\" is for GPUs: use \"auto\" on \"cpu\"");
    if (own && s->resources.ranks > 1 && s->parallel.transport == TRANSPORT_TCP)
        return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                         "parallel.transport \"tcp\" does not reach the memory of \"%s\": use "
                         "\"auto\"",
                         device);
    return 0;
}

/* Checks the groups of ZeRO. With determinism "ranks" each group is a subtree of the sum over all
 * ranks, so its size must be a power of two. */
static int check_zero_group(const struct job_spec *s, struct err *e)
{
    const int n = s->parallel.zero_group, ranks = s->parallel.sp * s->parallel.dp;
    if (!n || n == ranks) return 0;
    if (ranks % n)
        return err_field(
            e, ERR_INVALID, "parallel.zero_group",
            "parallel.zero_group %d does not divide the %d ranks (parallel.sp %d times "
            "parallel.dp %d): use a divisor of %d",
            n, ranks, s->parallel.sp, s->parallel.dp, ranks);
    if (!s->parallel.zero)
        return err_field(e, ERR_INVALID, "parallel.zero_group",
                         "parallel.zero_group %d has nothing to shard with parallel.zero 0: set "
                         "parallel.zero to 1, 2 or 3, or leave out parallel.zero_group",
                         n);
    if (s->determinism == DET_RANKS && n & (n - 1))
        return err_field(e, ERR_INVALID, "parallel.zero_group",
                         "parallel.zero_group %d cannot give determinism \"ranks\": use 1, 2, 4 or "
                         "another power of two, or all %d ranks",
                         n, ranks);
    return 0;
}

/* Checks a pipeline, which only jobs of the kinds train and verify may have. */
static int check_pipeline(const struct job_spec *s, struct err *e)
{
    if (job_stages(s) == 1) return 0;
    if (s->kind != JOB_TRAIN && s->kind != JOB_VERIFY)
        return err_field(e, ERR_UNSUPPORTED, "parallel.pp",
                         "parallel.pp %d: a %s job runs on one stage, make parallel.pp 1",
                         s->parallel.pp, spec_kind_name(s->kind));
    return 0;
}

static int not_all_ranks(const struct job_spec *s, struct err *e)
{
    const int sp = s->parallel.sp ? s->parallel.sp : 1, dp = s->parallel.dp ? s->parallel.dp : 1;
    const int64_t product = (int64_t)sp * dp * job_stages(s) * job_tp(s);
    char pp[40] = "", tp[40] = "";
    if (job_stages(s) > 1) snprintf(pp, sizeof pp, " times parallel.pp %d", s->parallel.pp);
    if (s->parallel.tp > 1) snprintf(tp, sizeof tp, " times parallel.tp %d", s->parallel.tp);
    char fix[160];
    snprintf(fix, sizeof fix,
             "set resources.ranks %lld, or leave it out; for %d rank%s leave parallel out, which "
             "is then chosen",
             (long long)product, s->resources.ranks, s->resources.ranks == 1 ? "" : "s");
    if (product > JOB_MAX_RANKS)
        snprintf(fix, sizeof fix, "make them smaller, %lld ranks are more than the %d of a job",
                 (long long)product, JOB_MAX_RANKS);
    return err_field(e, ERR_INVALID, *pp ? "parallel.pp" : "parallel.sp",
                     "parallel.sp %d times parallel.dp %d%s%s is not resources.ranks %d: %s", sp,
                     dp, pp, tp, s->resources.ranks, fix);
}

/* Fills in the degrees that the job leaves out, by the rule ranks = dp * pp * sp * tp. */
static int set_degrees(struct job_spec *s, struct err *e)
{
    const int dp = s->parallel.dp ? s->parallel.dp : 1, pp = job_stages(s), tp = job_tp(s);
    const int64_t others = (int64_t)dp * pp * tp;
    const int64_t least = others * (s->parallel.sp ? s->parallel.sp : 1);
    if (!s->resources.ranks && least > JOB_MAX_RANKS)
        return err_field(e, ERR_TOO_LARGE, pp > 1 ? "parallel.pp" : "parallel.sp",
                         "parallel.dp %d times parallel.pp %d times parallel.sp %d times "
                         "parallel.tp %d make more than the %d ranks that a job may have",
                         dp, pp, s->parallel.sp ? s->parallel.sp : 1, tp, JOB_MAX_RANKS);
    if (!s->resources.ranks) s->resources.ranks = (int32_t)least;
    if (!s->parallel.sp) s->parallel.sp = (int32_t)(s->resources.ranks / others);
    if (!s->parallel.dp && s->parallel.sp)
        s->parallel.dp = s->resources.ranks / (s->parallel.sp * pp * tp);
    if ((int64_t)s->parallel.sp * s->parallel.dp * pp * tp != s->resources.ranks)
        return not_all_ranks(s, e);
    return check_pipeline(s, e);
}

static int check_ranks(struct job_spec *s, struct err *e)
{
    if (!device_find(spec_text(s, s->resources.device)))
        return err_field(e, ERR_UNSUPPORTED, "resources.device",
                         "resources.device \"%.32s\" is not a device: want one of %s",
                         spec_text(s, s->resources.device), device_names());
    if (set_degrees(s, e)) return -1;
    if (s->parallel.dp > 1 && s->kind != JOB_TRAIN && s->kind != JOB_VERIFY)
        return err_field(e, ERR_UNSUPPORTED, "parallel.dp",
                         "parallel.dp %d: a %s job runs on one ring, make parallel.dp 1",
                         s->parallel.dp, spec_kind_name(s->kind));
    if (s->kind == JOB_TRAIN && s->train.global_batch % s->parallel.dp)
        return err_field(e, ERR_INVALID, "train.global_batch",
                         "train.global_batch %lld is not a multiple of parallel.dp %d: every ring "
                         "takes the same number of sequences",
                         (long long)s->train.global_batch, s->parallel.dp);
    if (s->data.seq_len && s->parallel.sp > s->data.seq_len)
        return err_field(
            e, ERR_INVALID, "parallel.sp",
            "parallel.sp %d is more than data.seq_len %lld: a rank would hold no token",
            s->parallel.sp, (long long)s->data.seq_len);
    return check_zero_group(s, e);
}

/* Checks the ranks and the determinism that the job sets. Values that are "auto" are checked by
 * family_check(), which chooses them. */
static int check_parallel(struct job_spec *s, struct err *e)
{
    const int sp = s->parallel.sp;
    const bool bits = s->determinism == DET_RANKS;
    if (s->parallel.strategy == STRATEGY_LOCAL && sp > 1)
        return err_field(e, ERR_INVALID, "parallel.strategy",
                         "parallel.strategy \"local\" runs on one rank, parallel.sp is %d: use "
                         "\"auto\"",
                         sp);
    if (bits && s->parallel.layout == LAYOUT_ZIGZAG)
        return err_field(e, ERR_INVALID, "parallel.layout",
                         "parallel.layout \"zigzag\" cannot give determinism \"ranks\": use "
                         "\"contiguous\"");
    if (bits && sp != 1 && sp != 2 && sp != 4 && sp != 8)
        return err_field(e, ERR_INVALID, "parallel.sp",
                         "parallel.sp %d cannot give determinism \"ranks\": use 1, 2, 4 or 8", sp);
    return check_transport(s, e);
}

int job_check(struct job_spec *s, struct err *e)
{
    if (check_text_table(s, e) || check_table(s, e)) return -1;
    if (s->kind == JOB_MERGE) return job_check_merge(s, e);
    if (check_model(s, e) || check_data(s, e) || check_length(s, e) || job_check_infer(s, e))
        return -1;
    set_tolerance(s);
    return check_ranks(s, e) || check_parallel(s, e) || job_check_training(s, e) ? -1 : 0;
}
