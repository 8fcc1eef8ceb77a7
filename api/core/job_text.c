/* job_text.c: tells whether a job accepts text or only token ids, and which tokenizer converts its
 * text. */
#include "api/core/job.h"

/* Returns false if the shape is not known yet, because such a shape has no vocabulary. */
bool job_lacks_bytes(const struct job_spec *s)
{
    const int64_t vocab = s->model.shape.vocab;
    return vocab && vocab < JOB_BYTE_VOCAB;
}

bool job_reads_bytes(const struct job_spec *s)
{
    const int32_t of_model = s->model.shape.tokenizer;
    if (s->data.tokenizer == TOKENIZER_BYTE) return true;
    return (of_model == TOKENIZER_AUTO || of_model == TOKENIZER_BYTE) && !job_lacks_bytes(s);
}

bool job_has_tokenizer(const struct job_spec *s)
{
    return s->model.shape.tokenizer == TOKENIZER_OWN && !job_reads_bytes(s);
}

int job_refuse_text(const struct job_spec *s, const char *field, const char *what, struct err *e)
{
    if (job_lacks_bytes(s))
        return err_field(
            e, ERR_UNSUPPORTED, field,
            "%s is text, which is read as bytes, and model.config.vocab_size %lld is "
            "less than the %d ids of bytes: give token ids (\"input_ids\" of jsonl, llmc, "
            "nanogpt, megatron, npy), a model.path with its own tokenizer.json, or a "
            "larger vocab_size",
            what, (long long)s->model.shape.vocab, JOB_BYTE_VOCAB);
    return err_field(e, ERR_UNSUPPORTED, field,
                     "%s is text, and model.path has no tokenizer, so that nothing says what its "
                     "ids mean: add its tokenizer.json, or give token ids (\"input_ids\" of jsonl, "
                     "llmc, nanogpt, megatron, npy; a list as the \"prompt\" of an openai_batch), "
                     "or say data.tokenizer \"byte\" to use the model on bytes, whatever its ids "
                     "meant",
                     what);
}
