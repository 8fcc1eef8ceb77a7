/* tokenize.c: a tokenizer.json for scripts: fuzz_tokenizer.py compares it with the Python package.
 *
 *     tokenize FILE       requests on stdin, answers on stdout; numbers are little-endian int32
 *
 * 'E' n text     ids without the post-processor's   -> n ids[n] 'S' n text     ids with them
 * -> n ids[n] 'D' n ids[n]   text                               -> n text 'K' n ids[n]   text
 * without special tokens        -> n text n is -1 where the request failed, and the sentence
 * follows as n text. Decoding is done at once and id by id; it ends the program when the two
 * differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "worker/text/tokenizer.h"

static void *need(void *p)
{
    if (!p) abort();
    return p;
}

static int32_t get_n(void)
{
    int32_t n;
    return fread(&n, sizeof n, 1, stdin) == 1 ? n : -1;
}

static void put(const void *p, int64_t n, size_t size)
{
    const int32_t count = (int32_t)n;
    fwrite(&count, sizeof count, 1, stdout);
    if (n) fwrite(p, size, (size_t)n, stdout);
}

static void failed(const struct err *e)
{
    const int32_t none = -1;
    fwrite(&none, sizeof none, 1, stdout);
    put(e->text, (int64_t)strlen(e->text), 1);
}

static void encode(struct tokenizer *t, const char *s, int32_t n, bool special)
{
    struct tokens ids = {.spans = n % 2};
    struct err e = {0};
    if (tokenizer_encode(t, s, (size_t)n, special, &ids, &e) < 0)
        failed(&e);
    else
        put(ids.id, ids.n, sizeof *ids.id);
    for (int64_t i = 0; ids.spans && i < ids.n; i++) {
        if (ids.begin[i] > ids.end[i] || ids.begin[i] < 0 || ids.end[i] > n) abort();
    }
    text_tokens_fini(&ids);
}

static void spans(struct tokenizer *t, const char *s, int32_t n)
{
    struct tokens ids = {.spans = true};
    struct err e = {0};
    if (tokenizer_encode(t, s, (size_t)n, false, &ids, &e) < 0) return failed(&e);
    int32_t *at = need(malloc(2 * (size_t)ids.n * sizeof *at + 1));
    for (int64_t i = 0; i < ids.n; i++) {
        at[2 * i] = (int32_t)ids.begin[i];
        at[2 * i + 1] = (int32_t)ids.end[i];
    }
    put(at, 2 * ids.n, sizeof *at);
    free(at);
    text_tokens_fini(&ids);
}

static void decode(struct tokenizer *t, const int32_t *id, int32_t n, bool skip)
{
    struct text at_once = {0}, by_id = {0};
    struct err e = {0};
    struct detokenizer *d = need(detokenizer_create(t, skip));
    if (tokenizer_decode(t, id, n, skip, &at_once, &e) < 0) abort();
    for (int32_t i = 0; i < n; i++) {
        if (detokenizer_put(d, id[i], &by_id, &e) < 0) abort();
        /* Ends with a whole character: the next byte, if any, begins one. */
        if (by_id.n < at_once.n && (at_once.data[by_id.n] & 0xc0) == 0x80) abort();
    }
    if (detokenizer_finish(d, &by_id, &e) < 0) abort();
    if (at_once.n != by_id.n || (by_id.n && memcmp(at_once.data, by_id.data, (size_t)by_id.n)))
        abort();
    put(at_once.data, at_once.n, 1);
    detokenizer_destroy(d);
    text_fini(&at_once);
    text_fini(&by_id);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    size_t size;
    if (argc != 2) return fprintf(stderr, "usage: tokenize tokenizer.json\n"), 2;
    char *file = file_read(argv[1], TOKENIZER_FILE_SIZE, &size, &e);
    struct tokenizer *t = file ? tokenizer_open_text(file, size, &e) : NULL;
    free(file);
    if (!t) return fprintf(stderr, "%s: %s\n", argv[1], e.text), 1;
    for (int kind; (kind = getchar()) != EOF; fflush(stdout)) {
        const int32_t n = get_n();
        const bool ids = kind == 'D' || kind == 'K';
        const size_t bytes = (size_t)n * (ids ? 4 : 1);
        char *s = need(malloc(bytes + 4));
        if (n < 0 || fread(s, 1, bytes, stdin) != bytes) abort();
        if (kind == 'O')
            spans(t, s, n);
        else if (!ids)
            encode(t, s, n, kind == 'S');
        else
            decode(t, (int32_t *)(void *)s, n, kind == 'K');
        free(s);
    }
    tokenizer_destroy(t);
    return 0;
}
