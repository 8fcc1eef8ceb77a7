/* test_seqd_tls: tests TLS of the REST surface. Checks handshakes that are slow or stop, and bytes
 * that are not handshakes. Checks certificates that are renewed while clients are served, and the
 * options that name their files. test_seqd_http.c sends its requests over TLS, too.
 * tests: needs seqd */
#include <arpa/inet.h>
#include <ftw.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/stat.h>
#include "api/core/log.h"
#include "daemon/http/http.h"
#include "daemon/options.h"
#include "tests/lib/tls_client.h"

static struct {
    char dir[64], cert[96], key[96];
    struct loop *loop;
    struct http_server *http;
    int port, n_requests;
    size_t body_size;
    struct http_peer peer;
} s;

static void on_request(void *arg, struct http_req *r)
{
    s.n_requests++;
    s.peer = *http_peer(r);
    http_body(r, &s.body_size);
    http_reply(r, 200, "text/plain", "ok\n", 3);
}

static void make_dir(void)
{
    memset(&s, 0, sizeof s);
    snprintf(s.dir, sizeof s.dir, "/tmp/seqd-tls-XXXXXX");
    CHECK(mkdtemp(s.dir) != NULL);
    snprintf(s.cert, sizeof s.cert, "%s/cert.pem", s.dir);
    snprintf(s.key, sizeof s.key, "%s/key.pem", s.dir);
}

static struct http_server *create(int64_t header_ms, struct err *e)
{
    struct http_options o = {
        .listen = "127.0.0.1:0", .tls_cert = s.cert, .tls_key = s.key, .header_ms = header_ms};
    *e = (struct err){0};
    return http_create(s.loop, &o, on_request, NULL, e);
}

static void begin(int64_t header_ms)
{
    struct err e;
    make_dir();
    tls_fresh_cert(s.cert, s.key, 1);
    s.loop = loop_create(NULL, NULL, &e);
    s.http = create(header_ms, &e);
    CHECK_MSG(s.http != NULL, "%s", e.text);
    CHECK(!strncmp(http_url(s.http), "https://127.0.0.1:", 18));
    s.port = atoi(strrchr(http_url(s.http), ':') + 1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    return remove(path);
}

static void finish(void)
{
    http_destroy(s.http);
    loop_destroy(s.loop);
    tls_forget_all();
    nftw(s.dir, remove_one, 4, FTW_DEPTH | FTW_PHYS);
}

static int dial(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(!connect(fd, (struct sockaddr *)&sa, sizeof sa));
    CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    return fd;
}

static int dial_tls(void)
{
    const int fd = dial();
    tls_client(fd, TLS_PLAN, "http/1.1");
    CHECK(!tls_connect(fd));
    return fd;
}

#define GET_KEPT  "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
#define GET_CLOSE "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void put(int fd, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t sent = tls_put(fd, bytes, n);
        CHECK(sent > 0 || errno == EAGAIN);
        bytes += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
        loop_turn(s.loop, sent > 0 ? 0 : 1);
    }
}

/* Reads answers until there are n or the server closes the connection. Returns their number. */
static int answers(int fd, int n)
{
    char back[4096];
    int seen = 0;
    while (seen < n) {
        const ssize_t got = tls_get(fd, back, sizeof back - 1);
        loop_turn(s.loop, got > 0 ? 0 : 1);
        if (!got || (got < 0 && errno != EAGAIN)) break;
        back[got > 0 ? got : 0] = 0;
        if (got > 0 && !memcmp(back, "HTTP/1.1 200", 12))
            CHECK(strstr(back, "Strict-Transport-Security: max-age=31536000\r\n"));
        for (const char *p = back; (p = strstr(p, "ok\n")); p++) seen++;
    }
    return seen;
}

static bool asks(int fd)
{
    put(fd, GET_KEPT, sizeof GET_KEPT - 1);
    return answers(fd, 1) == 1;
}

/* Waits until the server closes the connection. If the server does not close it, the test exceeds
 * its time limit. */
