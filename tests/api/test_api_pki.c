/* test_api_pki: tests the certificate authority of a seqd. Checks its files, the requests that it
 * signs, and the requests that it refuses. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/pki.h"
#include "tests/lib/test.h"

static char dir[] = "/tmp/seqd-pki-XXXXXX";
static const int64_t NOW = 2000000000; /* in 2033 */
static struct err e;

static char *in_dir(const char *name)
{
    static char path[4][256];
    static int n;
    char *out = path[n++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", dir, name);
    return out;
}

static struct pki *open_ca(const char *name)
{
    struct pki *p = pki_open(in_dir(name), NOW, &e);
    CHECK_MSG(p, "%s", e.text);
    return p;
}

static struct pki_node wanted(const char *name, int64_t serial, int64_t life_s)
{
    struct pki_node n = {.serial = serial, .from_s = NOW - PKI_SKEW_S, .until_s = NOW + life_s};
    snprintf(n.name, sizeof n.name, "%s", name);
    return n;
}

static void make_request(const char *name, char key[PKI_PEM_SIZE], char csr[PKI_PEM_SIZE])
{
    CHECK(!pki_key_make(key, &e) && !pki_request(key, name, csr, &e));
}

static void test_authority_is_kept(void)
{
    struct stat st;
    char seen[SHA256_HEX];
    struct pki *p = open_ca("kept");
    snprintf(seen, sizeof seen, "%s", pki_fingerprint(p));
    CHECK(strlen(seen) == 64 && strstr(pki_ca(p), "BEGIN CERTIFICATE"));
    CHECK(!strstr(pki_ca(p), "PRIVATE"));
    pki_close(p);
    CHECK(!stat(in_dir("kept/ca.pem"), &st) && (st.st_mode & 0777) == 0600);
    CHECK(!stat(in_dir("kept"), &st) && (st.st_mode & 0777) == 0700);
    p = open_ca("kept");
    CHECK_STR(pki_fingerprint(p), seen);
    pki_close(p);
    p = open_ca("other");
    CHECK(strcmp(pki_fingerprint(p), seen));
    pki_close(p);
}

static void test_authority_damaged(void)
{
    pki_close(open_ca("bad"));
    chmod(in_dir("bad/ca.pem"), 0644);
    /* An existing file is made private again, like everything in a state directory. */
    struct pki *p = pki_open(in_dir("bad"), NOW, &e);
    struct stat st;
    CHECK(p && !stat(in_dir("bad/ca.pem"), &st) && (st.st_mode & 0777) == 0600);
    pki_close(p);
    CHECK(!file_write_private(in_dir("bad/ca.pem"), "nonsense", 8, &e));
    CHECK(!pki_open(in_dir("bad"), NOW, &e) && e.code == ERR_CORRUPT && strstr(e.text, "ca.pem"));
    /* The key and the certificate belong to different authorities. */
    struct pki *other = open_ca("bad2");
    char *text = file_read(in_dir("kept/ca.pem"), PKI_FILE_SIZE, NULL, &e), *cert;
    CHECK(text && (cert = strstr(text, "-----BEGIN CERTIFICATE")));
    char mixed[PKI_FILE_SIZE];
    snprintf(mixed, sizeof mixed, "%.*s%s", (int)(cert - text), text, pki_ca(other));
    CHECK(!file_write_private(in_dir("bad/ca.pem"), mixed, strlen(mixed), &e));
    CHECK(!pki_open(in_dir("bad"), NOW, &e) && e.code == ERR_CORRUPT);
    /* A node's certificate is not the certificate of an authority. */
    char key[PKI_PEM_SIZE], csr[PKI_PEM_SIZE], node[PKI_PEM_SIZE];
    make_request("a", key, csr);
    CHECK(!pki_sign(other, csr, &(struct pki_node){"a", 1, NOW, NOW + 9, ""}, node, &e));
    snprintf(mixed, sizeof mixed, "%s%s", key, node);
    CHECK(!file_write_private(in_dir("bad/ca.pem"), mixed, strlen(mixed), &e));
    CHECK(!pki_open(in_dir("bad"), NOW, &e) && e.code == ERR_CORRUPT);
    free(text);
    pki_close(other);
}

static void test_node(void)
{
    char key[PKI_PEM_SIZE], csr[PKI_PEM_SIZE], cert[PKI_PEM_SIZE], digest[SHA256_HEX];
    struct pki *p = open_ca("kept"), *other = open_ca("other");
    struct pki_node want = wanted("gpu-7.rack_2:a", 0x7123456789abcdef, 3600), got;
    make_request("another name, which is not read", key, csr);
    CHECK(!pki_request_key(csr, digest, &e) && strlen(digest) == 64);
    CHECK_MSG(!pki_sign(p, csr, &want, cert, &e), "%s", e.text);
    CHECK_MSG(!pki_verify(p, cert, NOW, &got, &e), "%s", e.text);
    CHECK_STR(got.name, want.name);
    CHECK_STR(got.key, digest);
    CHECK(got.serial == want.serial && got.from_s == want.from_s && got.until_s == want.until_s);
    CHECK(!pki_match(key, cert, pki_ca(p), &e));
    CHECK(pki_match(key, cert, pki_ca(other), &e) && strstr(e.text, "authority"));
    CHECK(!pki_read(cert, &got, &e) && got.serial == want.serial);
    /* before, at and after its dates */
    CHECK(!pki_verify(p, cert, want.until_s - 1, &got, &e));
    CHECK(pki_verify(p, cert, want.until_s + 1, &got, &e));
    CHECK_MSG(strstr(e.text, "gpu-7.rack_2:a expired at 2033-05-18T04:33:20Z"), "%s", e.text);
    CHECK(pki_verify(p, cert, want.from_s - 1, &got, &e) && strstr(e.text, "not valid before"));
    /* Another authority. */
    CHECK(pki_verify(other, cert, NOW, &got, &e) && strstr(e.text, "is not of this seqd"));
    /* Another key. */
    char key2[PKI_PEM_SIZE];
    CHECK(!pki_key_make(key2, &e) && strcmp(key, key2));
    CHECK(pki_match(key2, cert, pki_ca(p), &e) && strstr(e.text, "another key"));
    /* One bit of the signature is flipped. */
    char *end = strstr(cert, "-----END");
    end[-12] = end[-12] == 'A' ? 'B' : 'A';
    CHECK(pki_verify(p, cert, NOW, &got, &e) < 0);
    pki_close(other);
    pki_close(p);
}

static void test_server_is_no_node(void)
{
    struct pki *p = open_ca("kept");
    struct pki_server s, again;
    struct pki_node got;
    CHECK_MSG(!pki_serve(p, NOW, 3600, &s, &e), "%s", e.text);
    CHECK(!pki_match(s.key, s.chain, pki_ca(p), &e));
    CHECK(strstr(s.chain, pki_ca(p)));
    CHECK(pki_verify(p, s.chain, NOW, &got, &e) && strstr(e.text, "not of a node"));
    CHECK(pki_verify(p, pki_ca(p), NOW, &got, &e) && strstr(e.text, "not of a node"));
    CHECK(!pki_serve(p, NOW, 3600, &again, &e) && strcmp(s.key, again.key));
    pki_close(p);
}

/* The key is on a curve that is not accepted. */
static const char p384[] = "-----BEGIN CERTIFICATE REQUEST-----\n"
                           "MIIBBDCBiwIBADAMMQowCAYDVQQDDAFhMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE\n"
                           "R4uybr6sH+EsOVEfaG4qYoepAx0RItg0U2+zXN7TZObCLFVTxhc6QWdkqfg3Zc6y\n"
                           "SvIItYqsyiBChqf8e06J9rb4CsJfj07SvPGlnUbMGSa6qdqtFYgQPgPQ1fmmB8rr\n"
                           "oAAwCgYIKoZIzj0EAwIDaAAwZQIxAPoGP8ZXMZoaSWczkkZKibknLCz3lpiuxBpy\n"
                           "eEwW16ZQ5f2Xgn2Z3H1DqDTB4dVCXgIwB6qeqPQoQNcWEDezZcEHQoJjRG74p198\n"
                           "lpI+tkNZzlVCYP4FkdPNiGNehqFvW530\n"
                           "-----END CERTIFICATE REQUEST-----\n";

static void test_requests(void)
{
    char key[PKI_PEM_SIZE], csr[PKI_PEM_SIZE], digest[SHA256_HEX], cert[PKI_PEM_SIZE];
    static const char *const bad[] = {"", "nonsense", "-----BEGIN CERTIFICATE REQUEST-----\n",
                                      "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"
                                      "-----END CERTIFICATE REQUEST-----\n"};
    struct pki *p = open_ca("kept");
    const struct pki_node as = wanted("a", 1, 60);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(pki_request_key(bad[i], digest, &e) && e.code == ERR_INVALID);
        CHECK(pki_sign(p, bad[i], &as, cert, &e) && e.code == ERR_INVALID);
    }
    CHECK(pki_request_key(p384, digest, &e) && strstr(e.text, "want EC P-256"));
    CHECK(pki_request_key(pki_ca(p), digest, &e) && e.code == ERR_INVALID);
    make_request("a", key, csr);
    CHECK(pki_request_key(key, digest, &e) && e.code == ERR_INVALID);
    /* Changes each byte of the request's text. The changed text must be refused, or must still
     * contain the same key. */
    int n_taken = 0;
    char want[SHA256_HEX];
    CHECK(!pki_request_key(csr, want, &e));
    for (size_t i = 0; i < strlen(csr); i++) {
        const char was = csr[i];
        csr[i] = was == 'A' ? 'Q' : 'A';
        if (!pki_request_key(csr, digest, &e)) {
            n_taken++;
            CHECK_STR(digest, want);
        }
        csr[i] = was;
    }
    CHECK_MSG(n_taken < 8, "%d changes were taken", n_taken);
    CHECK(pki_request("nonsense", "a", csr, &e) && e.code == ERR_INVALID);
    CHECK(pki_read("nonsense", &(struct pki_node){0}, &e));
    pki_close(p);
}

/* Checks that reading an encrypted key does not ask for a passphrase on the terminal. */
static void test_no_passphrase(void)
{
    static const char locked[] = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
                                 "DEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\nAAAA\n"
                                 "-----END EC PRIVATE KEY-----\n";
    char csr[PKI_PEM_SIZE];
    CHECK(pki_request(locked, "a", csr, &e) < 0);
}

int main(void)
{
    if (!mkdtemp(dir)) abort();
    RUN(test_authority_is_kept);
    RUN(test_authority_damaged);
    RUN(test_node);
    RUN(test_server_is_no_node);
    RUN(test_requests);
    RUN(test_no_passphrase);
    file_remove(dir, &e);
    return test_done("pki");
}
