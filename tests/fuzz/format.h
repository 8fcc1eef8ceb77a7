/* format.h: reads any bytes as a file of one format, up to and including the encoder. An accepted
 * file must give documents whose sizes add up. Used by fuzz_llmc.c, fuzz_npy.c, fuzz_megatron.c,
 * fuzz_jsonl.c. */
#ifndef SEQD_FUZZ_FORMAT_H
#define SEQD_FUZZ_FORMAT_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/data/format.h"

enum { FUZZ_VOCAB = 70000 };

static char fuzz_dir[64];
static struct job_spec fuzz_spec; /* its model reads bytes, unless the fuzzer sets a model */

static void fuzz_end(void)
{
    file_remove(fuzz_dir, NULL);
}

static void fuzz_put(const char *name, const void *data, size_t size)
{
    char path[128];
    if (!fuzz_dir[0]) {
        snprintf(fuzz_dir, sizeof fuzz_dir, "/dev/shm/seqd-fuzz-%d", (int)getpid());
        mkdir(fuzz_dir, 0700);
        atexit(fuzz_end);
    }
    snprintf(path, sizeof path, "%s/%s", fuzz_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    close(fd);
}

static void fuzz_check(const struct encode *c, const struct meta *m, size_t size)
{
    assert(c->n_tokens == c->document_start && m->stats.n_tokens == c->n_tokens);
    assert(m->stats.n_documents == c->n_documents && c->n_documents <= c->n_tokens);
    assert(c->out[PART_TOKENS].size == c->width * c->n_tokens);
    assert(c->out[PART_DOCUMENTS].size == 8 * c->n_documents);
    assert(c->out[PART_ORIGINS].size == 24 * c->n_documents);
    assert(m->stats.n_masked <= c->n_tokens && m->stats.max_token < FUZZ_VOCAB);
    /* a byte of text may be two ids, its own and 256 */
    assert((int64_t)size >= c->n_tokens / 2 - 1);
}

/* Reads the file `name` that fuzz_put has made. A token has 2 bytes, or 4 bytes if an id does not
 * fit into 2. */
static void fuzz_format(int (*read_it)(struct format_in *, struct err *), const char *name,
                        size_t size, int64_t eod, int loss_on)
{
    static struct meta m;
    static struct encode c;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir, name);
    for (int width = 2; width <= 4; width += 2) {
        struct err e = {0};
        struct intake into = {0};
        struct reader r;
        memset(&m, 0, sizeof m);
        sha256_init(&into.sha);
        if (reader_open(&r, fuzz_dir, path, &into, &e) < 0) abort();
        if (encode_open(&c, fuzz_dir, width, FUZZ_VOCAB, &m, &e) < 0) abort();
        encode_file(&c, SET_TRAIN, 0, 0);
        struct format_in in = {.r = &r,
                               .c = &c,
                               .root = fuzz_dir,
                               .text_key = "text",
                               .eod = eod,
                               .loss_on = loss_on,
                               .spec = &fuzz_spec};
        int rc = read_it(&in, &e);
        assert(rc == 0 ? !e.code : e.code && e.text[0]);
        if (rc == 0) fuzz_check(&c, &m, size);
        reader_close(&r);
        encode_abort(&c);
        if (!c.too_wide) break;
        assert(width == 2);
    }
}

#endif
