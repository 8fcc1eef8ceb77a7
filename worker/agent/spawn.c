/* spawn.c: calls posix_spawn with file actions for the three standard descriptors and a gang's
 * lock. */
#include "worker/agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "worker/agent/environment.h"

extern char **environ;

/* Starts a program. out_fd becomes stdout, and err_fd becomes stderr. If lock_fd is given, it
 * becomes the next descriptor. All other descriptors of seqw are close-on-exec. */
static int spawn(const char *program, char *const argv[], int out_fd, int err_fd, int lock_fd,
                 struct err *e)
{
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t actions;
    sigset_t none, all;
    pid_t pid = -1;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_fd, STDERR_FILENO);
    if (lock_fd >= 0) posix_spawn_file_actions_adddup2(&actions, lock_fd, GANG_LOCK_FD);
    char **env = environment_for_ranks(environ);
    errno = posix_spawn(&pid, program, &actions, &attr, argv, env);
    if (errno) pid = -1, err_errno(e, "cannot run %s", program);
    const int why = errno;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    free(env);
    errno = why;
    return pid;
}

int spawn_program(const char *program, char *const argv[], int out_fd, int err_fd, struct err *e)
{
    return spawn(program, argv, out_fd, err_fd, -1, e);
}

int spawn_gang(const char *program, const char *dir, int lock_fd, struct err *e)
{
    char path[FILE_PATH_SIZE];
    char *argv[] = {"seqgang", (char *)dir, NULL};
    if (file_join(path, e, "%s/gang.log", dir) < 0) return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, "open %s", path);
    int pid = spawn(program, argv, fd, fd, lock_fd, e);
    close(fd);
    return pid;
}
