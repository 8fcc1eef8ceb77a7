/* secret.c: reads the secret of a state directory or makes it, and derives the keys of attempts. */
#include "daemon/access/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/hmac.h"

void secret_attempt_key(const unsigned char secret[SECRET_SIZE], int64_t job, int64_t epoch,
                        unsigned char out[RANK_KEY_SIZE])
{
    static_assert(RANK_KEY_SIZE == HMAC_SIZE, "a key is one HMAC");
    char what[64];
    int n = snprintf(what, sizeof what, "attempt %lld %lld", (long long)job, (long long)epoch);
    hmac_sha256(secret, SECRET_SIZE, what, (size_t)n, out);
}

static int make(const char *state_dir, const char *path, unsigned char out[SECRET_SIZE],
                struct err *e)
{
    if (getrandom(out, SECRET_SIZE, 0) != SECRET_SIZE) return err_errno(e, "random bytes");
    return file_write_private(path, out, SECRET_SIZE, e) || file_sync_dir(state_dir, e) ? -1 : 0;
}

int secret_open(const char *state_dir, unsigned char out[SECRET_SIZE], struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct stat st;
    size_t size = 0;
    if (file_join(path, e, "%s/secret", state_dir)) return -1;
    if (stat(path, &st) && errno == ENOENT) return make(state_dir, path, out, e);
    char *data = file_read(path, SECRET_SIZE, &size, e);
    if (!data) return -1;
    int rc = 0;
    if (size != SECRET_SIZE)
        rc = err_set(e, ERR_CORRUPT, "%s has %zu bytes, want %d", path, size, SECRET_SIZE);
    else if (st.st_mode & 077)
        rc = err_set(e, ERR_INVALID, "%s may be read by others: chmod 600 it", path);
    else
        memcpy(out, data, SECRET_SIZE);
    explicit_bzero(data, size);
    free(data);
    return rc;
}
