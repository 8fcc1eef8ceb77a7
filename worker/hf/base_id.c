/* base_id.c: computes the digest of a model from a sample of its elements, and writes, reads and
 * compares the file that has the digest. */
#include "worker/hf/base_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/record.h"
#include "api/core/utf8.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/stored.h"

/* ---- digest ---------------------------------------------------------------------------------- */

/* WHOLE: most elements of a tensor of which all are read; STRETCH: elements of a stretch, a
 * multiple of the elements of a block in every format of files */
enum { WHOLE = 4096, STRETCHES = 16, STRETCH = 64 };

static void add_number(struct sha256 *sha, int64_t x)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)x);
    sha256_add(sha, text, strlen(text) + 1);
}

static void add_name(struct sha256 *sha, const struct param *p)
{
    sha256_add(sha, p->name, strlen(p->name) + 1);
    add_number(sha, p->rows);
    add_number(sha, p->cols);
}

static int add_elements(struct sha256 *sha, const struct hf_stored *x, const struct param *p,
                        struct err *e)
{
    float room[WHOLE];
    if (p->count <= WHOLE) {
        if (hf_stored_read(x, 0, p->count, room, e)) return -1;
        sha256_add(sha, room, (size_t)p->count * sizeof *room);
        return 0;
    }
    const int64_t last = p->count / STRETCH - 1;
    for (int64_t i = 0; i < STRETCHES; i++) {
        if (hf_stored_read(x, i * last / (STRETCHES - 1) * STRETCH, STRETCH, room, e)) return -1;
        sha256_add(sha, room, STRETCH * sizeof *room);
    }
    return 0;
}

/* Adds a tensor to the digest, if the files have it as the shape does. A job that needs no head has
 * not checked the head. */
static int add_tensor(struct sha256 *sha, const struct hf_weights *w, const struct param *p,
                      struct err *e)
{
    const struct hf_stored x = hf_stored_find(w, p);
    if (x.t ? !hf_same_shape(x.t, p) || !st_dtype_reads(x.t->dtype) : !x.mx.blocks) return 0;
    add_name(sha, p);
    return add_elements(sha, &x, p, e);
}

static int digest_model(const char *dir, const struct model_shape *m, char out[SHA256_HEX],
                        struct err *e)
{
    struct sha256 sha;
    int n, rc = -1;
    struct param *list = hf_sorted_whole(m, &n, e);
    struct hf_weights *w = list ? hf_weights_open(dir, m, e) : NULL;
    if (w) rc = hf_compare(w, dir, m, e);
    sha256_init(&sha);
    for (int i = 0; !rc && i < n; i++) rc = add_tensor(&sha, w, &list[i], e);
    sha256_hex(&sha, out);
    if (w) hf_weights_close(w);
    free(list);
    return rc;
}

int base_id_model(const char *dir, const struct model_shape *m, struct base_id *out, struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = digest_model(dir, m, out->sha256, e);
    model_file_leave(kept);
    return rc;
}

int base_id_random(const struct model_shape *m, int64_t seed, struct base_id *out, struct err *e)
{
    static const char begin[] = "random weights";
    struct sha256 sha;
    int n;
    struct param *list = hf_sorted_whole(m, &n, e);
    if (!list) return -1;
    sha256_init(&sha);
    sha256_add(&sha, begin, sizeof begin);
    add_number(&sha, seed);
    for (int i = 0; i < n; i++) add_name(&sha, &list[i]);
    sha256_hex(&sha, out->sha256);
    free(list);
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

enum { FILE_MAX = 8192 };

static const struct field rows[] = {{"version", FIELD_FIXED, 0, 1, 1, .needed = true},
                                    {"base", FIELD_TEXT, offsetof(struct base_id, name),
                                     .size = sizeof((struct base_id *)0)->name,
                                     .when = record_always, .needed = true},
                                    {"base_sha256", FIELD_TEXT, offsetof(struct base_id, sha256),
                                     .size = SHA256_HEX, .when = record_always, .needed = true},
                                    {NULL}};

int base_id_write(const char *dir, const struct base_id *id, struct err *e)
{
    char path[FILE_PATH_SIZE], text[FILE_MAX];
    struct jwrite w;
    jwrite_init(&w, text, sizeof text);
    record_write(&w, NULL, rows, id);
    const int64_t n = jwrite_finish(&w);
    if (n < 0) return err_set(e, ERR_INTERNAL, "%s needs %zu bytes", BASE_ID_FILE, w.len);
    if (file_join(path, e, "%s/%s", dir, BASE_ID_FILE) < 0) return -1;
    return file_write(path, text, (size_t)n, e);
}

static bool is_digest(const char *s)
{
    return strlen(s) == SHA256_HEX - 1 && strspn(s, "0123456789abcdef") == SHA256_HEX - 1;
}

int base_id_read(const char *dir, struct base_id *out, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct err why = {0}; /* a separate error, because its field is a member of the file */
    size_t size;
    *out = (struct base_id){0};
    if (file_join(path, e, "%s/%s", dir, BASE_ID_FILE) < 0) return -1;
    if (!file_exists(path)) return 0;
    char *text = file_read(path, FILE_MAX, &size, e);
    if (!text) return -1;
    const int rc = record_parse(text, size, rows, out, &why);
    free(text);
    if (!rc && is_digest(out->sha256) && utf8_plain(out->name)) return 1;
    return err_set(e, ERR_CORRUPT,
                   "%s does not name the base of the adapter%s%s: fetch it again, or remove it",
                   path, rc ? ": " : "", rc ? why.text : "");
}

enum { SHOWN = 100 };

/* Returns the end of a name, of at most SHOWN bytes, which tells long paths apart. */
static const char *end_of(const char *name)
{
    const size_t n = strlen(name);
    if (n > SHOWN) name += n - SHOWN;
    while (((unsigned char)*name & 0xc0) == 0x80) name++;
    return name;
}

int base_id_check(const char *dir, const struct base_id *own, const char *more, struct err *e)
{
    struct base_id made;
    const int known = base_id_read(dir, &made, e);
    if (known <= 0 || !strcmp(made.sha256, own->sha256)) return known < 0 ? -1 : 0;
    if (!strcmp(made.name, own->name))
        return err_field(e, ERR_CONFLICT, own->field,
                         "the base %s (digest %.12s) has changed since %s was trained on it "
                         "(digest %.12s): give its files of then%s",
                         end_of(own->name), own->sha256, end_of(dir), made.sha256,
                         *own->field ? more : "");
    return err_field(e, ERR_CONFLICT, own->field,
                     "the base %s (digest %.12s) is not that of %s, which was trained on the base "
                     "%s (digest %.12s): give the same base by model.path, or by seed if its "
                     "weights are random%s",
                     end_of(own->name), own->sha256, end_of(dir), end_of(made.name), made.sha256,
                     *own->field ? more : "");
}
