/* sources: client/yaml.c client/json.c api/core/err.c api/core/jwrite.c -lyaml -ljansson
 * Reads specs in YAML. A text must either be accepted, or be refused with a sentence that has the
 * position of the error. Printing an accepted spec and reading the printed text must give the same
 * spec. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "client/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    char *out = NULL;
    size_t n = 0;
    struct jv *v = yaml_parse((const char *)data, size, &e);
    if (!v) {
        if (!strstr(e.text, "line ") && e.code != ERR_TOO_LARGE) abort();
        return 0;
    }
    FILE *f = open_memstream(&out, &n);
    yaml_print(f, v, data[0] & 1);
    fclose(f);
    struct jv *again = yaml_parse(out, n, &e);
    if (!again && e.code != ERR_TOO_LARGE) abort();
    char *want = jv_dump(v, JV_COMPACT), *got = again ? jv_dump(again, JV_COMPACT) : NULL;
    if (got && strcmp(want, got)) abort();
    free(want);
    free(got);
    free(out);
    jv_free(v);
    jv_free(again);
    return 0;
}
