/* result.c: writes the result of a job in a line, with one function for each kind of job. */
#include "client/result.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "client/text.h"

/* Appends to the text in out, which is cut if it is longer than out. */
__attribute__((format(printf, 3, 4))) static void add(char *out, size_t size, const char *format,
                                                      ...)
{
    const size_t n = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + n, size - n, format, args);
    va_end(args);
}

static void of_train(const struct jv *job, char *out, size_t size)
{
    char rate[TEXT_SHORT];
    const double eval = jv_num(job, "result.eval.loss", NAN);
    const double right = jv_num(job, "result.eval.preferences.accuracy", NAN);
    const double lowest = jv_num(job, "result.ended_early.loss", NAN);
    const double tokens_s = jv_num(job, "last_metrics.tokens_s", NAN);
    add(out, size, "loss %.4f", jv_num(job, "result.loss", NAN));
    if (isfinite(eval)) add(out, size, ", evaluation %.4f", eval);
    if (isfinite(right)) add(out, size, ", accuracy %.3g", right);
    if (jv_get(job, "result.ended_early"))
        add(out, size, ", ended early at step %lld", (long long)jv_int(job, "result.steps", 0));
    if (isfinite(lowest))
        add(out, size, ", lowest %.4f at %lld", lowest,
            (long long)jv_int(job, "result.ended_early.step", 0));
    if (isfinite(tokens_s)) add(out, size, ", %s tokens/s", text_count(rate, tokens_s));
}

static void of_score(const struct jv *job, char *out, size_t size)
{
    const double nll = jv_num(job, "result.nll", NAN), n = jv_num(job, "result.tokens", 0);
    const double bits = jv_num(job, "result.bits_per_byte", NAN);
    add(out, size, "loss %.4f, perplexity %.4g", n > 0 ? nll / n : NAN,
        jv_num(job, "result.ppl", NAN));
    if (isfinite(bits)) add(out, size, ", %.4f bits per byte", bits);
}

/* Writes a single answer on one line. If there are several answers or samples, writes their number
 * and the number of refused requests. */
static void of_generate(const struct jv *job, char *out, size_t size)
{
    const char *text = jv_str(job, "result.text", NULL);
    const long long n = (long long)jv_int(job, "result.prompts", 1);
    const long long samples = (long long)jv_int(job, "result.samples", -1);
    const long long refused = (long long)jv_int(job, "result.refused", 0);
    if (refused > 0)
        snprintf(out, size, "%lld %s, %lld refused: see errors.jsonl",
                 samples >= 0 ? samples : n - refused, samples >= 0 ? "samples" : "answers",
                 refused);
    else if (samples >= 0)
        snprintf(out, size, "%lld samples", samples);
    else if (n == 1 && text)
        text_safe(out, size, text);
    else
        snprintf(out, size, "%lld answers", n);
}

static void of_embed(const struct jv *job, char *out, size_t size)
{
    snprintf(out, size, "%lld vectors of %lld numbers",
             (long long)jv_int(job, "result.documents", 0),
             (long long)jv_int(job, "result.dimensions", 0));
}

static void of_verify(const struct jv *job, char *out, size_t size)
{
    snprintf(out, size, "%lld ranks %s 1 rank over %lld tokens",
             (long long)jv_int(job, "result.ranks", 0),
             jv_bool(job, "result.equal", false) ? "==" : "!=",
             (long long)jv_int(job, "result.tokens", 0));
}

static void of_merge(const struct jv *job, char *out, size_t size)
{
    char whole[TEXT_SHORT], added[TEXT_SHORT];
    snprintf(out, size, "%s parameters, with %s of an adapter merged into them",
             text_count(whole, jv_num(job, "result.parameters", 0)),
             text_count(added, jv_num(job, "result.adapter_parameters", 0)));
}

static void of_serve(const struct jv *job, char *out, size_t size)
{
    char tokens[TEXT_SHORT];
    const long long refused = (long long)jv_int(job, "result.refused", 0);
    add(out, size, "%lld answers, %s tokens", (long long)jv_int(job, "result.requests", 0),
        text_count(tokens, jv_num(job, "result.n_tokens", 0)));
    if (refused > 0) add(out, size, ", %lld refused", refused);
}

char *result_line(const struct jv *job, char *out, size_t size)
{
    static const struct {
        const char *kind;
        void (*write)(const struct jv *, char *, size_t);
    } kinds[] = {{"train", of_train}, {"score", of_score},   {"generate", of_generate},
                 {"embed", of_embed}, {"verify", of_verify}, {"merge", of_merge},
                 {"serve", of_serve}};
    *out = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (jv_is_object(jv_get(job, "result")) && !strcmp(jv_str(job, "kind", ""), kinds[i].kind))
            kinds[i].write(job, out, size);
    return out;
}

const char *result_error(const struct jv *job)
{
    const char *state = jv_str(job, "state", "");
    const bool again = !strcmp(state, "starting") || !strcmp(state, "running");
    return again ? NULL : jv_str(job, "error.text", NULL);
}

char *result_serving(const struct jv *job, char *out, size_t size)
{
    char rate[TEXT_SHORT];
    const double tokens_s = jv_num(job, "serving.tokens_s", 0);
    const double first_s = jv_num(job, "serving.waits.first_token.p50_s", NAN);
    const double token_s = jv_num(job, "serving.waits.token.p50_s", NAN);
    const char *until = jv_str(job, "drains_until", NULL);
    *out = 0;
    if (until && strlen(until) >= strlen("2026-11-30T21:00:00")) {
        add(out, size, "draining, %lld open, until %.8s UTC",
            (long long)jv_int(job, "serving.open", 0), until + strlen("2026-11-30T"));
        return out;
    }
    if (strcmp(jv_str(job, "state", ""), "running") || !jv_is_object(jv_get(job, "serving")))
        return out;
    add(out, size, "%lld open, %lld answered", (long long)jv_int(job, "serving.open", 0),
        (long long)jv_int(job, "serving.requests", 0));
    if (tokens_s > 0) add(out, size, ", %s tokens/s", text_count(rate, tokens_s));
    if (isfinite(first_s)) add(out, size, ", first token %.3g s", first_s);
    if (isfinite(token_s)) add(out, size, ", each %.3g ms", token_s * 1000);
    return out;
}

char *result_why(const struct jv *job, char *out, size_t size)
{
    const char *node = jv_str(job, "away.node", NULL), *error = result_error(job);
    *out = 0;
    if (node)
        add(out, size, "away: node %s, since %s", node, jv_str(job, "away.since", "?"));
    else if (!strcmp(jv_str(job, "state", ""), "succeeded"))
        result_line(job, out, size);
    else if (jv_str(job, "drains_until", NULL))
        result_serving(job, out, size);
    else
        add(out, size, "%s", error ? error : jv_str(job, "reason.text", ""));
    if (!*out) result_serving(job, out, size);
    return out;
}
