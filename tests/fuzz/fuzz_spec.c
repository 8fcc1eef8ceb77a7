/* sources: worker/family/[a-z]*.c worker/program/[a-z]*.c worker/plan/[a-z]*.c daemon/spec/[a-z]*.c api/core/[a-z]*.c -ljansson worker/gguf/[a-z]*.c
 * Reads request bodies. Any body must either be refused with a sentence, or become a spec. Two
 * calls of job_check must have the same result for the spec. Writing the spec and reading the text
 * must give the same spec. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "daemon/spec/json.h"
#include "worker/plan/check.h"

/* Reads the body of a plan, which may have "hardware". The body must either be refused with a
 * sentence, or describe hardware that the check accepts. */
static void plan_body(const uint8_t *data, size_t size, struct job_spec *s)
{
    struct hardware h;
    struct err e = {0};
    if (json_plan_read((const char *)data, size, s, &h, &e)) {
        if (!*e.text) abort();
    } else if (h.given && (hardware_check(&h, &e) || h.devices < 1 || h.devices % h.nodes)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct job_spec a, b;
    plan_body(data, size, &b);
    static char out[JSON_SPEC_SIZE], again[JSON_SPEC_SIZE];
    struct err e;
    if (json_spec_read((const char *)data, size, JSON_FOR_PEOPLE, &a, &e) || family_check(&a, &e)) {
        if (!*e.text) abort();
        return 0;
    }
    b = a;
    if (family_check(&b, &e) || memcmp(&a, &b, sizeof a)) abort();
    for (int form = 0; form < 2; form++) {
        int64_t n = json_spec_write(&a, form, out, sizeof out);
        if (n <= 0 || json_spec_read(out, (size_t)n, form, &b, &e) || family_check(&b, &e)) abort();
        if (json_spec_write(&b, form, again, sizeof again) != n || memcmp(out, again, (size_t)n))
            abort();
    }
    return 0;
}
