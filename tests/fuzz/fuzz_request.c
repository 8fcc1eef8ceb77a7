/* sources: worker/infer/request_line.c worker/infer/requests.c worker/infer/request_text.c worker/infer/stop.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c api/core/mem.c api/core/spec.c api/core/nearest.c api/core/job.c api/core/device.c api/core/job_infer.c api/core/job_train.c api/core/job_merge.c api/core/sha256.c api/core/jread.c api/core/err.c api/core/job_text.c api/core/beneath.c api/core/file.c worker/infer/neutral.c api/core/jwrite.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads any bytes as a line of an openai_batch. A line must either be refused with a sentence, or
 * give a request within the bounds on which generation relies. Reading the line again must give
 * the same request. The custom_id of the request must equal the result of request_id. */
#include <string.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/model_shape.h"
#include "worker/infer/requests.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_good(const struct request *r, const struct job_spec *spec)
{
    assert(r->n_tokens > 0 && r->n_tokens + r->max_tokens <= spec->data.seq_len);
    assert(r->max_tokens >= 0 && r->max_tokens <= spec->sampling.max_tokens);
    assert(r->min_tokens >= 0 && r->min_tokens <= r->max_tokens);
    assert(r->n >= 1 && r->n <= 1024 && r->logprobs >= -1 && r->logprobs <= SAMPLE_TOP);
    assert(r->sample.temperature >= 0 && r->sample.temperature <= 100);
    assert(r->sample.top_p > 0 && r->sample.top_p <= 1);
    assert(r->sample.min_p >= 0 && r->sample.min_p <= 1);
    assert(r->sample.repetition > 0 && r->sample.top_k >= 0);
    assert(r->sample.top_k <= spec->model.shape.vocab && r->stop.n <= SPEC_STOPS);
    for (int64_t i = 0; i < r->n_tokens; i++)
        assert(r->tokens[i] >= 0 && r->tokens[i] < spec->model.shape.vocab);
    for (int i = 0; i < r->stop.n; i++)
        assert(r->stop.string[i].size > 0 && r->stop.string[i].size <= STOP_SIZE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct job_spec spec;
    static struct request r, again;
    char id[REQUEST_ID_SIZE];
    struct err e = {0};
    spec_defaults(&spec);
    spec.kind = JOB_GENERATE;
    spec.model.shape.vocab = 300;
    spec.data.seq_len = 1024;
    spec.model.shape.tokenizer = size % 2 ? TOKENIZER_OWN : TOKENIZER_BYTE;
    spec.sampling.max_tokens = 64;
    if (request_init(&r, (int64_t)size, &e) || request_init(&again, (int64_t)size, &e)) return 0;
    request_of_line(&r, &spec, (const char *)data, (int64_t)size);
    request_of_line(&again, &spec, (const char *)data, (int64_t)size);
    assert(r.refused.code == again.refused.code && r.n_tokens == again.n_tokens);
    assert(r.key.seed == again.key.seed && r.key.request == again.key.request);
    if (r.refused.code == ERR_NONE)
        check_good(&r, &spec);
    else
        assert(r.refused.text[0]);
    if (request_id((const char *)data, (int64_t)size, id, &e))
        assert(e.text[0] && r.refused.code != ERR_NONE);
    else
        assert(id[0] && !strcmp(id, r.id));
    request_fini(&r);
    request_fini(&again);
    return 0;
}
