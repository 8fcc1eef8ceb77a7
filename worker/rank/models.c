/* models.c: walks the roots by openat. For each model directory it then forks a process, with
 * limits of time and memory, that writes the directory's report to a pipe. */
#include "worker/rank/models.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/jwrite.h"
#include "worker/gguf/model_file.h"
#include "worker/rank/report.h"

const struct models_limits models_limits = {6000, 6000, 24000, (int64_t)3 << 30};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- which directories ----------------------------------------------------------------------- */

struct walk_seen { /* Device and inode of a directory, by which a second path to the directory
                    * is recognized. */
    dev_t dev;
    ino_t ino;
};

struct root_walk {
    const struct models_limits *limits;
    int64_t begun_ms;
    int n_dirs, n_entries, n;
    char *path[MODELS_FOUND]; /* owned */
    struct walk_seen seen[MODELS_DIRS];
    int table[2 * MODELS_DIRS]; /* hash table; an entry is 0 if it is free, and otherwise 1
                                 * plus an index in `seen` */
    char incomplete[160];       /* the reason why the walk ended early; "" if it did not end
                                 * early */
};

/* Records the reason why the walk ends early. Returns false. */
static bool enough(struct root_walk *w, const char *why)
{
    if (!*w->incomplete) snprintf(w->incomplete, sizeof w->incomplete, "%s", why);
    return false;
}

static bool first_time(struct root_walk *w, const struct stat *st)
{
    const struct walk_seen x = {st->st_dev, st->st_ino};
    size_t at = ((size_t)x.ino * 0x9e3779b97f4a7c15u ^ (size_t)x.dev) % (2 * MODELS_DIRS);
    for (; w->table[at]; at = (at + 1) % (2 * MODELS_DIRS)) {
        const struct walk_seen *y = &w->seen[w->table[at] - 1];
        if (y->dev == x.dev && y->ino == x.ino) return false;
    }
    w->seen[w->n_dirs] = x;
    w->table[at] = ++w->n_dirs;
    return true;
}

struct names { /* The contents of a directory that matter for the walk. */
    bool config, tokenizer, weights, adapter; /* whether files were found that show a model
                                               * directory, or the directory of an adapter */
    int n, room, n_ggufs;
    struct name { /* a subdirectory, or a GGUF file; owned */
        char *text;
        bool gguf;
    } * name;
};

static void add_name(struct names *s, const char *name, bool gguf)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 16;
        if (!(s->name = realloc(s->name, (size_t)s->room * sizeof *s->name))) abort();
    }
    s->name[s->n] = (struct name){strdup(name), gguf};
    if (!s->name[s->n++].text) abort();
    s->n_ggufs += gguf;
}

static void names_free(struct names *s)
{
    for (int i = 0; i < s->n; i++) free(s->name[i].text);
    free(s->name);
}

/* Returns true if x is a regular file, or a symbolic link to a regular file. */
static bool is_file(int dir, const struct dirent *x)
{
    struct stat st;
    return x->d_type == DT_REG || ((x->d_type == DT_LNK || x->d_type == DT_UNKNOWN) &&
                                   !fstatat(dir, x->d_name, &st, 0) && S_ISREG(st.st_mode));
}

