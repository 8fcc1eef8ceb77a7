/* rank.c: names the purposes of messages and the units of progress, and checks the ids of prepared
 * data. */
#include "api/core/rank.h"

#include <signal.h>
#include <string.h>
#include "api/core/assert.h"

static const char *const purpose_names[PURPOSE_N] = {
    [PURPOSE_RING_KV] = "ring_kv", [PURPOSE_RING_DKV] = "ring_dkv", [PURPOSE_GRAD] = "grad",
    [PURPOSE_PARAM] = "param",     [PURPOSE_LOSS] = "loss",         [PURPOSE_DECODE] = "decode",
    [PURPOSE_VERIFY] = "verify",   [PURPOSE_CONTROL] = "control",   [PURPOSE_STATE] = "state",
    [PURPOSE_DSTATE] = "d_state",  [PURPOSE_SWITCH] = "switch",     [PURPOSE_HEADS] = "heads",
    [PURPOSE_TENSOR] = "tensor",   [PURPOSE_STAGE] = "stage",
};

const char *purpose_name(int purpose)
{
    assert(purpose >= 0 && purpose < PURPOSE_N);
    return purpose_names[purpose];
}

const char *progress_unit_name(int unit)
{
    static const char *const names[PROGRESS_UNIT_N] = {
        [PROGRESS_STEPS] = "steps",       [PROGRESS_TOKENS] = "tokens",
        [PROGRESS_REQUESTS] = "requests", [PROGRESS_BYTES] = "bytes",
        [PROGRESS_SAMPLES] = "samples",
    };
    assert(unit >= 0 && unit < PROGRESS_UNIT_N);
    return names[unit];
}

bool rank_prepared_id_good(const char *id)
{
    return *id && !id[strspn(id, "0123456789abcdef")];
}

bool rank_signal_own(int signo)
{
    return signo == SIGSEGV || signo == SIGBUS || signo == SIGILL || signo == SIGFPE ||
           signo == SIGABRT;
}
