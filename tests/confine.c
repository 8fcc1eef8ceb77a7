/* confine.c: runs a program in a domain of Landlock. In this domain the program can read the
 * system's files and the given paths, but no other files of the tree or of users' homes. Writing
 * is not restricted.
 *   confine                                exits with 0 if this kernel has Landlock
 *   confine TREE PATH... -- PROGRAM ARG... exits with 125 if the domain cannot be made */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READING                                                                                    \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
/* A domain forbids renames from one folder to another unless it allows them explicitly. */
#define RENAMING LANDLOCK_ACCESS_FS_REFER

static int fail(const char *what)
{
    fprintf(stderr, "confine: %s: %s\n", what, strerror(errno));
    return 125;
}

static int allow(int rules, const char *path, uint64_t access)
{
    struct stat st;
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) return -1;
    if (!S_ISDIR(st.st_mode)) access &= ~(uint64_t)(LANDLOCK_ACCESS_FS_READ_DIR | RENAMING);
    const struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    const long rc = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(fd);
    return rc ? -1 : 0;
}

/* Tells whether a folder of / contains the path. */
static int holds(const char *folder, const char *path)
{
    const size_t n = strlen(folder);
    return path && !strncmp(path, folder, n) && (path[n] == '/' || !path[n]);
}

/* Allows each folder of / that contains neither the tree nor a home. A symlink needs no rule.
 * Whether a symlink's target may be read depends only on the rules for the target. */
static int allow_system(int rules, const char *tree)
{
    char path[PATH_MAX], of_home[PATH_MAX];
    const char *home = getenv("HOME");
    home = home && realpath(home, of_home) ? of_home : NULL;
    DIR *root = opendir("/");
    const struct dirent *d;
    int rc = root ? 0 : -1;
    while (!rc && (d = readdir(root))) {
        snprintf(path, sizeof path, "/%s", d->d_name);
        if (d->d_name[0] == '.' || d->d_type == DT_LNK || holds(path, tree) ||
            (home && home[1] && holds(path, home)) || !strcmp(path, "/home") ||
            !strcmp(path, "/root"))
            continue;
        if (allow(rules, path, READING) && errno != ENOENT && errno != EACCES) rc = -1;
    }
    if (root) closedir(root);
    return rc;
}

int main(int argc, char **argv)
{
    const struct landlock_ruleset_attr all = {.handled_access_fs = READING | RENAMING};
    char tree[PATH_MAX];
    if (argc == 1)
        return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 2;
    if (!realpath(argv[1], tree)) return fail(argv[1]);
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) return fail("no Landlock");
    if (allow(rules, "/", RENAMING) || allow_system(rules, tree)) return fail("system folders");
    int i = 2;
    for (; i < argc && strcmp(argv[i], "--"); i++)
        if (allow(rules, argv[i], READING)) return fail(argv[i]);
    if (i + 1 >= argc) {
        fprintf(stderr, "usage: confine TREE PATH... -- PROGRAM ARG...\n");
        return 125;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, rules, 0))
        return fail("the domain");
    close(rules);
    execv(argv[i + 1], argv + i + 1);
    return fail(argv[i + 1]);
}
