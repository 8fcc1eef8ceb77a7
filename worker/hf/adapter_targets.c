/* adapter_targets.c: compares the modules that have adapters with target_modules and
 * exclude_modules of adapter_config.json, as the package peft matches them: a list has names, or
 * ends of names that begin after a dot, and a text is a regular expression of the whole name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "worker/hf/adapter.h"
#include "worker/hf/safetensors.h"
#include "worker/text/full_match.h"

/* NAMES: most names of a list that are compared, and most modules that an expression is tried on;
 * more pass. CONFIG_MAX: largest size of the file. */
enum { NAMES = 4096, CONFIG_MAX = 1 << 20 };

/* The value of a key. If nothing is set, it says nothing about a module. */
struct named_modules {
    const char *key;
    bool listed;
    int n, n_tried;
    char (*name)[ST_NAME_SIZE]; /* owned */
    struct full_match *match;   /* owned */
};

static void modules_fini(struct named_modules *m)
{
    full_match_destroy(m->match);
    free(m->name);
}

/* Reads a list. A list with a name that is too long, or with too many, says nothing. */
static int read_list(struct jread *j, struct named_modules *m)
{
    enum jtok t;
    m->name = calloc(NAMES, sizeof *m->name);
    if (!m->name) return -1;
    m->listed = true;
    while ((t = jread_next(j)) == J_STRING) {
        if (m->n == NAMES || jread_copy(j, m->name[m->n], ST_NAME_SIZE))
            m->listed = false;
        else
            m->n++;
    }
    m->listed = m->listed && t == J_ARRAY_END && m->n;
    return t == J_ARRAY_END ? 0 : -1;
}

/* Reads a text. "all-linear" is no expression. */
static void read_text(struct jread *j, struct named_modules *m)
{
    if (jread_is(j, "all-linear") || !j->len) return;
    char *text = malloc(j->len + 1);
    if (text && !jread_copy(j, text, j->len + 1)) m->match = full_match_create(text, strlen(text));
    free(text);
}

static int read_key(struct jread *j, struct named_modules *m)
{
    const enum jtok t = jread_next(j);
    if (t == J_ARRAY && !m->name) return read_list(j, m);
    if (t == J_STRING && !m->match) read_text(j, m);
    return t == J_STRING || t == J_NULL ? 0 : -1;
}

/* Reads both keys. The rest of the file has been checked (adapter_read_config). */
static void read_keys(const char *text, size_t size, struct named_modules *target,
                      struct named_modules *exclude)
{
    struct jread j;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return;
    while (jread_next(&j) == J_KEY) {
        struct named_modules *m = jread_is(&j, target->key)    ? target
                                  : jread_is(&j, exclude->key) ? exclude
                                                               : NULL;
        if (m ? read_key(&j, m) : jread_skip(&j)) return;
    }
}

/* Returns 1 if the value names the module, 0 if it does not, and -1 if it says nothing. */
static int names(struct named_modules *m, const char *module, size_t size)
{
    if (m->match) return m->n_tried++ < NAMES ? full_match_test(m->match, module, size) : -1;
    if (!m->listed) return -1;
    for (int i = 0; i < m->n; i++) {
        const size_t n = strlen(m->name[i]);
        if (n <= size && !strncmp(module + size - n, m->name[i], n) &&
            (n == size || module[size - n - 1] == '.'))
            return 1;
    }
    return 0;
}

static int refuse(const char *path, const struct named_modules *m, const char *how,
                  const char *module, size_t size, struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "%s: %s %s %.*s, and the tensors have an adapter of it: fetch both files of one "
                   "adapter",
                   path, m->key, how, size < 150 ? (int)size : 150, module);
}

static int compare(const char *path, const struct st_file *f, struct named_modules *target,
                   struct named_modules *exclude, struct err *e)
{
    static const char end[] = ".lora_A.weight";
    const size_t begin = sizeof ADAPTER_PREFIX - 1, more = begin + sizeof end - 1;
    for (int i = 0; i < st_count(f); i++) {
        const char *const tensor = st_at(f, i)->name;
        const size_t n = strlen(tensor);
        if (n <= more || strcmp(tensor + n - (sizeof end - 1), end)) continue;
        const char *const module = tensor + begin;
        if (!names(target, module, n - more))
            return refuse(path, target, "does not name", module, n - more, e);
        if (names(exclude, module, n - more) == 1)
            return refuse(path, exclude, "names", module, n - more, e);
    }
    return 0;
}

int adapter_targets_check(const char *dir, const struct st_file *f, struct err *e)
{
    struct named_modules target = {.key = "target_modules"}, exclude = {.key = "exclude_modules"};
    char path[FILE_PATH_SIZE];
    size_t size;
    if (file_join(path, e, "%s/adapter_config.json", dir)) return -1;
    char *text = file_read(path, CONFIG_MAX, &size, e);
    if (!text) return -1;
    read_keys(text, size, &target, &exclude);
    const int rc = compare(path, f, &target, &exclude, e);
    modules_fini(&target);
    modules_fini(&exclude);
    free(text);
    return rc;
}
