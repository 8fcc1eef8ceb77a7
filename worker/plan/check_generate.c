/* check_generate.c: the rules of a generate job, for tokens or for samples, and of a serve job. */
#include <stdio.h>
#include <string.h>
#include "worker/family/family.h"
#include "worker/plan/paged.h"
#include "worker/plan/rules.h"
#include "worker/plan/strategy.h"
#include "worker/program/rope.h"

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Checks that the sequence has room for the prompt and for the tokens that are generated after
 * it. */
static int check_room(const struct job_spec *s, struct err *e)
{
    const char *prompt = spec_text(s, s->input.prompt);
    /* With the byte tokenizer, each byte is one token. With any other tokenizer, a rank counts the
     * tokens later. */
    const bool bytes = job_reads_bytes(s) &&
                       (rules_known(s) || s->data.tokenizer == TOKENIZER_BYTE);
    const int64_t n_prompt = bytes ? (int64_t)strlen(prompt) : *prompt != 0;
    const int64_t need = n_prompt + s->sampling.max_tokens;
    if (!s->data.seq_len)
        return err_field(e, ERR_INVALID, "data.seq_len",
                         "data.seq_len is missing: room for the prompt of input.path and "
                         "sampling.max_tokens after it (a diffusion model's job has data.frames, "
                         "data.height and data.width instead)");
    if (s->data.seq_len < need)
        return err_field(
            e, ERR_INVALID, "data.seq_len",
            "data.seq_len %lld holds less than the prompt and sampling.max_tokens %lld, "
            "%lld tokens: make data.seq_len at least that, or sampling.max_tokens less",
            (long long)s->data.seq_len, (long long)s->sampling.max_tokens, (long long)need);
    if (s->data.seq_len > JOB_MAX_SEQ)
        return err_field(e, ERR_INVALID, "sampling.max_tokens",
                         "prompt and sampling.max_tokens are %lld tokens, at most %lld are "
                         "possible: lower sampling.max_tokens",
                         (long long)need, (long long)JOB_MAX_SEQ);
    return 0;
}

static int check_stops(const struct job_spec *s, struct err *e)
{
    for (int i = 0; i < SPEC_STOPS; i++) {
        char field[32];
        snprintf(field, sizeof field, "sampling.stop.%d", i);
        if (strlen(spec_text(s, s->sampling.stop[i])) > STOP_SIZE)
            return err_field(e, ERR_INVALID, field, "%s is longer than %d bytes", field, STOP_SIZE);
    }
    return 0;
}

/* Refuses fields that are used only for random draws, if sampling is greedy and no request can
 * make it random. */
static int check_greedy(const struct job_spec *s, struct err *e)
{
    const char *field = s->sampling.top_k       ? "sampling.top_k"
                        : s->sampling.top_p < 1 ? "sampling.top_p"
                        : s->sampling.min_p > 0 ? "sampling.min_p"
                        : s->sampling.n > 1     ? "sampling.n"
                                                : NULL;
    if (!field || s->sampling.temperature > 0) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s has no effect at sampling.temperature 0, which always takes the likeliest "
                     "token: give a temperature, or leave it out",
                     field);
}

static int check_sampling(const struct job_spec *s, struct err *e)
{
    const int64_t V = s->model.shape.vocab;
    const bool bodies = job_has_bodies(s);
    if (rules_known(s) && s->sampling.top_k > V)
        return err_field(e, ERR_INVALID, "sampling.top_k",
                         "sampling.top_k %lld is more than the %lld tokens of the vocabulary",
                         (long long)s->sampling.top_k, (long long)V);
    if (s->sampling.min_tokens > s->sampling.max_tokens)
        return err_field(e, ERR_INVALID, "sampling.min_tokens",
                         "sampling.min_tokens %lld is more than sampling.max_tokens %lld: raise "
                         "sampling.max_tokens, or lower sampling.min_tokens",
                         (long long)s->sampling.min_tokens, (long long)s->sampling.max_tokens);
    if (bodies && s->sampling.n > 1)
        return err_field(e, ERR_INVALID, "sampling.n",
                         "sampling.n %lld with %s: n stands in the body of each request",
                         (long long)s->sampling.n,
                         s->kind == JOB_SERVE ? "a serve job" : "an openai_batch");
    return check_stops(s, e) || (!bodies && check_greedy(s, e)) ? -1 : 0;
}

