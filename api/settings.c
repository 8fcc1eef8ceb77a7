/* settings.c: sets the defaults, reads the command line, and then reads the file. A reload adopts
 * the new value of a key that can be reloaded, and logs the change of any other key. */
#include "api/settings.h"

#include <stdlib.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/toml.h"

struct reading {
    const struct option_table *table;
    void *target;
    struct option_sources *from;
};

static int on_key(void *arg, const char *key, const struct option_value *v, struct err *e)
{
    const struct reading *r = arg;
    return option_key(r->table, key, v, r->target, r->from, e);
}

static int read_file(const struct option_table *t, const char *path, void *target,
                     struct option_sources *from, struct err *e)
{
    struct reading r = {t, target, from};
    size_t size;
    char *text = file_read(path, TOML_MAX_SIZE, &size, e);
    if (!text) return -1;
    int rc = toml_read(text, size, path, on_key, &r, e);
    free(text);
    return rc;
}

int settings_read(const struct option_table *t, int argc, char **argv, settings_path *path,
                  void *target, struct option_sources *from, struct err *e)
{
    struct option_sources own;
    if (!from) from = &own;
    option_defaults(t, target, from);
    int rc = option_line(t, argc, argv, target, from, e);
    if (rc) return rc;
    const char *file = path(target);
    return file ? read_file(t, file, target, from, e) : 0;
}

static void say(void *arg, const struct option_entry *row, bool taken)
{
    if (taken)
        log_info("settings.changed", "key=%s", row->name);
    else
        log_warn("settings.restart", "key=%s text=\"the change needs a restart\"", row->name);
}

int settings_reload(const struct option_table *t, int argc, char **argv, settings_path *path,
                    settings_check *check, void *now, struct err *e)
{
    void *fresh = malloc(t->size);
    assert(fresh);
    int rc = settings_read(t, argc, argv, path, fresh, NULL, e);
    if (!rc && check) rc = check(fresh, e);
    if (!rc) rc = option_adopt(t, now, fresh, say, NULL);
    free(fresh);
    return rc;
}
