/* library.c: calls dlopen for each place in order, and asks a library for its version. If no file
 * can be opened, the error tells why the first file that exists was refused. If no file exists,
 * the error has the loader's message. */
#include "api/core/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOLKIT  "/usr/local/cuda/lib64"
#define WHEELS   "/../lib/python3*/*-packages/nvidia/*/lib/" /* follows the folder of a python3 */
#define DIRS_MAX 64                                          /* folders of PATH, wheels' folders */

static int cublaslt_version(void *call)
{
    return (int)((size_t(*)(void))call)();
}

static int nccl_version(void *call)
{
    int v = 0;
    return ((int (*)(int *))call)(&v) ? 0 : v;
}

static const struct {
    const char *name, *files[3]; /* names of the file in order of preference, then NULL */
    const char *call;            /* the name of the function that returns the library's version */
    int (*version)(void *call);
} libraries[LIBRARY_N] = {
    [LIBRARY_CUBLASLT] = {"cuBLASLt",
                          {"libcublasLt.so.13", "libcublasLt.so.12"},
                          "cublasLtGetVersion",
                          cublaslt_version},
    [LIBRARY_NCCL] = {"NCCL", {"libnccl.so.2"}, "ncclGetVersion", nccl_version},
};

struct search {
    void *handle;
    char why[400]; /* why the first file that exists cannot be opened, or the loader's message */
    bool there;
};

static bool try(struct search *s, const char *path)
{
    const bool there = strchr(path, '/') != NULL;
    if (there && access(path, F_OK)) return false;
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (s->handle) return true;
    const char *why = dlerror();
    if (!s->there && (there || !*s->why)) snprintf(s->why, sizeof s->why, "%s", why ? why : path);
    s->there = s->there || there;
    return false;
}

static bool try_in(struct search *s, const char *folder, const char *file)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, file) < PATH_MAX && try(s, path);
}

/* Calls body for each absolute folder in a colon-separated list, until body returns true. */
static bool each_folder(const char *list, bool (*body)(struct search *, const char *, const char *),
                        struct search *s, const char *file)
{
    char folder[PATH_MAX];
    for (int n = 0; list && *list && n < DIRS_MAX; n++) {
        const size_t len = strcspn(list, ":");
        const bool whole = *list == '/' && len < sizeof folder;
        snprintf(folder, sizeof folder, "%.*s", (int)len, list);
        if (whole && body(s, folder, file)) return true;
        list += len + (list[len] == ':');
    }
    return false;
}

static bool try_wheels(struct search *s, const char *bin, const char *file)
{
    char pattern[PATH_MAX];
    glob_t g;
    bool found = false;
    if (snprintf(pattern, sizeof pattern, "%s/python3", bin) >= PATH_MAX || access(pattern, X_OK) ||
        snprintf(pattern, sizeof pattern, "%s" WHEELS "%s", bin, file) >= PATH_MAX ||
        glob(pattern, 0, NULL, &g))
        return false;
    for (size_t i = 0; i < g.gl_pathc && i < DIRS_MAX && !found; i++) found = try(s, g.gl_pathv[i]);
    globfree(&g);
    return found;
}

void *library_find(const char *const *files, struct err *e)
{
    struct search s = {0};
    for (int i = 0; files[i]; i++)
        if (each_folder(getenv(LIBRARY_FOLDERS), try_in, &s, files[i])) return s.handle;
    for (int i = 0; files[i]; i++)
        if (try(&s, files[i]) || try_in(&s, TOOLKIT, files[i]) ||
            each_folder(getenv("PATH"), try_wheels, &s, files[i]))
            return s.handle;
    err_set(e, ERR_UNSUPPORTED, "%s: name its folder in " LIBRARY_FOLDERS, s.why);
    return NULL;
}

const char *library_name(enum library_id id)
{
    return libraries[id].name;
}

int library_open(struct library *l, enum library_id id, struct err *e)
{
    void *handle = library_find(libraries[id].files, e);
    struct link_map *map = NULL;
    if (!handle) return -1;
    void *call = dlsym(handle, libraries[id].call);
    const int v = call ? libraries[id].version(call) : 0;
    char path[PATH_MAX] = "";
    if (!dlinfo(handle, RTLD_DI_LINKMAP, &map) && !realpath(map->l_name, path))
        snprintf(path, sizeof path, "%s", map->l_name);
    *l = (struct library){.handle = handle, .version = v};
    snprintf(l->text, sizeof l->text, "%s %d.%d.%d, %.500s", libraries[id].name, v / 10000,
             v / 100 % 100, v % 100, path);
    return 0;
}