static int check_prompts(const struct job_spec *s, struct err *e)
{
    const int f = s->input.source.format;
    if (s->kind == JOB_SERVE) return 0;
    const bool file = *spec_text(s, s->input.source.path) != 0;
    if (!file && f != DATA_TEXT)
        return err_field(e, ERR_INVALID, "input.format",
                         "input.format is of a file: leave it out beside input.prompt");
    if (f == DATA_TEXT || f == DATA_JSONL || f == DATA_OPENAI_BATCH) return 0;
    return err_field(e, ERR_UNSUPPORTED, "input.format",
                     "a generate job reads text, jsonl or openai_batch");
}

/* ---- several prompts at once ----------------------------------------------------------------- */

int rules_together(const struct job_spec *s)
{
    return s->kind == JOB_SERVE ? s->serve.max_requests : s->infer.batch;
}

const char *rules_together_field(const struct job_spec *s)
{
    return s->kind == JOB_SERVE ? "serve.max_requests" : "infer.batch";
}

static int refuse_batch(const struct job_spec *s, enum err_code code, const char *why,
                        struct err *e)
{
    const char *const field = rules_together_field(s);
    return err_field(e, code, field, "%s %d: %s", field, rules_together(s), why);
}

/* Refuses to process several prompts together if the answer to a prompt could then differ from the
 * answer that it gets alone. */
