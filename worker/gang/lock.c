/* lock.c: locks DIR/lock, or continues the lock that seqw took for this process. */
#include "worker/gang/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/gang_start.h"

/* Returns the descriptor that seqw locked, or -1 if this process was started by hand. */
static int inherited(const char *path)
{
    struct stat here, there;
    if (fstat(GANG_LOCK_FD, &here) < 0 || stat(path, &there) < 0) return -1;
    if (here.st_dev != there.st_dev || here.st_ino != there.st_ino) return -1;
    return fcntl(GANG_LOCK_FD, F_SETFD, FD_CLOEXEC) < 0 ? -1 : GANG_LOCK_FD;
}

/* Fails if a gang has run in this directory. */
static int check_fresh(const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/exit", dir) < 0) return -1;
    if (file_exists(path)) return err_set(e, ERR_CONFLICT, "%s exists: this attempt is over", path);
    if (file_join(path, e, "%s/pids", dir) < 0) return -1;
    if (file_exists(path)) return err_set(e, ERR_CONFLICT, "%s exists: ranks ran here", path);
    return 0;
}

int lock_take(const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/lock", dir) < 0) return -1;
    int fd = inherited(path);
    if (fd < 0) fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, "open %s", path);
    int rc = flock(fd, LOCK_EX | LOCK_NB);
    if (rc < 0) err_set(e, ERR_CONFLICT, "%s is held: a gang runs here already", path);
    if (rc == 0) rc = check_fresh(dir, e);
    if (rc == 0) return fd;
    close(fd);
    return -1;
}
