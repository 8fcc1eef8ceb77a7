/* sources: worker/infer/serve_tokens.c worker/infer/sample.c worker/infer/request_line.c worker/infer/grammar*.c worker/infer/vocabulary.c worker/infer/request_check.c worker/infer/request_steer.c worker/infer/request_chat.c worker/infer/request_tools.c worker/infer/calls.c worker/infer/requests.c worker/infer/request_text.c worker/infer/stop.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/plan/[a-z]*.c worker/family/[a-z]*.c worker/program/[a-z]*.c api/core/faults.c api/core/job_paths.c api/core/profile.c api/core/rank.c api/core/room.c api/core/mem.c api/core/spec.c api/core/nearest.c api/core/job.c api/core/device.c api/core/job_infer.c api/core/job_train.c api/core/job_merge.c api/core/sha256.c api/core/jread.c api/core/err.c api/core/job_text.c api/core/beneath.c api/core/file.c worker/infer/neutral.c api/core/jwrite.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads any bytes as a line of an openai_batch. A line must either be refused with a sentence, or
 * give a request within the bounds on which generation relies. Reading the line again must give
 * the same request. The custom_id of the request must equal the result of request_id.
 *
 * If the first byte is a digit, the rest is the body of a served request: by its value modulo 4 of
 * completions, of chat/completions, of tokenize or of detokenize. */
#include <string.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/model_shape.h"
#include "worker/infer/requests.h"
#include "worker/infer/serve_tokens.h"
#include "worker/infer/vocabulary.h"

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
    assert(r->sample.top_k <= spec->model.shape.vocab && r->stop.n <= STOP_STRINGS);
    for (int64_t i = 0; i < r->n_tokens; i++)
        assert(r->tokens[i] >= 0 && r->tokens[i] < spec->model.shape.vocab);
    for (int i = 0; i < r->stop.n; i++)
        assert(r->stop.string[i].size > 0 && r->stop.string[i].size <= STOP_SIZE);
}

/* Reads the body of a request that a job answers between two passes. */
static void convert(const struct job_spec *spec, uint32_t endpoint, const char *body, size_t size)
{
    const struct infer in = {.spec = spec};
    struct serve_request q = {.ask.endpoint = endpoint};
    struct text scratch = {0};
    struct err e = {0};
    if (text_add(&q.body, body, (int64_t)size)) return;
    if (serve_tokens_answer(&in, &q, &scratch, &e))
        assert(e.text[0] && q.status == 0);
    else
        assert(q.status == 200 && q.state == SERVE_ENDED && q.out.n > 0 && q.out.data[0] == '{');
    text_fini(&q.body);
    text_fini(&q.out);
    text_fini(&scratch);
}

/* Follows the request's grammar through bytes: the mask of each state has the byte exactly if the
 * grammar takes it, and each text can continue or end. */
static void follow(const struct request *r, const char *text, size_t size)
{
    static struct grammar_state s, next;
    uint64_t mask[5];
    if (!r->grammar) return;
    grammar_begin(r->grammar, &s);
    for (size_t i = 0; i < size && i < 256; i++) {
        const unsigned char c = (unsigned char)text[i];
        uint64_t any = 0;
        vocabulary_mask(r->vocabulary, r->grammar, &s, mask);
        for (int k = 0; k < 5; k++) any |= mask[k];
        assert(any || grammar_complete(r->grammar, &s));
        assert(grammar_step(r->grammar, &s, c, &next) == (mask[c / 64] >> c % 64 & 1));
        if (next.n) s = next;
    }
}

/* Reads the body of a request that waits for a slot. */
static void serve(const struct job_spec *spec, bool chat, const char *body, size_t size)
{
    const struct request_call call = {.id = 7, .chat = chat, .adapter = ADAPTER_BASE};
    static struct vocabulary words;
    struct request r;
    struct err e = {0};
    if (request_init(&r, (int64_t)size, &e)) return;
    r.vocabulary = &words;
    request_of_body(&r, spec, &call, body, (int64_t)size);
    if (r.refused.code == ERR_NONE)
        check_good(&r, spec);
    else
        assert(r.refused.text[0]);
    follow(&r, body, size);
    assert(!r.too_long || r.refused.code == ERR_TOO_LARGE);
    assert(r.refused.code != ERR_NONE || r.n <= REQUEST_SERVED_N);
    request_trim(&r);
    request_fini(&r);
}

static void set_spec(struct job_spec *spec, enum job_kind kind, bool own)
{
    spec_defaults(spec);
    spec->kind = kind;
    spec->model.shape.vocab = 300;
    spec->data.seq_len = 1024;
    spec->model.shape.tokenizer = own ? TOKENIZER_OWN : TOKENIZER_BYTE;
    spec->sampling.max_tokens = 64;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct job_spec spec;
    static struct request r, again;
    char id[REQUEST_ID_SIZE];
    struct err e = {0};
    const bool body = size && data[0] >= '0' && data[0] <= '9';
    set_spec(&spec, body ? JOB_SERVE : JOB_GENERATE, size % 2);
    if (body) {
        const char *text = (const char *)data + 1;
        const int kind = data[0] % 4;
        if (kind < 2)
            serve(&spec, kind == 1, text, size - 1);
        else
            convert(&spec, kind == 2 ? SERVE_TOKENIZE : SERVE_DETOKENIZE, text, size - 1);
        return 0;
    }
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