/* Adds a name in the directory `dir` to the contents n if it matters for the walk. */
static void look(struct names *n, int dir, const struct dirent *x)
{
    const char *name = x->d_name;
    const bool gguf = model_file_is_gguf(name) && *name != '.' && is_file(dir, x);
    if (gguf || x->d_type == DT_DIR || x->d_type == DT_UNKNOWN) add_name(n, name, gguf);
    n->config |= !strcmp(name, "config.json");
    n->adapter |= !strcmp(name, "adapter_config.json");
    n->tokenizer |= !strncmp(name, "tokeniz", 7) || !strcmp(name, "generation_config.json");
    n->weights |= !strcmp(name, "model.safetensors") ||
                  !strcmp(name, "model.safetensors.index.json");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* Adds a model. Takes ownership of path. */
static bool add_model(struct root_walk *w, char *path)
{
    if (!path) abort();
    if (w->n < MODELS_FOUND) {
        w->path[w->n++] = path;
        return true;
    }
    free(path);
    return enough(w, "the roots hold more models than are listed: 20000");
}

static bool walk_dir(struct root_walk *w, int fd, const char *path, int depth);

/* Visits the names of a directory in order: walks its subdirectories, and adds its GGUF files. */
static bool walk_below(struct root_walk *w, int parent, const char *path, struct names *names,
                       int depth)
{
    /* if there is only one GGUF file, the directory itself is listed as the model */
    const bool each = !names->config && names->n_ggufs > 1;
    if (names->n) qsort(names->name, (size_t)names->n, sizeof *names->name, by_text);
    for (int i = 0; i < names->n; i++) {
        const struct name *x = &names->name[i];
        char below[FILE_PATH_SIZE];
        if (x->gguf ? !each : depth == MODELS_DEPTH) continue;
        if (snprintf(below, sizeof below, "%s/%s", strcmp(path, "/") ? path : "", x->text) >=
            (int)sizeof below)
            continue;
        if (x->gguf) {
            if (!add_model(w, strdup(below))) return false;
            continue;
        }
        if (beneath_private(below)) continue;
        const int fd = openat(parent, x->text,
                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && !walk_dir(w, fd, below, depth + 1)) return false;
    }
    return true;
}

static bool in_time(struct root_walk *w)
{
    return now_ms() - w->begun_ms <= w->limits->walk_ms ||
           enough(w, "looking for directories took too long");
}

/* Reads the names in a directory. */
static bool read_names(struct root_walk *w, DIR *d, struct names *names)
{
    for (struct dirent *x; (x = readdir(d));) {
        if (++w->n_entries > MODELS_ENTRIES)
            return enough(w, "the roots hold more names than are read: 400000");
        if (w->n_entries % 256 == 0 && !in_time(w)) return false;
        if (strcmp(x->d_name, ".") && strcmp(x->d_name, "..")) look(names, dirfd(d), x);
    }
    return true;
}

/* Walks a directory. Takes ownership of fd. Returns false if the walk is over. */
static bool walk_dir(struct root_walk *w, int fd, const char *path, int depth)
{
    struct names names = {0};
    struct stat st;
    bool rc = true;
    if (!in_time(w))
        rc = false;
    else if (w->n_dirs == MODELS_DIRS)
        rc = enough(w, "the roots hold more directories than are looked at: 20000");
    DIR *d = rc && !fstat(fd, &st) && first_time(w, &st) ? fdopendir(fd) : NULL;
    if (!d) {
        close(fd);
        return rc;
    }
    rc = read_names(w, d, &names);
    const bool described = names.config && names.tokenizer && !names.adapter;
    const bool model = names.weights || described;
    const bool one_gguf = !names.config && names.n_ggufs == 1;
    if (rc && (model || one_gguf)) rc = add_model(w, strdup(path));
    if (rc && !model) rc = walk_below(w, dirfd(d), path, &names, depth);
    names_free(&names);
    closedir(d);
    return rc;
}

/* Walks the roots, and stores models in the order of the walk. If the walk ends early, the
 * models that were found first are stored, so that the number of a model is the same on every
 * page. */
static void walk_roots(struct root_walk *w, const char *const *roots, int n_roots)
{
    for (int i = 0; i < n_roots; i++) {
        if (beneath_private(roots[i])) continue;
        const int fd = open(roots[i], O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && !walk_dir(w, fd, roots[i], 0)) break;
    }
}

/* ---- one of them ----------------------------------------------------------------------------- */

/* Largest size in bytes of a report with MODELS_FAULTS faults. A pipe has room for more bytes. */
enum { ONE_SIZE = 16384 };

/* Runs in a separate process: inspects a directory, and exits. */
static void child(const char *path, int fd, const struct models_limits *l, pid_t parent)
{
    static char out[ONE_SIZE];
    const struct rlimit data = {(rlim_t)l->memory_size, (rlim_t)l->memory_size};
    const struct rlimit cpu = {(rlim_t)(l->one_ms / 1000 + 1), (rlim_t)(l->one_ms / 1000 + 1)};
    const struct rlimit core = {0, 0};
    int n_faults;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || (l->memory_size && setrlimit(RLIMIT_DATA, &data)) ||
        setrlimit(RLIMIT_CPU, &cpu) || setrlimit(RLIMIT_CORE, &core))
        _exit(1);
    /* A crash would print text that is not a line of the log, so stderr is redirected to
     * /dev/null. */
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    const int64_t n = report_write(path, path, MODELS_FAULTS, out, sizeof out, &n_faults);
    _exit(n > 0 && write(fd, out, (size_t)n) == n ? 0 : 1);
}

/* Reads until the child closes the pipe, or until the time until_ms. Returns the number of bytes,
 * or -1 if the time is over. */
static int64_t receive(int fd, char *out, int64_t size, int64_t until_ms)
{
    int64_t n = 0;
    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        const int64_t left = until_ms - now_ms();
        if (left <= 0 || poll(&p, 1, (int)left) == 0) return -1;
        const ssize_t got = read(fd, out + n, (size_t)(size - 1 - n));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return out[n] = 0, n;
        n += got;
    }
}

