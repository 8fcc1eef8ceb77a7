/* model_file.c: finds the kind of model at a path. Writes each text of a GGUF file into a buffer,
 * whose size is computed from the size of the header. */
#include "worker/gguf/model_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/utf8.h"
#include "worker/gguf/gguf_config.h"
#include "worker/gguf/gguf_tokenizer.h"

bool model_file_is_gguf(const char *name)
{
    static const char end[] = ".gguf";
    const size_t n = strlen(name), k = sizeof end - 1;
    return n > k && !strcasecmp(name + n - k, end) && utf8_plain(name);
}

/* Finds a GGUF file in a directory. Returns the number of such files. name is used only if that
 * number is 1. */
static int look_in(const char *dir, char name[256])
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) {
        struct stat st;
        if (!model_file_is_gguf(x->d_name) || *x->d_name == '.') continue;
        if (fstatat(dirfd(d), x->d_name, &st, 0) || !S_ISREG(st.st_mode)) continue;
        if (!n++) snprintf(name, 256, "%s", x->d_name);
    }
    if (d) closedir(d);
    return n;
}

/* Returns true if a name is the name of a part of a split file. */
static bool names_a_part(const char *name)
{
    const size_t n = strlen(name), k = strlen("-00001-of-00002.gguf");
    int part, of, end = 0;
    return n > k && sscanf(name + n - k, "-%5d-of-%5d.%n", &part, &of, &end) == 2 && end == 16;
}

static int several(const char *model, const char *name, int n, struct err *e)
{
    if (names_a_part(name))
        return err_set(e, ERR_INVALID,
                       "%.200s has no config.json and %d .gguf files, parts of a split file: join "
                       "them by llama-gguf-split --merge FIRST-PART.gguf OUT.gguf, and name the "
                       "whole in model.path",
                       model, n);
    return err_set(e, ERR_INVALID,
                   "%s has %d .gguf files and no config.json: name one of them in model.path",
                   model, n);
}

int model_file_gguf(const char *model, char path[FILE_PATH_SIZE], struct err *e)
{
    struct stat st;
    char name[256];
    if (stat(model, &st)) return 0; /* the error is reported by the function that reads the file */
    if (!S_ISDIR(st.st_mode)) return file_join(path, e, "%s", model) < 0 ? -1 : 1;
    if (file_join(path, e, "%s/config.json", model) < 0) return -1;
    const int n = file_exists(path) ? 0 : look_in(model, name);
    if (n > 1) return several(model, name, n, e);
    if (!n) return 0;
    return file_join(path, e, "%s/%s", model, name) < 0 ? -1 : 1;
}

struct gguf *model_file_keep(const char *model)
{
    char path[FILE_PATH_SIZE];
    struct err none;
    return model_file_gguf(model, path, &none) > 0 ? gguf_keep(path) : NULL;
}

void model_file_leave(struct gguf *kept)
{
    gguf_leave(kept);
}

int model_file_there(const char *model, struct err *e)
{
    struct stat st;
    if (!stat(model, &st)) return 0;
    return err_set(
        e, ERR_NOT_FOUND,
        "%.200s cannot be looked at: %s: give the path of a directory as transformers saves "
        "it, or of a .gguf file",
        model, strerror(errno));
}

/* Finds the first file, in the order of names, whose first bytes are those of a GGUF file. The
 * suffix of the file's name does not matter. Files whose names cannot be shown in an error are
 * skipped. */
