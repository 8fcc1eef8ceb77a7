/* sources: api/core/manifest.c api/core/record.c api/core/jread.c api/core/jwrite.c api/core/beneath.c api/core/err.c api/core/file.c api/core/sha256.c daemon/http/tar.c
 * Reads a checkpoint's manifest as a node may send it, and makes the tar of its files. The digest
 * of the manifest is corrected first. Every name must be beneath the checkpoint's directory, and
 * it must be possible to compute the bytes of the tar at every position. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/beneath.h"
#include "api/core/manifest.h"
#include "daemon/http/tar.h"

static void check_tar(const struct manifest *m)
{
    static struct tar_file file[MANIFEST_FILES];
    static struct tar_run run;
    for (int i = 0; i < m->n_files; i++)
        file[i] = (struct tar_file){m->file[i].path, m->file[i].size};
    const struct tar t = {"step-00000001", file, m->n_files};
    const int64_t size = tar_size(&t);
    int n_runs = 0;
    for (int64_t at = 0; at < size; at += run.size) {
        tar_at(&t, at, &run);
        if (run.size < 1 || run.size > size - at || ++n_runs > 3 * MANIFEST_FILES + 1) abort();
        if (run.file >= 0 && run.offset + run.size != m->file[run.file].size) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct manifest m;
    char hex[SHA256_HEX];
    struct sha256 sha;
    struct err e;
    char *text = malloc(size + 128);
    if (!text) abort();
    memcpy(text, data, size);
    sha256_init(&sha);
    sha256_add(&sha, data, size);
    sha256_hex(&sha, hex);
    const int tail = sprintf(text + size, ",\"sha256\":\"%s\"}", hex);
    if (!manifest_parse(&m, text, size + (size_t)tail, "m", &e)) {
        for (int i = 0; i < m.n_files; i++)
            if (!beneath_name_good(m.file[i].path)) abort();
        check_tar(&m);
    } else if (!e.text[0]) {
        abort();
    }
    free(text);
    return 0;
}
