/* sources: api/pki.c api/core/beneath.c api/core/err.c api/core/file.c api/core/log.c api/core/sha256.c -lssl -lcrypto
 *
 * Reads certificate requests and certificates, which strangers may send to a seqd that nodes can
 * join. It must be possible to sign an accepted request. The certificate must be valid only for
 * the key and the name in the request. */
#include "api/pki.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pki *authority(void)
{
    static struct pki *p;
    char dir[] = "/tmp/seqd-fuzz-pki-XXXXXX";
    struct err e;
    if (p) return p;
    char *made = mkdtemp(dir);
    assert(made);
    p = pki_open(dir, 2000000000, &e);
    assert(p);
    file_remove(dir, &e);
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pki *p = authority();
    const struct pki_node as = {"a", 7, 1999999000, 2000009000, ""};
    struct pki_node got;
    struct err e = {0};
    char text[PKI_PEM_SIZE], key[SHA256_HEX], cert[PKI_PEM_SIZE];
    if (size >= sizeof text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (pki_request_key(text, key, &e) == 0) {
        int rc = pki_sign(p, text, &as, cert, &e);
        assert(!rc);
        rc = pki_verify(p, cert, 2000000000, &got, &e);
        assert(!rc && !strcmp(got.key, key) && !strcmp(got.name, "a") && got.serial == 7);
    } else {
        assert(e.code != ERR_NONE && e.text[0]);
    }
    int rc = pki_verify(p, text, 2000000000, &got, &e);
    assert(rc < 0); /* this authority has signed no certificate of the input */
    if (pki_read(text, &got, &e) == 0) assert(got.serial >= 1 && got.name[0]);
    return 0;
}
