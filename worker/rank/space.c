/* space.c: compares the free bytes of disks with the sizes of files. */
#include "worker/rank/space.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static long long free_mib(const struct statvfs *fs)
{
    return (long long)(fs->f_bavail * fs->f_frsize >> 20);
}

static bool fits(const struct statvfs *fs, int64_t size)
{
    return (int64_t)(fs->f_bavail * fs->f_frsize) > size;
}

int space_check(const char *what, const char *dir, int copy, int64_t size, struct err *e)
{
    struct statvfs here, there;
    struct stat is, of;
    int64_t need = size;
    if (statvfs(dir, &here) || stat(dir, &is)) return err_errno(e, "%s", dir);
    if (copy >= 0 && (fstatvfs(copy, &there) || fstat(copy, &of)))
        return err_errno(e, "output.path");
    const bool one_disk = copy >= 0 && is.st_dev == of.st_dev;
    if (one_disk) need = size > INT64_MAX / 2 ? INT64_MAX : 2 * size;
    if (!fits(&here, need))
        return err_set(e, ERR_NO_SPACE,
                       "%s needs %lld MiB on the disk of %s%s, and %lld MiB are free: remove what "
                       "is not needed there",
                       what, (long long)(need >> 20) + 1, dir,
                       one_disk ? ", which has its copy in output.path, too" : "", free_mib(&here));
    if (copy < 0 || one_disk || fits(&there, size)) return 0;
    return err_field(e, ERR_NO_SPACE, "output.path",
                     "output.path: the copy of %s needs %lld MiB on its disk, and %lld MiB are "
                     "free: remove what is not needed there, or name a directory of another disk",
                     what, (long long)(size >> 20) + 1, free_mib(&there));
}

int space_of_files(const char *dir, int64_t *size, struct err *e)
{
    DIR *d = opendir(dir);
    struct dirent *ent;
    struct stat st;
    int rc = d ? 0 : err_errno(e, "open %s", dir);
    *size = 0;
    while (!rc && (ent = readdir(d))) {
        if (fstatat(dirfd(d), ent->d_name, &st, AT_SYMLINK_NOFOLLOW))
            rc = err_errno(e, "%s/%s", dir, ent->d_name);
        else if (S_ISREG(st.st_mode))
            *size += (int64_t)st.st_size;
    }
    if (d) closedir(d);
    return rc;
}