static void wait_closed(int fd)
{
    char back[512];
    ssize_t n = 1;
    while (n > 0 || (n < 0 && errno == EAGAIN)) {
        loop_turn(s.loop, 2);
        n = recv(fd, back, sizeof back, MSG_DONTWAIT);
    }
    close(fd);
}

static void serves(void)
{
    const int fd = dial_tls();
    CHECK(asks(fd));
    close(fd);
}

/* ---- handshakes ------------------------------------------------------------------------------ */

static void test_peer(void)
{
    static const unsigned char me[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    begin(0);
    const int fd = dial_tls();
    gnutls_datum_t alpn;
    CHECK(asks(fd) && s.peer.tls && s.peer.kind == HTTP_PEER_TCP);
    CHECK(!memcmp(s.peer.address, me, 16));
    CHECK(!gnutls_alpn_get_selected_protocol(tls_of[fd], &alpn) && alpn.size == 8);
    CHECK(gnutls_protocol_get_version(tls_of[fd]) == GNUTLS_TLS1_3);
    close(fd);
    finish();
}

static const char *const old_plan = "NORMAL:-VERS-ALL:+VERS-TLS1.2";

static void test_versions(void)
{
    static const struct {
        const char *priority, *alpn;
        bool good;
    } offers[] = {{"NORMAL:-VERS-ALL:+VERS-TLS1.2", NULL, true},
                  {"NORMAL:-VERS-ALL:+VERS-TLS1.3", NULL, true},
                  {TLS_PLAN, "h2", false},
                  {"NORMAL:-VERS-ALL:+VERS-TLS1.1:%UNSAFE_RENEGOTIATION", NULL, false},
                  {"NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+RSA", NULL, false},
                  {"NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-CBC", NULL, false}};
    begin(0);
    for (size_t i = 0; i < sizeof offers / sizeof *offers; i++) {
        const int fd = dial();
        tls_client(fd, offers[i].priority, offers[i].alpn);
        const int rc = tls_connect(fd);
        CHECK_MSG((rc == 0) == offers[i].good, "%s: %s", offers[i].priority, gnutls_strerror(rc));
        if (!rc) CHECK(asks(fd));
        if (rc) CHECK(rc == GNUTLS_E_FATAL_ALERT_RECEIVED); /* the client is told the reason */
        close(fd);
    }
    finish();
}

static void test_tickets(void)
{
    const char *const plans[] = {TLS_PLAN, old_plan};
    begin(0);
    for (int i = 0; i < 2; i++) {
        gnutls_datum_t ticket;
        int fd = dial();
        tls_client(fd, plans[i], NULL);
        CHECK(!tls_connect(fd) && asks(fd));
        CHECK(!gnutls_session_get_data2(tls_of[fd], &ticket));
        close(fd);
        fd = dial();
        tls_client(fd, plans[i], NULL);
        CHECK(!gnutls_session_set_data(tls_of[fd], ticket.data, ticket.size));
        CHECK(!tls_connect(fd) && gnutls_session_is_resumed(tls_of[fd]) && asks(fd));
        gnutls_free(ticket.data);
        close(fd);
    }
    finish();
}

/* Checks a second handshake in a connection. The connection must end, so that no request can be
 * partly before and partly after a handshake. */
static void test_renegotiation(void)
{
    begin(0);
    const int fd = dial();
    tls_client(fd, old_plan, NULL);
    CHECK(!tls_connect(fd) && asks(fd));
    CHECK(tls_connect(fd) != 0);
    wait_closed(fd);
    serves();
    finish();
}

static struct {
    char bytes[4096];
    size_t n;
} hello;

static ssize_t catch_hello(gnutls_transport_ptr_t p, const void *bytes, size_t n)
{
    CHECK(hello.n + n <= sizeof hello.bytes);
    memcpy(hello.bytes + hello.n, bytes, n);
    hello.n += n;
    return (ssize_t)n;
}

/* Makes the bytes of a client's first message. */
static void make_hello(void)
{
    const int fd = dial();
    hello.n = 0;
    tls_client(fd, TLS_PLAN, "http/1.1");
    gnutls_transport_set_push_function(tls_of[fd], catch_hello);
    CHECK(gnutls_handshake(tls_of[fd]) == GNUTLS_E_AGAIN && hello.n > 100);
    close(fd);
}

enum { DRIPS = 3000 };

/* Checks that silent clients, and clients with incomplete or slow handshakes, are disconnected at
 * the deadline. */
static void test_slow_handshakes(void)
{
    begin(150);
    make_hello();
    const size_t sent[] = {0, 1, 5, hello.n / 2, hello.n};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        const int fd = dial();
        CHECK(send(fd, hello.bytes, sent[i], MSG_NOSIGNAL) == (ssize_t)sent[i]);
        wait_closed(fd);
    }
    /* Sends a record of 4096 bytes, byte by byte, which never ends. */
    const int fd = dial();
    int n = 0;
    static const char record[] = {0x16, 3, 1, 0x10, 0, 1, 0, 0x0f, (char)0xfc};
    CHECK(send(fd, record, sizeof record, MSG_NOSIGNAL) == sizeof record);
    for (bool open = true; open && n < DRIPS; n++) {
        char back[64];
        open = send(fd, "", 1, MSG_NOSIGNAL) == 1;
        loop_turn(s.loop, 10);
        open = open && (recv(fd, back, sizeof back, MSG_DONTWAIT) > 0 || errno == EAGAIN);
    }
    CHECK(n < DRIPS);
    close(fd);
    serves();
    finish();
}