/* Writes one report into out. */
static void look_at(const char *path, const struct models_limits *l, int64_t until_ms, char *out)
{
    char why[160] = "";
    int fd[2], status = 0;
    const pid_t parent = getpid();
    const pid_t pid = pipe2(fd, O_CLOEXEC) ? -2 : fork();
    if (pid == 0) {
        close(fd[0]);
        child(path, fd[1], l, parent);
    }
    if (pid != -2) close(fd[1]);
    const int64_t n = pid > 0 ? receive(fd[0], out, ONE_SIZE, until_ms) : 0;
    if (pid != -2) close(fd[0]);
    if (n < 0) kill(pid, SIGKILL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (pid < 0)
        snprintf(why, sizeof why, "no process could be started to look at it: %s", strerror(errno));
    else if (n < 0)
        snprintf(why, sizeof why, "looking at it took longer than %.3g s",
                 (double)l->one_ms / 1000);
    else if (WIFSIGNALED(status))
        snprintf(why, sizeof why,
                 "the process that looked at it died of signal %d, as one does that needs more "
                 "than %lld MiB: seqctl model check says more on that node",
                 WTERMSIG(status), (long long)(l->memory_size >> 20));
    else if (status)
        snprintf(why, sizeof why, "its report does not fit");
    if (*why) report_failed(path, why, out, ONE_SIZE);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Returns true if the page ends before model i. A page ends if the answer is full, or if the
 * time that is left is less than the time limit of one model. However, a page always has at
 * least one model, so that every page makes progress. */
static bool page_ends(const struct jwrite *w, const struct root_walk *walk, int64_t first,
                      int64_t i, int64_t size)
{
    if (i <= first) return false;
    return i - first == MODELS_MAX || (int64_t)w->len + ONE_SIZE > size ||
           now_ms() + walk->limits->one_ms > walk->begun_ms + walk->limits->all_ms;
}

/* Writes the models, beginning with number `first`. Returns the number of the first model of the
 * next page, or -1 if there is no next page. */
static int64_t put_models(struct jwrite *w, const struct root_walk *walk, int64_t first,
                          int64_t size)
{
    static char one[ONE_SIZE];
    const struct models_limits *l = walk->limits;
    for (int64_t i = first; i < walk->n; i++) {
        if (page_ends(w, walk, first, i, size)) return i;
        look_at(walk->path[i], l, now_ms() + l->one_ms, one);
        jwrite_raw(w, NULL, one);
    }
    return -1;
}

int64_t models_write(const char *const *roots, int n_roots, int64_t first,
                     const struct models_limits *l, char *out, int64_t size)
{
    struct jwrite w;
    struct root_walk *walk = calloc(1, sizeof *walk);
    if (!walk) abort();
    walk->limits = l;
    walk->begun_ms = now_ms();
    walk_roots(walk, roots, n_roots);
    jwrite_init(&w, out, (size_t)size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "models");
    const int64_t next = put_models(&w, walk, first, size - 1024);
    jwrite_end(&w);
    if (*walk->incomplete)
        jwrite_str(&w, "incomplete", walk->incomplete);
    else
        jwrite_null(&w, "incomplete");
    if (next > first) jwrite_int(&w, "next", next);
    jwrite_end(&w);
    for (int i = 0; i < walk->n; i++) free(walk->path[i]);
    free(walk);
    return jwrite_finish(&w);
}

/* Reads the option --first=N, which may precede the roots. Returns false if the word is not this
 * option. */
static bool take_first(const char *word, int64_t *first)
{
    static const char option[] = "--first=";
    const char *digits = word + sizeof option - 1;
    char *end;
    if (strncmp(word, option, sizeof option - 1)) return false;
    errno = 0;
    *first = strtoll(digits, &end, 10);
    /* A number that is larger than the number of every model. */
    if (errno || end == digits || *end || *first < 0) *first = INT64_MAX;
    return true;
}

int models_main(const char *const *roots, int n_roots)
{
    char *out = malloc(MODELS_SIZE);
    int64_t first = 0;
    if (!out) abort();
    if (n_roots && take_first(*roots, &first)) roots++, n_roots--;
    beneath_confine(roots, n_roots);
    const int64_t n = models_write(roots, n_roots, first, &models_limits, out, MODELS_SIZE);
    const int rc = n < 0 || puts(out) < 0 || fflush(stdout) ? 1 : 0;
    free(out);
    return rc;
}
