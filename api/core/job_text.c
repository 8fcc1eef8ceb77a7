/* job_text.c: whether a job may take text, and what cuts it, or token ids alone. */
#include "api/core/job.h"

bool job_reads_bytes(const struct job_spec *s)
{
    const int32_t of_model = s->model.shape.tokenizer;
    return s->data.tokenizer == TOKENIZER_BYTE || of_model == TOKENIZER_AUTO ||
           of_model == TOKENIZER_BYTE;
}

bool job_has_tokenizer(const struct job_spec *s)
{
    return s->model.shape.tokenizer == TOKENIZER_OWN && !job_reads_bytes(s);
}

int job_refuse_text(const char *field, const char *what, struct err *e)
{
    return err_field(e, ERR_UNSUPPORTED, field,
                     "%s is text, and model.path has no tokenizer, so that nothing says what its "
                     "ids mean: add its tokenizer.json, or give token ids (\"input_ids\" of jsonl, "
                     "llmc, nanogpt, megatron, npy; a list as the \"prompt\" of an openai_batch), "
                     "or say data.tokenizer \"byte\" to use the model on bytes, whatever its ids "
                     "meant",
                     what);
}