/* Checks the deadline for a request's head, which begins after the handshake. A client that sends
 * records slowly must also be disconnected. */
static void test_slow_heads(void)
{
    begin(150);
    int fd = dial_tls();
    wait_closed(fd);
    fd = dial_tls();
    int n = 0;
    put(fd, "GET /a HTTP/1.1\r\nX: ", 20);
    for (char back[64]; n < DRIPS && tls_put(fd, "a", 1) == 1; n++) {
        loop_turn(s.loop, 10);
        const ssize_t got = tls_get(fd, back, sizeof back);
        if (!got || (got < 0 && errno != EAGAIN)) break;
    }
    CHECK(n < DRIPS && !s.n_requests);
    close(fd);
    finish();
}

/* Checks that the server survives a first message in which any byte is changed, or that ends after
 * any number of bytes. */
static void test_wrong_handshakes(void)
{
    begin(0);
    make_hello();
    for (size_t i = 0; i < hello.n; i++)
        for (int bit = 0; bit < 8; bit += 7) {
            const int fd = dial();
            const struct linger reset = {.l_onoff = 1};
            hello.bytes[i] ^= (char)(1 << bit);
            CHECK(send(fd, hello.bytes, hello.n, MSG_NOSIGNAL) == (ssize_t)hello.n);
            hello.bytes[i] ^= (char)(1 << bit);
            send(fd, hello.bytes, i, MSG_NOSIGNAL); /* then bytes that make no sense */
            if (i % 3 == 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            close(fd);
        }
    serves();
    CHECK(s.n_requests == 1);
    finish();
}

/* Checks bytes that are not TLS. A request in plain HTTP must get an answer that its client can
 * read. For anything else, the connection must be closed. */
static void test_plain(void)
{
    static const char *const firsts[] = {GET_CLOSE, "POST /v1/jobs HTTP/1.1\r\n\r\n"};
    char back[1024];
    begin(0);
    for (int i = 0; i < 2; i++) {
        const int fd = dial();
        size_t n = 0;
        CHECK(send(fd, firsts[i], strlen(firsts[i]), 0) > 0);
        for (ssize_t got; (got = recv(fd, back + n, sizeof back - 1 - n, 0)) > 0;) n += (size_t)got;
        back[n] = 0;
        CHECK_MSG(!strncmp(back, "HTTP/1.1 400 ", 13) && strstr(back, "https://"), "%s", back);
        CHECK(strstr(back, "\"code\":\"invalid\""));
        close(fd);
    }
    const int fd = dial();
    CHECK(send(fd, "\x80nonsense and more of it", 24, 0) == 24);
    wait_closed(fd);
    CHECK(!s.n_requests);
    serves();
    finish();
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Checks one record that has more requests than are read at a time. All requests must be answered,
 * although no readiness of the socket reports the requests that TLS has already decrypted. */
static void test_one_record(void)
{
    enum { N = 500 };
    char *all = malloc(N * sizeof GET_KEPT);
    size_t n = 0;
    begin(0);
    const int fd = dial_tls();
    for (int i = 0; i < N; i++, n += sizeof GET_KEPT - 1)
        memcpy(all + n, GET_KEPT, sizeof GET_KEPT);
    CHECK(n > 8192 && n < 16384);
    put(fd, all, n);
    const int got = answers(fd, N);
    CHECK_MSG(got == N, "%d of %d", got, N);
    close(fd);
    free(all);
    finish();
}

/* Checks a connection that ends before the complete body has arrived. The incomplete body must not
 * be handled as a request. */
static void test_truncated(void)
{
    static const char post[] = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               "Content-Length: 10\r\n\r\n{}";
    begin(0);
    for (int bye = 0; bye < 2; bye++) {
        const int fd = dial_tls();
        put(fd, post, sizeof post - 1);
        if (bye) CHECK(!gnutls_bye(tls_of[fd], GNUTLS_SHUT_WR));
        CHECK(!shutdown(fd, SHUT_WR));
        wait_closed(fd);
    }
    CHECK(!s.n_requests);
    serves();
    finish();
}

/* ---- certificates ---------------------------------------------------------------------------- */

/* Returns the serial number of the server's certificate. */
static int serial_of(int fd)
{
    unsigned n;
    unsigned char number[20];
    size_t size = sizeof number;
    gnutls_x509_crt_t crt;
    const gnutls_datum_t *der = gnutls_certificate_get_peers(tls_of[fd], &n);
    CHECK(der && n == 1 && !gnutls_x509_crt_init(&crt));
    CHECK(!gnutls_x509_crt_import(crt, der, GNUTLS_X509_FMT_DER));
    CHECK(!gnutls_x509_crt_get_serial(crt, number, &size));
    gnutls_x509_crt_deinit(crt);
    return number[size - 1];
}

static int serial_now(void)
{
    const int fd = dial_tls(), serial = serial_of(fd);
    CHECK(asks(fd));
    close(fd);
    return serial;
}

/* Checks that the files of a new certificate are noticed while clients are served, with or without
 * a request to reload. Connected clients must keep the old certificate. An invalid file must
 * change nothing. */
static void test_renewal(void)
{
    enum { N = 8 };
    static const gnutls_datum_t nonsense = {(unsigned char *)"nonsense", 8};
    int kept[N];
    char other[128];
    begin(0);
    for (int i = 0; i < N; i++) {
        kept[i] = dial_tls();
        CHECK(asks(kept[i]));
        CHECK(serial_of(kept[i]) == i + 1);
        tls_fresh_cert(s.cert, s.key, i + 2);
        if (i) http_reload(s.http); /* without a request it is noticed within a second */
        while (serial_now() != i + 2)
            for (int k = 0; k <= i; k++) CHECK(asks(kept[k]));
    }
    tls_write(s.cert, &nonsense);
    http_reload(s.http);
    for (int i = 0; i < 20; i++) CHECK(serial_now() == N + 1);
    snprintf(other, sizeof other, "%s/other.pem", s.dir);
    tls_fresh_cert(s.cert, other, 99); /* a certificate that does not belong to the key */
    http_reload(s.http);
    for (int i = 0; i < 20; i++) CHECK(serial_now() == N + 1);
    CHECK(!unlink(s.key));
    http_reload(s.http);
    for (int i = 0; i < 20; i++) CHECK(serial_now() == N + 1);
    CHECK(!rename(other, s.key));
    while (serial_now() != 99) continue;
    for (int i = 0; i < N; i++) {
        CHECK(asks(kept[i]));
        close(kept[i]);
    }
    finish();
}

static void refused(const char *word)
{
    struct err e;
    CHECK(!create(0, &e));
    CHECK_MSG(e.code != ERR_NONE && strstr(e.text, word), "%s: %s", word, e.text);
}

static void test_wrong_files(void)
{
    static const gnutls_datum_t nonsense = {(unsigned char *)"nonsense", 8};
    struct err e;
    char other[128];
    make_dir();
    s.loop = loop_create(NULL, NULL, &e);
    snprintf(other, sizeof other, "%s/other.pem", s.dir);
    refused("--tls-cert");
    tls_fresh_cert(s.cert, s.key, 1);
    CHECK(!unlink(s.key));
    refused("--tls-key");
    tls_write(s.key, &nonsense);
    refused("PEM");
    tls_fresh_cert(s.cert, s.key, 1);
    tls_fresh_cert(s.cert, other, 1);
    refused("is not the key of");
    tls_fresh_cert(s.cert, s.key, 1);
    tls_write(s.cert, &nonsense);
    refused("PEM");
    finish();
}

/* ---- options --------------------------------------------------------------------------------- */

/* Calls options_read with these words and --state. Returns its error, or NULL if it accepts the
 * words. */
static const char *says(struct options *o, const char *const *words)
{
    static struct err e;
    static char state[128];
    char *argv[16] = {"seqd", "--state", state};
    int argc = 3;
    snprintf(state, sizeof state, "%s/state", s.dir);
    while (*words) argv[argc++] = (char *)*words++;
    e = (struct err){0};
    return options_read(o, argc, argv, &e) ? e.text : NULL;
}

#define SAYS(...) says(&o, (const char *const[]){__VA_ARGS__, NULL})

static void test_options(void)
{
    static struct options o;
    const char *text;
    make_dir();
    CHECK(!SAYS("--listen", "127.0.0.1:1") && options_local_only(&o));
    CHECK(!strcmp(strrchr(o.socket_path, '/'), "/seqd.sock") && strstr(o.socket_path, s.dir));
    CHECK(!SAYS("--socket", "/run/x.sock") && !strcmp(o.socket_path, "/run/x.sock"));
    text = SAYS("--listen", "0.0.0.0:1");
    CHECK(text && strstr(text, "--tls-cert") && strstr(text, "--tls-by-proxy"));
    CHECK(SAYS("--listen", "[::]:1") != NULL);
    CHECK(!SAYS("--listen", "0.0.0.0:1", "--tls-by-proxy") && !options_local_only(&o));
    CHECK(!SAYS("--listen", "0.0.0.0:1", "--tls-cert", "c", "--tls-key", "k"));
    CHECK(!options_local_only(&o) && !strcmp(o.tls_cert, "c") && !strcmp(o.tls_key, "k"));
    /* the proxy passes on its own Host */
    CHECK(!SAYS("--tls-by-proxy") && !options_local_only(&o));
    CHECK(!SAYS("--tls-cert", "c", "--tls-key", "k") && !options_local_only(&o));
    text = SAYS("--tls-cert", "c");
    CHECK(text && strstr(text, "give --tls-key FILE"));
    text = SAYS("--tls-key", "k");
    CHECK(text && strstr(text, "give --tls-cert FILE"));
    CHECK(SAYS("--tls-cert", "c", "--tls-key", "k", "--tls-by-proxy") != NULL);
    nftw(s.dir, remove_one, 4, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    log_init("test");
    RUN(test_peer);
    RUN(test_versions);
    RUN(test_tickets);
    RUN(test_renegotiation);
    RUN(test_slow_handshakes);
    RUN(test_slow_heads);
    RUN(test_wrong_handshakes);
    RUN(test_plain);
    RUN(test_one_record);
    RUN(test_truncated);
    RUN(test_renewal);
    RUN(test_wrong_files);
    RUN(test_options);
    return test_done("seqd_tls");
}
