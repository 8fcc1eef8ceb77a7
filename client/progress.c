/* progress.c: formats progress, rate and time left from a job's JSON, and decides when a new line
 * must be printed. */
#include "client/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

char *progress_percent(char out[TEXT_SHORT], const struct jv *job)
{
    const double fraction = jv_num(job, "progress.fraction", -1);
    snprintf(out, TEXT_SHORT, "-");
    /* Round down, because 100% means done. */
    if (fraction >= 0 && fraction <= 1) snprintf(out, TEXT_SHORT, "%d%%", (int)(fraction * 100));
    return out;
}

/* Writes a slow rate as the time of a unit, because "12.5 s/request" is easier to read than "0.08
 * requests/s". */
static void slow_rate(char out[TEXT_SHORT], const char *unit, double rate)
{
    /* the last letter of the unit, the plural s, is not printed */
    const int n = (int)strlen(unit);
    snprintf(out, TEXT_SHORT, "%.1f s/%.*s", 1 / rate, n > 0 ? n - 1 : 0, unit);
}

char *progress_rate(char out[TEXT_SHORT], const struct jv *job)
{
    char number[TEXT_SHORT], unit[16];
    const double tokens = jv_num(job, "progress.tokens_s", 0);
    const double rate = jv_num(job, "progress.rate", 0);
    text_safe(unit, sizeof unit, jv_str(job, "progress.unit", ""));
    if (tokens > 0)
        snprintf(out, TEXT_SHORT, "%.20s tokens/s", text_count(number, tokens));
    else if (rate > 0 && !strcmp(unit, "bytes"))
        snprintf(out, TEXT_SHORT, "%.20s/s", text_bytes(number, (int64_t)rate));
    else if (rate >= 1)
        snprintf(out, TEXT_SHORT, "%.1f %s/s", rate, unit);
    else if (rate > 0)
        slow_rate(out, unit, rate);
    else
        snprintf(out, TEXT_SHORT, "-");
    return out;
}

char *progress_eta(char out[TEXT_SHORT], const struct jv *job)
{
    const double s = jv_num(job, "progress.eta_s", -1);
    if (s >= 0) return text_duration(out, s);
    snprintf(out, TEXT_SHORT, "-");
    return out;
}

static void amount(char *out, size_t size, const char *unit, double n)
{
    char text[TEXT_SHORT];
    const bool bytes = !strcmp(unit, "bytes");
    snprintf(out, size, "%s", bytes ? text_bytes(text, (int64_t)n) : text_count(text, n));
}

/* Returns a name for the work that a running job does before its first unit and after its last
 * unit. Returns NULL while units are being counted, or if the job does not run. */
static const char *silent(const struct jv *job)
{
    const bool runs = !strcmp(jv_str(job, "phase", ""), "running");
    /* samples are counted before the first step */
    const bool samples = !strcmp(jv_str(job, "progress.unit", ""), "samples");
    const bool counts = jv_is_object(jv_get(job, "progress")) && !samples;
    if (!runs) return NULL;
    if (counts) return jv_num(job, "progress.fraction", 0) >= 1 ? "writes what it made" : NULL;
    if (jv_bool(job, "spec.verify.first_step", false)) return "proves its first step";
    if (jv_bool(job, "spec.eval.at_start", false)) return "evaluates before its first step";
    return samples ? "takes its first step" : "reads its model and data";
}

char *progress_line(char *out, size_t size, const struct jv *job)
{
    char percent[TEXT_SHORT], rate[TEXT_SHORT], eta[TEXT_SHORT], unit[16];
    char done[TEXT_SHORT], total[TEXT_SHORT];
    const double most = jv_num(job, "progress.total", -1);
    size_t n = 0;
    const char *now = silent(job);
    *out = 0;
    if (!jv_is_object(jv_get(job, "progress"))) {
        snprintf(out, size, "%s", now ? now : "");
        return out;
    }
    text_safe(unit, sizeof unit, jv_str(job, "progress.unit", ""));
    amount(done, sizeof done, unit, jv_num(job, "progress.done", 0));
    amount(total, sizeof total, unit, most);
    if (most > 0)
        n = (size_t)snprintf(out, size, "%s  %s of %s", progress_percent(percent, job), done,
                             total);
    else
        n = (size_t)snprintf(out, size, "%s", done);
    if (n < size && strcmp(unit, "bytes")) n += (size_t)snprintf(out + n, size - n, " %s", unit);
    if (n < size && *progress_rate(rate, job) != '-')
        n += (size_t)snprintf(out + n, size - n, "  %s", rate);
    if (n < size && now)
        n += (size_t)snprintf(out + n, size - n, "  %s", now);
    else if (n < size && *progress_eta(eta, job) != '-')
        n += (size_t)snprintf(out + n, size - n, "  ETA %s", eta);
    const double loss = jv_num(job, "last_metrics.loss", NAN);
    if (n < size && isfinite(loss)) snprintf(out + n, size - n, "  loss %.4f", loss);
    return out;
}

bool progress_due(struct progress_said *s, const struct jv *job, int64_t now_ms)
{
    char phase[sizeof s->phase];
    const bool counts = jv_is_object(jv_get(job, "progress"));
    const bool times = jv_num(job, "progress.eta_s", -1) >= 0;
    const double fraction = jv_num(job, "progress.fraction", 0);
    text_safe(phase, sizeof phase, jv_str(job, "phase", ""));
    const bool other = strcmp(phase, s->phase) != 0;
    if (!other && !(counts && !s->counted) && !(times && !s->timed) &&
        fraction - s->fraction < PROGRESS_SAY_FRACTION &&
        (!counts || now_ms - s->at_ms < PROGRESS_SAY_MS))
        return false;
    *s = (struct progress_said){
        .fraction = fraction, .counted = counts, .timed = times, .at_ms = now_ms};
    memcpy(s->phase, phase, sizeof phase);
    return true;
}
