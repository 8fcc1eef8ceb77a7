/* artifact.c: writes NAME.tmp through file.h, which hashes the bytes while it writes them.
 * artifact_finish renames the file and syncs its directory. */
#include "api/core/artifact.h"

#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"

static int sync_parent(const char *path, struct err *e)
{
    char dir[FILE_PATH_SIZE];
    size_t n = (size_t)(strrchr(path, '/') - path);
    memcpy(dir, path, n);
    dir[n] = 0;
    return file_sync_dir(dir, e);
}

int artifact_path(const char *job_dir, const char *name, struct artifact_done *done, struct err *e)
{
    assert(name[0] && !strchr(name, '/') && strlen(name) < ARTIFACT_NAME);
    *done = (struct artifact_done){0};
    snprintf(done->name, sizeof done->name, "%s", name);
    if (file_join(done->path, e, "%s/artifacts", job_dir) || file_make_dir(done->path, e))
        return -1;
    return file_join(done->path, e, "%s/artifacts/%s", job_dir, name);
}

int artifact_open(struct artifact *a, const char *job_dir, const char *name, struct err *e)
{
    char tmp[FILE_PATH_SIZE];
    *a = (struct artifact){0};
    if (artifact_path(job_dir, name, &a->done, e) || file_join(tmp, e, "%s.tmp", a->done.path) ||
        file_out_open(&a->file, tmp, e))
        return -1;
    a->open = true;
    return 0;
}

int artifact_write(struct artifact *a, const void *data, size_t size, struct err *e)
{
    assert(a->open);
    return file_out_add(&a->file, data, size, e);
}

int artifact_finish(struct artifact *a, struct err *e)
{
    assert(a->open);
    a->done.size = a->file.size;
    if (file_out_close(&a->file, a->done.sha256, e)) {
        artifact_drop(a);
        return -1;
    }
    a->open = false;
    if (rename(a->file.path, a->done.path)) {
        err_errno(e, "rename %s", a->file.path);
        file_remove(a->file.path, NULL);
        return -1;
    }
    return sync_parent(a->done.path, e);
}

void artifact_drop(struct artifact *a)
{
    if (a->open) file_out_abort(&a->file);
    a->open = false;
}

int artifact_describe(struct artifact_done *done, struct err *e)
{
    if (sync_parent(done->path, e)) return -1;
    return sha256_file(done->path, done->sha256, &done->size, e);
}
