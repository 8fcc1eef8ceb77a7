/* files.c: divides the names in a directory into files to copy and files to leave out, copies
 * files, and finds tokenizers and end ids. */
#include "worker/hf/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/model_shape.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/tokenizer.h"

/* ---- names ----------------------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcasecmp(s + n - m, end);
}

static bool any_end(const char *name, const char *const *ends)
{
    for (; *ends; ends++)
        if (ends_with(name, *ends)) return true;
    return false;
}

static bool is_weights(const char *name)
{
    static const char *const ends[] = {".safetensors",
                                       ".safetensors.index.json",
                                       ".bin",
                                       ".bin.index.json",
                                       ".pt",
                                       ".pth",
                                       ".ckpt",
                                       ".gguf",
                                       ".onnx",
                                       ".onnx_data",
                                       ".msgpack",
                                       ".msgpack.index.json",
                                       ".h5",
                                       ".h5.index.json",
                                       NULL};
    return any_end(name, ends);
}

bool hf_is_tokenizer(const char *name)
{
    static const char *const names[] = {"vocab.json",
                                        "vocab.txt",
                                        "merges.txt",
                                        "added_tokens.json",
                                        "special_tokens_map.json",
                                        "spiece.model",
                                        "sentencepiece.model",
                                        "sentencepiece.bpe.model",
                                        "bpe.codes",
                                        "tekken.json",
                                        "chat_template.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        NULL};
    static const char *const ends[] = {".tiktoken", ".spm", NULL};
    for (const char *const *n = names; *n; n++)
        if (!strcmp(name, *n)) return true;
    /* "tokeniz" begins tokenizer.json, tokenizer.model, tokenizer_config.json and
     * tokenization_x.py. */
    return !strncmp(name, "tokeniz", 7) || any_end(name, ends);
}

/* Returns true if a tokenizer needs this file to convert text to ids. Chat templates and
 * generation_config.json are not needed for the conversion. */
static bool names_a_tokenizer(const char *name)
{
    return hf_is_tokenizer(name) && strncmp(name, "chat_template.", 14) != 0 &&
           strcmp(name, "generation_config.json") != 0;
}

/* Returns true if the name consists of characters that are allowed in a manifest. */
static bool plain_name(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (name[i] < 0x20 || name[i] > 0x7e) return false;
    return n < HF_FILE_NAME && !strstr(name, "..");
}

/* ---- a directory ----------------------------------------------------------------------------- */

static void leave(struct hf_files *f, const char *name, const char *why)
{
    const size_t n = strlen(f->left);
    if (f->n_left++ < 4)
        snprintf(f->left + n, sizeof f->left - n, "%s%.40s (%s)", n ? ", " : "",
                 plain_name(name) ? name : "a file", why);
}

static void add(struct hf_files *f, int fd, const char *name)
{
    struct stat st;
    if (is_weights(name) || !strcmp(name, "config.json") ||
        fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) || S_ISDIR(st.st_mode))
        return;
    if (!S_ISREG(st.st_mode))
        leave(f, name, S_ISLNK(st.st_mode) ? "a link" : "no regular file");
    else if (!plain_name(name))
        leave(f, name, "its name");
    else if (st.st_size > HF_FILE_SIZE)
        leave(f, name, "over 64 MiB");
    else if (f->n == HF_FILES)
        leave(f, name, "too many files");
    else
        snprintf(f->name[f->n++], HF_FILE_NAME, "%s", name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Calls `take` for every name in dir. `take` also gets the descriptor of the directory, so that it
 * can inspect the file. */
static int each_name(const char *dir, void (*take)(struct hf_files *, int fd, const char *name),
                     struct hf_files *f, struct err *e)
{
    DIR *d = opendir(dir);
    if (!d) return err_errno(e, "open %s", dir);
    errno = 0;
    for (struct dirent *x; (x = readdir(d)); errno = 0)
        if (strcmp(x->d_name, ".") && strcmp(x->d_name, "..")) take(f, dirfd(d), x->d_name);
    const int rc = errno ? err_errno(e, "read %s", dir) : 0;
    closedir(d);
    return rc;
}

/* Lists the texts of a GGUF file in ascending order of their names. */
static int list_texts(const char *gguf, struct hf_files *out, struct err *e)
{
    const char *names[MODEL_FILE_TEXTS];
    const int n = model_file_list(gguf, names, e);
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], "config.json"))
            snprintf(out->name[out->n++], HF_FILE_NAME, "%s", names[i]);
    return n < 0 ? -1 : 0;
}

int hf_list_files(const char *dir, struct hf_files *out, struct err *e)
{
    char gguf[FILE_PATH_SIZE];
    memset(out, 0, sizeof *out);
    const int found = model_file_gguf(dir, gguf, e);
    if (found) return found < 0 ? -1 : list_texts(gguf, out, e);
    if (each_name(dir, add, out, e) < 0) return -1;
    qsort(out->name, (size_t)out->n, HF_FILE_NAME, by_name);
    return 0;
}

