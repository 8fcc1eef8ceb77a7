/* sources: daemon/upload/upload_list.c api/core/record.c api/core/jread.c api/core/jwrite.c api/core/beneath.c api/core/err.c
 * Reads the list of an upload. The paths of an accepted list must be beneath the directory of the
 * upload. Writing the list and reading the text must give the same list. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/beneath.h"
#include "daemon/upload/upload_list.h"

static void check(const struct upload_list *l)
{
    int64_t size = 0;
    for (int i = 0; i < l->n; i++) {
        if (!beneath_name_good(l->file[i].path) || l->file[i].size < 0) abort();
        if (strlen(l->file[i].sha256) != SHA256_HEX - 1) abort();
        size += l->file[i].size;
    }
    if (l->n < 1 || l->n > UPLOAD_FILES || size != l->size || size > UPLOAD_MAX) abort();
    if (strchr(l->name, '/') || l->name[0] == '.' || !l->name[0]) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct upload_list *l, *back;
    struct err e;
    if (!l) l = upload_list_new(), back = upload_list_new();
    for (int stored = 0; stored < 2; stored++) {
        if (upload_list_read(l, (const char *)data, size, stored, &e)) {
            if (!e.text[0]) abort();
            continue;
        }
        check(l);
        const size_t room = upload_list_room(l);
        char *text = malloc(room);
        const int64_t n = text ? upload_list_write(l, text, room) : -1;
        if (n < 0 || upload_list_read(back, text, (size_t)n, true, &e)) abort();
        if (back->n != l->n || back->size != l->size || strcmp(back->name, l->name) ||
            memcmp(back->file, l->file, (size_t)l->n * sizeof *l->file))
            abort();
        free(text);
    }
    return 0;
}
