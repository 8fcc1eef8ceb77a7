/* job_infer.c: the rules of job_check for jobs of the kinds score and embed. */
#include "api/core/job.h"

#define BUCKETS_MAX 4096

/* Refuses a value that only jobs of other kinds accept. `text` tells how this kind of job reads
 * documents, and `takes` lists the values that it accepts. */
static int refuse_value(const char *path, int value, const char *text, const char *takes,
                        struct err *e)
{
    const char *word = spec_field(path)->words[value];
    return err_field(e, ERR_UNSUPPORTED, path, "%s \"%s\": %s: it takes %s", path, word, text,
                     takes);
}

static int check_score(struct job_spec *s, struct err *e)
{
    const int64_t S = s->data.seq_len, bucket = s->score.by_position_bucket;
    if (s->data.packing == PACKING_NONE)
        return refuse_value("data.packing", s->data.packing,
                            "a score job fills its windows with documents in order",
                            "concat, or best_fit for whole documents", e);
    if (s->data.packing == PACKING_BEST_FIT && s->score.stride > 0)
        return err_field(e, ERR_UNSUPPORTED, "score.stride",
                         "score.stride %lld: windows of whole documents, data.packing best_fit, do "
                         "not overlap: leave one of the two out",
                         (long long)s->score.stride);
    if (s->data.packing == PACKING_BEST_FIT && !(s->data.document_mask && s->data.reset_positions))
        return err_field(e, ERR_UNSUPPORTED,
                         s->data.document_mask ? "data.reset_positions" : "data.document_mask",
                         "%s false: under data.packing best_fit each document is scored as if it "
                         "stood alone: leave one of the two out",
                         s->data.document_mask ? "data.reset_positions" : "data.document_mask");
    /* In jobs of the kind score, "auto" means "split", because each window scores its own targets.
     * In training, "auto" means "error" if the loss is masked. */
    if (s->data.overlong == OVERLONG_AUTO) s->data.overlong = OVERLONG_SPLIT;
    if (s->data.overlong != OVERLONG_SPLIT)
        return refuse_value("data.overlong", s->data.overlong, "a score job reads every token",
                            "auto or split", e);
    if (s->score.stride > S)
        return err_field(e, ERR_INVALID, "score.stride",
                         "score.stride %lld is more than data.seq_len %lld: windows would leave "
                         "tokens out: make it at most data.seq_len",
                         (long long)s->score.stride, (long long)S);
    if (bucket > S || (bucket && (S + bucket - 1) / bucket > BUCKETS_MAX))
        return err_field(e, ERR_INVALID, "score.by_position_bucket",
                         "score.by_position_bucket %lld of data.seq_len %lld: take 1 to %d buckets",
                         (long long)bucket, (long long)S, BUCKETS_MAX);
    return 0;
}

static int check_embed(const struct job_spec *s, struct err *e)
{
    if (s->data.packing != PACKING_CONCAT && s->data.packing != PACKING_NONE)
        return refuse_value("data.packing", s->data.packing,
                            "an embed job reads whole documents in order",
                            "concat, or none for one document at a time", e);
    if (s->data.overlong == OVERLONG_SPLIT || s->data.overlong == OVERLONG_DROP)
        return refuse_value("data.overlong", s->data.overlong,
                            "an embed job makes one vector of every document",
                            "auto, error or truncate", e);
    return 0;
}

int job_check_infer(struct job_spec *s, struct err *e)
{
    switch (s->kind) {
    case JOB_SCORE: return check_score(s, e);
    case JOB_EMBED: return check_embed(s, e);
    default: return 0;
    }
}
