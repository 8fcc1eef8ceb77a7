#include "daemon/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include "api/core/file.h"

/* The digest as bytes: core knows it as digits. */
static void digest(struct sha256 *s, unsigned char out[32])
{
    char hex[SHA256_HEX];
    unsigned byte;
    sha256_hex(s, hex);
    for (int i = 0; i < 32; i++) {
        sscanf(hex + 2 * i, "%2x", &byte);
        out[i] = (unsigned char)byte;
    }
    explicit_bzero(hex, sizeof hex);
}

/* RFC 2104 with SHA-256; the key is shorter than a block. */
static void hmac(const unsigned char key[SECRET_SIZE], const void *data, size_t size,
                 unsigned char out[32])
{
    unsigned char pad[64];
    struct sha256 s;
    for (int outer = 0; outer < 2; outer++) {
        memset(pad, outer ? 0x5c : 0x36, sizeof pad);
        for (int i = 0; i < SECRET_SIZE; i++) pad[i] ^= key[i];
        sha256_init(&s);
        sha256_add(&s, pad, sizeof pad);
        sha256_add(&s, outer ? out : data, outer ? 32 : size);
        digest(&s, out);
    }
    explicit_bzero(pad, sizeof pad);
    explicit_bzero(&s, sizeof s);
}

void secret_attempt_key(const unsigned char secret[SECRET_SIZE], int64_t job, int64_t epoch,
                        unsigned char out[RANK_KEY_SIZE])
{
    char what[64];
    int n = snprintf(what, sizeof what, "attempt %lld %lld", (long long)job, (long long)epoch);
    hmac(secret, what, (size_t)n, out);
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
