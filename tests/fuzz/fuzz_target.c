/* sources: daemon/target.c daemon/guard.c api/core/jwrite.c
 * Request targets and header guards: nothing decoded holds a control byte or climbs out. First line
 * the target, the others headers. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/guard.h"
#include "daemon/target.h"

static void check_text(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct target t;
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    char *line = strchr(text, '\n');
    if (line) *line++ = 0;
    if (!target_parse(&t, text)) {
        if (t.text[0] != '/' || strstr(t.text, "/../")) abort();
        check_text(t.text);
        for (int i = 0; i < t.n_params; i++) {
            check_text(t.name[i]);
            check_text(t.value[i]);
            if (!target_query(&t, t.name[i])) abort();
        }
    }
    struct guard g = {.local_only = true};
    for (char *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *colon = strchr(line, ':');
        if (!colon) continue;
        *colon = 0;
        guard_header(&g, line, colon + 1);
    }
    if (!guard_check(&g) && (g.n_host != 1 || g.n_length + g.n_encoding > 1)) abort();
    free(text);
    return 0;
}