int rules_batch(const struct job_spec *s, struct err *e)
{
    const bool one = s->kind == JOB_GENERATE &&
                     (!*spec_text(s, s->input.source.path) || s->input.source.format == DATA_TEXT);
    if (rules_known(s) && family_diffusion(&s->model.shape))
        return refuse_batch(s, ERR_INVALID,
                            "it is about tokens, and a diffusion model makes latents: leave it out",
                            e);
    if (one)
        return refuse_batch(s, ERR_INVALID,
                            "input has one prompt: leave infer.batch out, or give prompts as an "
                            "input.path of format jsonl or openai_batch",
                            e);
    if (s->context.save)
        return refuse_batch(s, ERR_INVALID,
                            "context.save leaves the context of one prompt: leave one of the two "
                            "out",
                            e);
    const bool paged = s->kind == JOB_SERVE && (!rules_known(s) || paged_fits(&s->model.shape));
    if (strcmp(spec_text(s, s->resources.device), "cpu") != 0 && !paged)
        return refuse_batch(s, ERR_UNSUPPORTED,
                            "on a GPU a product of several rows need not have the bits of one row: "
                            "make it 1, or take resources.device \"cpu\"",
                            e);
    if (rules_known(s) && rope_by_length(&s->model.shape))
        return refuse_batch(s, ERR_UNSUPPORTED,
                            "the model's rotary embedding changes with the length of its sequence "
                            "(dynamic, longrope), and prompts differ in length: make it 1",
                            e);
    return 0;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Tells whether the steps of a diffusion sample read this field. The other fields of sampling are
 * about tokens. */
static bool of_flow(const char *path)
{
    return !strcmp(path, "sampling.steps") || !strcmp(path, "sampling.guidance") ||
           !strcmp(path, "sampling.eta");
}

bool rules_default(const struct job_spec *s, const struct field *f)
{
    const char *at = (const char *)s + f->offset;
    switch (f->type) {
    case FIELD_INT: return (double)*(const int64_t *)at == f->fallback;
    case FIELD_DOUBLE: return *(const double *)at == f->fallback;
    case FIELD_STRING: return !*spec_text(s, *(const spec_ref *)at);
    default: return *(const int32_t *)at == f->fallback;
    }
}

/* Refuses a field of sampling that has no effect. */
static int check_heeded(const struct job_spec *s, bool flow, struct err *e)
{
    for (const struct field *f = spec_fields; f->path; f++) {
        if (strncmp(f->path, "sampling.", 9) || of_flow(f->path) == flow || rules_default(s, f) ||
            !strcmp(f->path, "sampling.seed"))
            continue;
        return err_field(e, ERR_INVALID, f->path,
                         flow ? "%s is about tokens, and a diffusion model makes latents: leave it "
                                "out"
                              : "%s is about the steps of a diffusion model, and this one writes "
                                "tokens: leave it out",
                         f->path);
    }
    return 0;
}

static int check_requests(const struct job_spec *s, struct err *e)
{
    if (s->infer.batch > 1) return rules_batch(s, e);
    if (!*spec_text(s, s->input.source.path))
        return err_field(e, ERR_INVALID, "input.prompt",
                         "input.prompt: a diffusion model is asked by requests, which say the size "
                         "of the sample as well: give input.path, a file of them");
    if (s->input.source.format == DATA_JSONL) return 0;
    return err_field(e, ERR_UNSUPPORTED, "input.format",
                     "a generate job of a diffusion model reads jsonl: a request a line");
}

static int check_samples(const struct job_spec *s, struct err *e)
{
    /* Memory is planned before the requests are read, so the spec must have the size of the
     * requests. */
    return check_requests(s, e) || rules_latents(s, e) || check_heeded(s, true, e) ? -1 : 0;
}

/* Refuses a RoPE base that depends on the length (NTK). If the base depends on the length, each
 * new token changes the rotary embedding of every key, but the keys in a cache do not change. */
static int check_rope(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    if (m->rope.kind != ROPE_DYNAMIC || s->data.seq_len <= m->max_pos) return 0;
    return err_field(e, ERR_UNSUPPORTED, "data.seq_len",
                     "data.seq_len %lld is longer than max_position_embeddings %lld, where "
                     "rope_type \"dynamic\" changes with every token, which a %s job cannot have: "
                     "lower data.seq_len to it",
                     (long long)s->data.seq_len, (long long)m->max_pos, spec_kind_name(s->kind));
}

/* Checks the sizes of a serve job's cache: a page has CACHE_PAGE tokens, and the longest sequence
 * fits. */
static int check_cache(const struct job_spec *s, struct err *e)
{
    const int64_t cache = s->serve.cache_tokens, piece = s->serve.prefill_tokens, S = CACHE_PAGE,
                  least = (s->data.seq_len + S - 1) / S * S;
    if (s->kind != JOB_SERVE) return 0;
    if (cache % S)
        return err_field(e, ERR_INVALID, "serve.cache_tokens",
                         "serve.cache_tokens %lld is not a multiple of %lld: make it %lld",
                         (long long)cache, (long long)S, (long long)((cache + S - 1) / S * S));
    if (cache && cache < least)
        return err_field(e, ERR_INVALID, "serve.cache_tokens",
                         "serve.cache_tokens %lld holds less than one sequence of data.seq_len "
                         "%lld: make it at least %lld, or lower data.seq_len",
                         (long long)cache, (long long)s->data.seq_len, (long long)least);
    if (piece % S)
        return err_field(e, ERR_INVALID, "serve.prefill_tokens",
                         "serve.prefill_tokens %lld is not a multiple of %lld: make it %lld",
                         (long long)piece, (long long)S, (long long)((piece + S - 1) / S * S));
    return 0;
}

/* Refuses a strategy of a serve job whose sequences lie in pages, because pages lie over the ring
 * in one way. */
static int check_pages(const struct job_spec *s, struct err *e)
{
    const int32_t x = s->parallel.strategy;
    if (s->kind != JOB_SERVE || !rules_known(s) || !paged_fits(&s->model.shape)) return 0;
    /* the strategies that family_check() itself sets */
    if (x == STRATEGY_AUTO || x == STRATEGY_RSA || x == STRATEGY_LASP || x == STRATEGY_LOCAL)
        return 0;
    return err_field(e, ERR_UNSUPPORTED, "parallel.strategy",
                     "parallel.strategy \"%s\": a serve job keeps keys and values in pages, which "
                     "lie over the ring in one way: leave it out",
                     strategy_word((enum strategy_id)x));
}

int rules_generate(struct job_spec *s, struct err *e)
{
    const bool samples = rules_known(s) && family_diffusion(&s->model.shape);
    if (samples && s->kind == JOB_SERVE)
        return err_field(e, ERR_UNSUPPORTED, "kind",
                         "a serve job answers with text, and a diffusion model makes latents: "
                         "submit its requests as a generate job");
    if (samples) return check_samples(s, e);
    if (rules_known(s) && (check_heeded(s, false, e) || check_rope(s, e))) return -1;
    /* If no node has described the model yet, a job with sizes of latents (data.frames) is a job
     * of a diffusion model. */
    if ((rules_known(s) || !s->data.frames) && check_room(s, e)) return -1;
    if (check_prompts(s, e) || check_sampling(s, e) || check_cache(s, e) || check_pages(s, e))
        return -1;
    return rules_together(s) > 1 ? rules_batch(s, e) : 0;
}
