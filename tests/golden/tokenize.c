/* tokenize.c: encodes and decodes with a tokenizer.json. fuzz_tokenizer.py compares the results
 * with those of the Python package tokenizers.
 *
 *     tokenize FILE       reads requests from stdin and writes answers to stdout
 *
 *   request        answer
 *   'E' n text     n ids[n], without the ids that the post-processor adds
 *   'S' n text     n ids[n], with the ids that the post-processor adds
 *   'D' n ids[n]   n text
 *   'K' n ids[n]   n text, without special tokens
 *
 * Numbers are little-endian int32. If a request fails, n of its answer is -1, and the sentence of
 * the error follows as n text. Ids are decoded both together and one by one, and the program
 * aborts if the two texts differ. */
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
        /* The text so far must end with a complete character. If there is a next byte, it must
         * therefore be the first byte of a character. */
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
