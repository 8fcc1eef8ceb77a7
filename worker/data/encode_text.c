#include "worker/data/encode_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "worker/hf/files.h"
#include "worker/hf/tokenizer.h"

/* ---- the tokenizer --------------------------------------------------------------------------- */

/* Blames the field that names the directory. */
static int of_model(struct err *e)
{
    if (e) strcpy(e->field, "model.path");
    return -1;
}

static int find_end(struct encode_text *t, struct err *e)
{
    struct token_ends ends = {0};
    t->end = -1;
    if (!t->ends) return 0;
    t->end = tokenizer_special(t->tokenizer)->eos;
    if (t->end >= 0) return 0;
    if (hf_read_ends(t->dir, &ends, e) < 0) return of_model(e);
    if (ends.n) t->end = ends.id[0];
    return 0;
}

static int open_tokenizer(struct encode_text *t, struct err *e)
{
    if (t->tokenizer) return 0;
    t->tokenizer = tokenizer_open(t->dir, e);
    if (!t->tokenizer) return of_model(e);
    t->ids.spans = true;
    return find_end(t, e);
}

/* One of the files that say what ids there will be; *of is "" where it is not there. */
static int add_file(const char *dir, const char *name, struct sha256 *into, char of[SHA256_HEX],
                    struct err *e)
{
    char path[FILE_PATH_SIZE];
    *of = 0;
    if (file_join(path, e, "%s/%s", dir, name) < 0) return of_model(e);
    if (file_exists(path) && sha256_file(path, of, NULL, e) < 0) return of_model(e);
    sha256_add(into, name, strlen(name) + 1);
    sha256_add(into, of, strlen(of) + 1);
    return 0;
}

int encode_text_digest(const struct encode_text *t, struct sha256 *into, char of[SHA256_HEX],
                       struct err *e)
{
    char other[SHA256_HEX], end[32];
    struct token_ends ends = {0};
    if (add_file(t->dir, "tokenizer.json", into, of, e) < 0 ||
        add_file(t->dir, "tokenizer_config.json", into, other, e) < 0 ||
        add_file(t->dir, "special_tokens_map.json", into, other, e) < 0)
        return -1;
    if (t->ends && hf_read_ends(t->dir, &ends, e) < 0) return of_model(e);
    const int n = snprintf(end, sizeof end, "end %d %d", t->ends, ends.n ? (int)ends.id[0] : -1);
    sha256_add(into, end, (size_t)n + 1);
    if (!*of) strcpy(of, "none");
    return 0;
}

void encode_text_fini(struct encode_text *t)
{
    tokenizer_destroy(t->tokenizer);
    tokens_fini(&t->ids);
    text_fini(&t->pair);
    free(t->bytes);
    free(t->learn);
    *t = (struct encode_text){0};
}

/* ---- documents ------------------------------------------------------------------------------- */

static int reserve(struct encode_text *t, int64_t n, struct err *e)
{
    if (n <= t->room) return 0;
    free(t->bytes);
    free(t->learn);
    t->room = 0;
    t->bytes = malloc((size_t)n * sizeof *t->bytes);
    t->learn = malloc((size_t)n);
    if (!t->bytes || !t->learn)
        return err_set(e, ERR_IO, "out of memory for %lld tokens", (long long)n);
    t->room = n;
    return 0;
}

/* Bytes of every token: those up to its end that no token before it has; the last one has the rest,
 * so that together they are the text's. */
static void measure(struct encode_text *t, size_t n, size_t given)
{
    const struct tokens *ids = &t->ids;
    int64_t covered = 0;
    bool learn = !given;
    for (int64_t i = 0; i < ids->n; i++) {
        const int64_t end = ids->end[i] > covered ? ids->end[i] : covered;
        t->bytes[i] = (uint32_t)(end - covered);
        covered = end;
        learn = learn || end > (int64_t)given;
        t->learn[i] = learn;
    }
    if (ids->n) t->bytes[ids->n - 1] += (uint32_t)((int64_t)n - covered);
}

int encode_text(struct encode *c, const char *text, size_t n, size_t given, struct err *e)
{
    struct encode_text *t = c->text;
    if (open_tokenizer(t, e) < 0) return -1;
    if (!n) return 0;
    t->ids.n = 0;
    if (tokenizer_encode(t->tokenizer, text, n, true, &t->ids, e) < 0) return -1;
    if (reserve(t, t->ids.n, e) < 0) return -1;
    measure(t, n, given);
    return encode_cut(c, t->ids.id, (size_t)t->ids.n, t->bytes, t->learn, e);
}

int encode_pair(struct encode *c, const struct encode_part *prompt,
                const struct encode_part *completion, bool given, struct err *e)
{
    struct text *t = &c->text->pair;
    const size_t n = prompt->n + completion->n;
    if ((int64_t)n >= t->room) {
        char *more = realloc(t->data, n + 1);
        if (!more) return err_set(e, ERR_IO, "out of memory for %zu bytes of text", n);
        t->data = more;
        t->room = (int64_t)n + 1;
    }
    memcpy(t->data, prompt->at, prompt->n);
    memcpy(t->data + prompt->n, completion->at, completion->n);
    t->n = (int64_t)n;
    return encode_text(c, t->data, n, given ? prompt->n : 0, e);
}
