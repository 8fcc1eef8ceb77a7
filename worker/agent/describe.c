/* describe.c: copies the one JSON object of the printed text, without interpreting it. */
#include "worker/agent/describe.h"

#include <string.h>
#include "api/core/jread.h"

int describe_take(const char *json, size_t size, char out[SPEC_CONFIG_SIZE], struct err *e)
{
    struct jread j;
    jread_init(&j, json, size);
    if (jread_next(&j) != J_OBJECT)
        return err_set(e, ERR_PEER, "seqrank --describe printed no object");
    const bool whole = jread_skip(&j) == 0;
    const char *object_end = j.p;
    if (!whole || jread_next(&j) != J_END)
        return err_set(e, ERR_PEER, "seqrank --describe: %s", j.err.text);
    size = (size_t)(object_end - json);
    if (size >= SPEC_CONFIG_SIZE)
        return err_set(e, ERR_PEER, "seqrank --describe printed %zu bytes, at most %d", size,
                       SPEC_CONFIG_SIZE - 1);
    memcpy(out, json, size);
    out[size] = 0;
    return 0;
}