static bool find_unnamed(const char *dir, char name[256])
{
    bool found = false;
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) {
        char begin[4];
        struct stat st;
        if (*x->d_name == '.' || !utf8_plain(x->d_name)) continue;
        if (found && strcmp(x->d_name, name) > 0) continue;
        if (fstatat(dirfd(d), x->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        const int fd = openat(dirfd(d), x->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        if (read(fd, begin, 4) == 4 && !memcmp(begin, "GGUF", 4)) {
            snprintf(name, 256, "%s", x->d_name);
            found = true;
        }
        close(fd);
    }
    if (d) closedir(d);
    return found;
}

bool model_file_is_adapter(const char *dir)
{
    char config[FILE_PATH_SIZE], adapter[FILE_PATH_SIZE];
    return !file_join(config, NULL, "%s/config.json", dir) && access(config, F_OK) &&
           !file_join(adapter, NULL, "%s/adapter_config.json", dir) && !access(adapter, F_OK);
}

int model_file_none(const char *model, struct err *e)
{
    char name[256] = "";
    if (model_file_is_adapter(model))
        return err_set(e, ERR_NOT_FOUND,
                       "%s has no config.json, but an adapter_config.json: give this adapter in "
                       "model.adapter, and the model that it was trained on in model.path",
                       model);
    if (find_unnamed(model, name))
        return err_set(e, ERR_NOT_FOUND,
                       "%.200s has no config.json, and no file *.gguf, but a GGUF file of another "
                       "name: give %.60s in model.path",
                       model, name);
    return err_set(e, ERR_NOT_FOUND,
                   "%s has no config.json: give a directory as transformers saves it, or a .gguf "
                   "file; of a checkpoint that is its hf/",
                   model);
}

/* ---- the texts of a GGUF file ---------------------------------------------------------------- */

#define TEMPLATE "tokenizer.chat_template"

static const struct {
    const char *name;
    /* function that writes the text; NULL for the chat template, which is copied from a key */
    int (*write)(const struct gguf *g, struct jwrite *w, struct err *e);
    bool of_tokenizer;
} texts[MODEL_FILE_TEXTS] = {
    {"chat_template.jinja", NULL, false},
    {"config.json", gguf_config_write, false},
    {"generation_config.json", gguf_tokenizer_generation, true},
    {"tokenizer.json", gguf_tokenizer_write, true},
    {"tokenizer_config.json", gguf_tokenizer_config, true},
};

static bool has_text(const struct gguf *g, int i)
{
    const char *s;
    size_t n;
    if (!texts[i].write) return gguf_text(gguf_find(g, TEMPLATE), &s, &n);
    return !texts[i].of_tokenizer || gguf_tokenizer_has(g);
}

static int too_large(const char *path, int64_t max_size, struct err *e)
{
    return err_set(e, ERR_TOO_LARGE, "%s: it has more than %lld bytes", path, (long long)max_size);
}

static int take_template(const struct gguf *g, int64_t max_size, struct model_text *out,
                         struct err *e)
{
    const char *s;
    if (!gguf_text(gguf_find(g, TEMPLATE), &s, &out->size)) return 0;
    if ((int64_t)out->size > max_size) return too_large(out->path, max_size, e);
    out->text = malloc(out->size + 1);
    if (!out->text) return err_set(e, ERR_IO, "out of memory for %s", out->path);
    memcpy(out->text, s, out->size);
    out->text[out->size] = 0;
    return 0;
}

/* Frees the unused end of a text's buffer. */
static void trim(struct model_text *t)
{
    char *less = realloc(t->text, t->size + 1);
    if (less) t->text = less;
}

/* Writes a text. Usually it is written only once, because the JSON of a header's strings and
 * numbers is seldom twice as long as the header. If the text is longer, it is written a second
 * time. The second buffer has the size that the writer has counted. */
static int make_text(const struct gguf *g, int i, int64_t max_size, struct model_text *out,
                     struct err *e)
{
    if (!texts[i].write) return take_template(g, max_size, out, e);
    int64_t room = 2 * gguf_header_size(g) + 65536;
    if (room > max_size + 1) room = max_size + 1;
    for (;;) {
        struct jwrite w;
        out->text = malloc((size_t)room);
        if (!out->text) return err_set(e, ERR_IO, "out of memory for %s", out->path);
        jwrite_init(&w, out->text, (size_t)room);
        if (texts[i].write(g, &w, e) < 0) return -1;
        const int64_t n = jwrite_finish(&w);
        out->size = n < 0 ? 0 : (size_t)n;
        if (n >= 0) trim(out);
        if (n >= 0) return 0;
        free(out->text);
        out->text = NULL;
        room = (int64_t)w.len + 1; /* the size that the writer counted */
        if (room > max_size + 1) return too_large(out->path, max_size, e);
    }
}

static int read_gguf(const char *path, const char *name, int64_t max_size, struct model_text *out,
                     struct err *e)
{
    int i = 0, rc;
    while (i < MODEL_FILE_TEXTS && strcmp(name, texts[i].name)) i++;
    /* set if the text is the value of a key */
    const bool key = i < MODEL_FILE_TEXTS && !texts[i].write;
    if (file_join(out->path, e, "%s: %s%s", path, key ? "" : "its ", key ? TEMPLATE : name) < 0)
        return -1;
    if (i == MODEL_FILE_TEXTS) return 0;
    struct gguf *g = gguf_open(path, e);
    if (!g) return -1;
    rc = has_text(g, i) ? make_text(g, i, max_size, out, e) : 0;
    gguf_close(g);
    if (rc < 0) model_file_free(out);
    return rc;
}

int model_file_list(const char *gguf, const char *names[MODEL_FILE_TEXTS], struct err *e)
{
    int n = 0;
    struct gguf *g = gguf_open(gguf, e);
    if (!g) return -1;
    for (int i = 0; i < MODEL_FILE_TEXTS; i++)
        if (has_text(g, i)) names[n++] = texts[i].name;
    gguf_close(g);
    return n;
}

/* ---- texts of any model ---------------------------------------------------------------------- */

int model_file_read(const char *model, const char *name, int64_t max_size, struct model_text *out,
                    struct err *e)
{
    char path[FILE_PATH_SIZE];
    *out = (struct model_text){0};
    const int found = model_file_gguf(model, path, e);
    if (found < 0) return -1;
    if (found) return read_gguf(path, name, max_size, out, e);
    if (file_join(out->path, e, "%s/%s", model, name) < 0) return -1;
    if (!file_exists(out->path)) return 0;
    out->text = file_read(out->path, max_size, &out->size, e);
    return out->text ? 0 : -1;
}

bool model_file_unmade(const char *model, const struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct err none;
    return (e->code == ERR_UNSUPPORTED || e->code == ERR_CORRUPT) &&
           model_file_gguf(model, path, &none) > 0;
}

void model_file_free(struct model_text *t)
{
    free(t->text);
    t->text = NULL;
    t->size = 0;
}