/* Number of files that the byte tokenizer may add to the copied files. */
enum { BYTE_FILES = 3 };

/* ---- copying --------------------------------------------------------------------------------- */

/* Opens a file, and checks that it is a regular file. The check is needed because the file may
 * have been replaced by another kind of file since it was listed. */
static int open_plain(const char *dir, const char *name, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct stat st;
    if (file_join(path, e, "%s/%s", dir, name) < 0) return -1;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return err_errno(e, "open %s", path);
    if (!fstat(fd, &st) && S_ISREG(st.st_mode)) return fd;
    close(fd);
    return err_set(e, ERR_INVALID, "%s is no regular file", path);
}

static int copy_pieces(const struct hf_take *t, int fd, struct file_out *out, const char *name,
                       struct err *e)
{
    char piece[32768];
    for (;;) {
        if (t->still) t->still(t->arg);
        const ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, "read %s", name);
        if (n == 0) return 0;
        if (out->size + n > HF_FILE_SIZE)
            return err_set(e, ERR_TOO_LARGE, "%s grew over %lld bytes while it was copied", name,
                           (long long)HF_FILE_SIZE);
        if (file_out_add(out, piece, (size_t)n, e) < 0) return -1;
    }
}

/* Writes a text of a GGUF file. */
static int copy_text(const struct hf_take *t, const char *name, const char *path, struct err *e)
{
    struct model_text text;
    if (t->still) t->still(t->arg);
    if (model_file_read(t->from, name, HF_FILE_SIZE, &text, e) < 0) return -1;
    const int rc = text.text ? file_write(path, text.text, text.size, e)
                             : err_set(e, ERR_NOT_FOUND, "%s is gone", text.path);
    model_file_free(&text);
    return rc;
}

static int copy_file(const struct hf_take *t, const char *name, struct err *e)
{
    char path[FILE_PATH_SIZE], gguf[FILE_PATH_SIZE];
    struct file_out out;
    if (file_join(path, e, "%s/%s", t->to, name) < 0) return -1;
    const int found = model_file_gguf(t->from, gguf, e);
    if (found) return found < 0 ? -1 : copy_text(t, name, path, e);
    const int fd = open_plain(t->from, name, e);
    if (fd < 0) return -1;
    int rc = file_out_open(&out, path, e);
    if (rc == 0) rc = copy_pieces(t, fd, &out, name, e);
    if (rc == 0) rc = file_out_close(&out, NULL, e);
    if (rc < 0) file_out_abort(&out);
    close(fd);
    return rc;
}

static int take_files(const struct hf_take *t, struct hf_files *taken, struct err *e)
{
    int n = 0;
    if (file_make_dir(t->to, e) < 0 || hf_list_files(t->from, taken, e) < 0) return -1;
    while (taken->n > HF_FILES - BYTE_FILES)
        leave(taken, taken->name[--taken->n], "too many files");
    for (int i = 0; i < taken->n; i++) {
        if (!t->tokenizer && hf_is_tokenizer(taken->name[i])) continue;
        struct err why = {0};
        if (copy_file(t, taken->name[i], &why) < 0) {
            if (!model_file_unmade(t->from, &why)) return *e = why, -1;
            leave(taken, taken->name[i], "a tokenizer that is not read from GGUF");
            continue;
        }
        if (n != i) memcpy(taken->name[n], taken->name[i], HF_FILE_NAME);
        n++;
    }
    taken->n = n;
    return file_sync_dir(t->to, e);
}

int hf_take_files(const struct hf_take *t, struct hf_files *taken, struct err *e)
{
    struct gguf *const kept = model_file_keep(t->from);
    const int rc = take_files(t, taken, e);
    model_file_leave(kept);
    return rc;
}

/* ---- whose tokenizer ------------------------------------------------------------------------- */

/* Adds 1 to f->n if the file belongs to a tokenizer. A symbolic link is counted, too, even if
 * its target does not exist. */
static void count_tokenizer(struct hf_files *f, int fd, const char *name)
{
    (void)fd;
    f->n += names_a_tokenizer(name);
}

int hf_tokenizer_of(const char *dir, int32_t *out, struct err *e)
{
    static const char name[] = "tokenizer.json";
    char have[TOKENIZER_SIZE + 1];
    struct hf_files f = {0};
    struct err none = {0};
    char gguf[FILE_PATH_SIZE];
    const int found = model_file_gguf(dir, gguf, e);
    if (found) {
        const int listed = found < 0 ? -1 : list_texts(gguf, &f, e);
        *out = TOKENIZER_NONE;
        for (int i = 0; i < f.n; i++)
            if (!strcmp(f.name[i], name)) *out = TOKENIZER_OWN;
        return listed;
    }
    if (each_name(dir, count_tokenizer, &f, e) < 0) return -1;
    *out = f.n ? TOKENIZER_OWN : TOKENIZER_NONE;
    const int fd = f.n ? open_plain(dir, name, &none) : -1;
    if (fd < 0) return 0;
    size_t size = 0;
    for (ssize_t n; size < sizeof have; size += (size_t)n)
        if ((n = read(fd, have + size, sizeof have - size)) <= 0) break;
    close(fd);
    if (tokenizer_is_byte(have, size)) *out = TOKENIZER_BYTE;
    return 0;
}

