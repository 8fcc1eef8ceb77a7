/* sandbox.c: lists the paths of the system that every rank may reach, and walks roots around
 * their private directories. */
#include "api/core/sandbox.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/library.h"
#include "api/core/seccomp.h"

const char *const sandbox_modes[] = {"off", "auto", "require", NULL};

int sandbox_mode(const char *word)
{
    for (int i = 0; i < SANDBOX_MODE_N; i++)
        if (!strcmp(word, sandbox_modes[i])) return i;
    return -1;
}

bool sandbox_lacks(char *out, size_t size)
{
    const int abi = landlock_abi();
    const char *const lacks[] = {
        seccomp_works() ? "" : " filters of system calls (seccomp)",
        abi >= LANDLOCK_FILES ? "" : ", files (Landlock ABI 2, Linux 5.19)",
        abi >= LANDLOCK_PORTS ? "" : ", ports of TCP (ABI 4, Linux 6.7)",
        abi >= LANDLOCK_SIGNALS ? "" : ", signals (ABI 6, Linux 6.12)",
    };
    char text[SANDBOX_TEXT] = "";
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", lacks[i]);
    snprintf(out, size, "this kernel cannot confine ranks in%s: its Landlock is of ABI %d",
             *text == ',' ? text + 1 : text, abi);
    return *text;
}

/* ---- paths of the system --------------------------------------------------------------------- */

/* /etc has keys of services, so only these files of it. Links are followed. */
static const char *const read_only[] = {
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/bin",
    "/sbin",
    "/nix/store",
    "/gnu/store",
    "/proc",
    "/sys",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/locale.alias",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/openssl.cnf",
    "/etc/crypto-policies",
};
static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                      "/dev/urandom"};

/* Allows each absolute folder of a list that colons separate. */
static int allow_folders(const struct landlock *l, const char *list, struct err *e)
{
    char folder[PATH_MAX];
    int rc = 0;
    while (list && *list && !rc) {
        const size_t n = strcspn(list, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)n, list);
        if (*folder == '/' && n < sizeof folder) rc = landlock_allow(l, folder, LANDLOCK_READ, e);
        list += n + (list[n] == ':');
    }
    return rc;
}

/* Allows the directory of the program, and its libraries beside it. */
static int allow_program(const struct landlock *l, const char *program, struct err *e)
{
    char path[PATH_MAX];
    const char *slash = strrchr(program, '/');
    const int n = slash ? (int)(slash - program) : 0;
    if (!n || snprintf(path, sizeof path, "%.*s/../lib/seqd", n, program) >= (int)sizeof path)
        return landlock_allow(l, program, LANDLOCK_READ, e);
    if (landlock_allow(l, path, LANDLOCK_READ, e)) return -1;
    path[n] = 0;
    return landlock_allow(l, path, LANDLOCK_READ, e);
}

int sandbox_allow_system(const struct landlock *l, const char *program, struct err *e)
{
    char real[PATH_MAX]; /* the program may be a link to another directory */
    int rc = allow_program(l, program, e);
    if (!rc && realpath(program, real)) rc = allow_program(l, real, e);
    for (size_t i = 0; i < sizeof read_only / sizeof *read_only && !rc; i++)
        rc = landlock_allow(l, read_only[i], LANDLOCK_READ, e);
    for (size_t i = 0; i < sizeof devices / sizeof *devices && !rc; i++)
        rc = landlock_allow(l, devices[i], LANDLOCK_DEVICE, e);
    if (!rc) rc = allow_folders(l, getenv("LD_LIBRARY_PATH"), e);
    return rc ? rc : allow_folders(l, getenv(LIBRARY_FOLDERS), e);
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* Private directories are looked for among this many entries of a directory. */
enum { LOOKED_AT = 4096 };

struct root_rules {
    const struct landlock *l;
    char state[PATH_MAX]; /* seqw's state directory, without links; "" if it is not there */
    enum landlock_files what;
};

static int allow_all(const struct root_rules *r, const char *path, struct err *e);

/* Allows an entry of a directory that has something private. Links are left out: their targets are
 * allowed where they lie. */
static int allow_entry(const struct root_rules *r, const char *dir, const char *name, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, NULL, "%s/%s", strcmp(dir, "/") ? dir : "", name) < 0) return 0;
    if (beneath_rest(path, r->state)) return allow_all(r, path, e);
    const int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return 0;
    const int rc = beneath_marked(path) ? 0 : landlock_allow_fd(r->l, fd, r->what, e);
    close(fd);
    return rc;
}

/* Tells whether a directory of the root is private. */
static bool has_private(const char *root)
{
    char path[FILE_PATH_SIZE];
    bool found = false;
    DIR *d = opendir(root);
    const struct dirent *ent;
    for (int i = 0; d && !found && i < LOOKED_AT && (ent = readdir(d)); i++) {
        if (*ent->d_name == '.' && (!ent->d_name[1] || ent->d_name[1] == '.')) continue;
        if (ent->d_type != DT_DIR && ent->d_type != DT_UNKNOWN) continue;
        found = file_join(path, NULL, "%s/%s", root, ent->d_name) >= 0 && beneath_marked(path);
    }
    if (d) closedir(d);
    return found;
}

/* Allows a directory without those of its entries that are private, or hold the state directory.
 * Names can be listed everywhere beneath it. */
static int allow_all(const struct root_rules *r, const char *path, struct err *e)
{
    if (beneath_marked(path) || !strcmp(path, r->state)) return 0;
    if (!beneath_rest(path, r->state) && !has_private(path))
        return landlock_allow(r->l, path, r->what, e);
    DIR *d = opendir(path);
    int rc = landlock_allow(r->l, path, LANDLOCK_NAMES, e);
    const struct dirent *ent;
    while (d && !rc && (ent = readdir(d)))
        if (strcmp(ent->d_name, ".") && strcmp(ent->d_name, ".."))
            rc = allow_entry(r, path, ent->d_name, e);
    if (d) closedir(d);
    return rc;
}

int sandbox_allow_root(const struct landlock *l, const char *root, const char *state,
                       enum landlock_files what, struct err *e)
{
    struct root_rules r = {.l = l, .what = what};
    if (l->fd < 0 || beneath_private(root)) return 0;
    if (!realpath(state, r.state)) *r.state = 0;
    return allow_all(&r, root, e);
}

/* ---- a process that reads -------------------------------------------------------------------- */

static int allow_reader(const struct landlock *l, const struct sandbox_reader *r, struct err *e)
{
    int rc = sandbox_allow_system(l, r->program, e);
    for (int i = 0; i < r->n_roots && !rc; i++)
        rc = sandbox_allow_root(l, r->roots[i], r->state, LANDLOCK_READ, e);
    for (int i = 0; i < r->n_paths && !rc; i++)
        rc = landlock_allow(l, r->paths[i], LANDLOCK_READ, e);
    if (!rc && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || landlock_enter(l)))
        rc = err_errno(e, "enter the sandbox");
    return rc;
}

int sandbox_enter_reader(const struct sandbox_reader *r, struct err *e)
{
    const struct landlock_options o = {
        .files = true, .bind = true, .connect = true, .signals = true, .abstract = true};
    const struct seccomp_options calls = {.processes = true};
    struct landlock l;
    int rc = landlock_open(&l, &o, e);
    if (!rc) rc = allow_reader(&l, r, e);
    landlock_close(&l);
    if (!rc && seccomp_works() && seccomp_enter(&calls)) rc = err_errno(e, "filter system calls");
    return rc;
}
