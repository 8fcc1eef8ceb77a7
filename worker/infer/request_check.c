/* request_check.c: checks the rules that concern several members of a request, when all are
 * read. */
#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/infer/request_body.h"
#include "worker/plan/plan.h"

/* Tells how to change data.seq_len for a request of `need` tokens. */
static void say_length(const struct job_spec *s, int64_t need, int64_t wanted, char out[128])
{
    const int64_t most = plan_positions(s);
    if (need > most)
        snprintf(out, 128, "the model itself ends at %lld positions: ", (long long)most);
    else
        snprintf(out, 128, "raise data.seq_len to %lld, or ",
                 (long long)(wanted < most ? wanted : most));
}

/* Refuses a max_tokens over the job's. `need` counts the prompt, too. */
static int refuse_max_tokens(struct request_body *b, int64_t need)
{
    const int64_t positions = plan_positions(b->spec);
    char how[128] = "raise it";
    if (need > positions)
        snprintf(how, sizeof how, "the model itself ends at %lld positions: lower max_tokens",
                 (long long)positions);
    else if (need > b->spec->data.seq_len)
        strcpy(how, "raise it, and data.seq_len");
    return err_field(b->e, ERR_TOO_LARGE, "max_tokens",
                     "max_tokens %lld: this job was planned for sampling.max_tokens %lld: %s",
                     (long long)b->r->max_tokens, (long long)b->spec->sampling.max_tokens, how);
}

/* Refuses a request whose prompt and answer together would be longer than the job allows. The
 * error names the fields to change. */
static int check_room(struct request_body *b, const char *prompt)
{
    const int64_t S = b->spec->data.seq_len, most = b->spec->sampling.max_tokens,
                  n = b->r->n_tokens, max = b->r->max_tokens, need = n + max;
    const int64_t usual = (int64_t)spec_field("sampling.max_tokens")->fallback, /* the default */
        longer = !b->length && most == S - 1 && most < usual ? n + usual : need,
                  least = b->r->echo ? 0 : 1; /* of max_tokens */
    const char *less = n + least > S             ? "shorten the prompt"
                       : !b->length && n + 1 > S ? "give the request max_tokens 0"
                       : b->length               ? "lower max_tokens"
                                   : "lower sampling.max_tokens, or give the request a max_tokens";
    if (max > most) return refuse_max_tokens(b, need);
    if (need <= S) return 0;
    char length[128];
    say_length(b->spec, need, longer, length);
    b->r->too_long = true;
    return err_field(b->e, ERR_TOO_LARGE, prompt,
                     "the prompt of %lld tokens and %s %lld are %lld together: the job was planned "
                     "for data.seq_len %lld: %s%s",
                     (long long)n, b->length ? "max_tokens" : "sampling.max_tokens", (long long)max,
                     (long long)need, (long long)S, length, less);
}

/* Makes the answer of a served request that says no length as long as the sequence allows. */
static void leave_room(struct request_body *b)
{
    struct request *r = b->r;
    const int64_t left = b->spec->data.seq_len - r->n_tokens;
    if (r->serves && !b->length && left > 0 && r->max_tokens > left) r->max_tokens = left;
}

/* Checks the rules of members that only served requests have, or whose range is smaller there. */
static int check_served(struct request_body *b)
{
    const struct request *r = b->r;
    if (b->options && !r->stream)
        return err_field(b->e, ERR_INVALID, "stream_options",
                         "stream_options without stream: say \"stream\": true");
    if (r->serves && r->n > REQUEST_SERVED_N)
        return err_field(b->e, ERR_TOO_LARGE, "n",
                         "n is %lld: a serve job gives at most %d continuations, ask in parts",
                         (long long)r->n, REQUEST_SERVED_N);
    return 0;
}

/* Checks the members that would lengthen a text beyond the end of its value. They may come from the
 * job. */
static int check_grammar(struct request_body *b)
{
    const struct request *r = b->r;
    if (!r->grammar || (!r->min_tokens && !r->ignore_eos)) return 0;
    return err_field(b->e, ERR_INVALID, r->min_tokens ? "min_tokens" : "ignore_eos",
                     "%s does not go with response_format or a required call, whose text ends when "
                     "its value is complete: give the request %s",
                     r->min_tokens ? "min_tokens" : "ignore_eos",
                     r->min_tokens ? "min_tokens 0" : "ignore_eos false");
}

int request_body_check(struct request_body *b)
{
    const struct request *r = b->r;
    const int64_t V = b->spec->model.shape.vocab;
    const char *const prompt = r->is_chat ? "messages" : "prompt";
    if (!r->n_tokens)
        return err_field(b->e, ERR_INVALID, prompt, "%s is missing or empty: give one %s", prompt,
                         r->is_chat ? "message" : "token");
    leave_room(b);
    if (check_room(b, prompt) || check_served(b) || check_grammar(b)) return -1;
    if (!r->max_tokens && !r->echo)
        return err_field(b->e, ERR_INVALID, "max_tokens", "max_tokens 0 asks for nothing");
    if (r->min_tokens > r->max_tokens)
        return err_field(b->e, ERR_INVALID, "min_tokens", "min_tokens %lld is over max_tokens %lld",
                         (long long)r->min_tokens, (long long)r->max_tokens);
    if (r->sample.top_k > V)
        return err_field(b->e, ERR_INVALID, "top_k", "top_k %lld: the vocabulary has %lld",
                         (long long)r->sample.top_k, (long long)V);
    if (b->best_of >= 0 && b->best_of != r->n)
        return err_field(b->e, ERR_UNSUPPORTED, "best_of", "best_of must be n, %lld",
                         (long long)r->n);
    if (b->top_logprobs >= 0 && r->logprobs < 0)
        return err_field(b->e, ERR_INVALID, "top_logprobs",
                         "top_logprobs without logprobs: say \"logprobs\": true");
    return 0;
}