/* ---- ids that end a text --------------------------------------------------------------------- */

static int take_end(struct jread *j, enum jtok t, const char *path, struct token_ends *out,
                    struct err *e)
{
    int64_t id;
    if (t != J_NUMBER || jread_int(j, &id) < 0 || id < 0 || id > INT32_MAX)
        return err_set(e, ERR_INVALID, "%s: eos_token_id must be an id, a list of ids or null",
                       path);
    if (out->n == TOKEN_ENDS)
        return err_set(e, ERR_TOO_LARGE, "%s: eos_token_id has more than %d ids", path, TOKEN_ENDS);
    out->id[out->n++] = (int32_t)id;
    return 0;
}

static int take_ends(struct jread *j, const char *path, struct token_ends *out, struct err *e)
{
    enum jtok t = jread_next(j);
    if (t == J_NULL) return 0;
    if (t != J_ARRAY) return take_end(j, t, path, out, e);
    while ((t = jread_next(j)) != J_ARRAY_END)
        if (take_end(j, t, path, out, e) < 0) return -1;
    return 0;
}

/* Reads the ids from an object that has begun. `inside` means that the object is the
 * text_config of a wrapper. The ids of text_config are used only if the object of the wrapper
 * has no ids. */
static int ids_of_object(struct jread *j, bool inside, const char *path, const char *key,
                         struct token_ends *out, struct err *e)
{
    struct token_ends text = {.from = out->from};
    int rc = 0;
    while (rc == 0 && jread_next(j) == J_KEY) {
        struct jread here = *j;
        if (jread_is(j, key)) {
            rc = take_ends(j, path, out, e);
        } else if (!inside && jread_is(j, "text_config") && jread_next(&here) == J_OBJECT) {
            *j = here;
            rc = ids_of_object(j, true, path, key, &text, e);
        } else {
            rc = jread_skip(j);
        }
    }
    if (rc == 0 && !out->n && text.n) *out = text;
    return rc;
}

/* Reads the ids of a key in a file of the directory. The file may be absent. */
static int ids_of_file(const char *dir, const char *name, const char *key, struct token_ends *out,
                       struct err *e)
{
    struct model_text t;
    struct jread j;
    int rc = 0;
    if (model_file_read(dir, name, 4 << 20, &t, e) < 0) return -1;
    if (!t.text) return 0;
    jread_init(&j, t.text, t.size);
    if (jread_next(&j) != J_ERROR) rc = ids_of_object(&j, false, t.path, key, out, e);
    if (j.err.code)
        rc = err_set(e, ERR_INVALID, "%s: %s: mend the file there, or fetch it again", t.path,
                     j.err.text);
    model_file_free(&t);
    return rc;
}

static int read_ends(const char *dir, struct token_ends *out, struct err *e)
{
    char path[FILE_PATH_SIZE];
    *out = (struct token_ends){0};
    const int gguf = model_file_gguf(dir, path, e);
    if (gguf < 0 || ids_of_file(dir, "generation_config.json", "eos_token_id", out, e) < 0)
        return -1;
    out->from = gguf ? ENDS_GGUF : out->n ? ENDS_GENERATION_CONFIG : ENDS_CONFIG;
    return out->n ? 0 : ids_of_file(dir, "config.json", "eos_token_id", out, e);
}

int hf_unknown_end(const struct token_ends *ends, int i, int64_t vocab, struct err *e)
{
    static const char *const fixes[] = {[ENDS_GENERATION_CONFIG] = "mend generation_config.json",
                                        [ENDS_CONFIG] = "mend config.json",
                                        [ENDS_GGUF] = "fetch the file again"};
    return err_set(e, ERR_INVALID,
                   "eos_token_id %d is not below vocab_size %lld, so that no text ends at it: %s",
                   (int)ends->id[i], (long long)vocab, fixes[ends->from]);
}

int hf_check_ends(const char *dir, struct token_ends *out, struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = read_ends(dir, out, e);
    model_file_leave(kept);
    return rc;
}

int hf_read_ends(const char *dir, struct token_ends *out, struct err *e)
{
    struct err why = {0};
    if (hf_check_ends(dir, out, &why) == 0) return 0;
    *out = (struct token_ends){0};
    if (model_file_unmade(dir, &why)) return 0;
    if (e) *e = why;
    return -1;
}

int32_t hf_read_pad(const char *dir)
{
    char path[FILE_PATH_SIZE];
    struct token_ends pad = {0};
    struct err none = {0};
    /* the keys of a GGUF file include those of generation_config.json */
    const bool gguf = model_file_gguf(dir, path, &none) > 0;
    const char *name = gguf ? "generation_config.json" : "config.json";
    return ids_of_file(dir, name, "pad_token_id", &pad, &none) < 0 || !pad.n ? -1 : pad.id[0];
}
