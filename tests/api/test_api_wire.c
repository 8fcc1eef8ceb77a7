/* test_api_wire: tests the round trip of every kind of message, and hostile bytes at every
 * position. */
#include "tests/lib/messages.h"

enum { ARENA_SIZE = 16 << 20 };

static void test_round_trip(void)
{
    struct job_spec *spec = spec_fill();
    memset(two_blobs[1].data, 0xA5, BLOB_SIZE);
    for (int type = MSG_HELLO; type < MSG_TYPE_N; type++) {
        struct arena a, b;
        struct msg in = msg_fill((enum msg_type)type, spec), out;
        struct err e = {0};
        size_t size = 0;
        arena_init(&a, ARENA_SIZE);
        arena_init(&b, ARENA_SIZE);
        void *data = wire_pack(&in, &a, &size);
        CHECK_MSG(data, "type %d", type);
        CHECK_MSG(wire_unpack(data, size, &b, &out, &e) == 0, "type %d: %s", type, e.text);
        arena_fini(&a); /* the unpacked message must not have a pointer into the packed bytes */
        msg_compare(&in, &out);
        arena_fini(&b);
    }
    free(spec);
}

/* Unpacks every prefix of a packed message, and the complete message with every byte changed in
 * several ways. Each of these inputs must give a message or an error. ASan reports invalid
 * accesses to memory. If a message is accepted, it must be possible to pack it again. */
static void message_attack(const unsigned char *data, size_t size, int stride)
{
    unsigned char *bad = malloc(size + 1);
    assert(bad);
    for (size_t i = 0; i < size; i += (size_t)stride) {
        for (int way = 0; way < 5; way++) {
            struct arena a;
            struct msg m;
            struct err e = {0};
            memcpy(bad, data, size);
            if (way == 1) bad[i] ^= 0x80;
            if (way == 2) bad[i] ^= 0x01;
            if (way == 3) bad[i] = 0xff;
            if (way == 4) bad[i] = 0;
            /* uses a copy of exactly this size, so that a read past the end is detected */
            size_t n = way == 0 ? i : size;
            unsigned char *exact = malloc(n ? n : 1);
            assert(exact);
            memcpy(exact, bad, n);
            arena_init(&a, ARENA_SIZE);
            int rc = wire_unpack(exact, n, &a, &m, &e);
            CHECK(rc == 0 || (rc == -1 && e.code != ERR_NONE && e.text[0]));
            if (rc == 0 && wire_pack(&m, &a, &n) == NULL)
                CHECK_MSG(0, "accepted, but does not pack again: type %d byte %zu way %d",
                          (int)m.type, i, way);
            arena_fini(&a);
            free(exact);
        }
    }
    free(bad);
}

static void test_hostile(void)
{
    struct job_spec *spec = spec_fill();
    spec->data.n_train = 2; /* the time of the attack is quadratic in the size */
    for (int type = MSG_HELLO; type < MSG_TYPE_N; type++) {
        struct arena a;
        struct msg m = msg_fill((enum msg_type)type, spec);
        size_t size = 0;
        arena_init(&a, ARENA_SIZE);
        void *data = wire_pack(&m, &a, &size);
        CHECK(data);
        message_attack(data, size, type == MSG_BLOBS ? 7 : 1);
        arena_fini(&a);
    }
    free(spec);
}

static int unpack_of(struct msg *in, struct err *e)
{
    struct arena a;
    struct msg out;
    size_t size = 0;
    *e = (struct err){0};
    arena_init(&a, ARENA_SIZE);
    void *data = wire_pack(in, &a, &size);
    CHECK(data);
    int rc = wire_unpack(data, size, &a, &out, e);
    arena_fini(&a);
    return rc;
}

/* Checks messages that can be packed but must not be accepted. */
static void test_refusals(void)
{
    struct job_spec *spec = spec_fill();
    struct err e;
    struct msg m = msg_fill(MSG_ASSIGN, spec);
    m.first_rank = 3;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "first_rank");
    m = msg_fill(MSG_ASSIGN, spec);
    m.n_ranks = JOB_MAX_RANKS + 1;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "n_ranks");
    m = msg_fill(MSG_REPORT, spec);
    m.size--;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "record");
    m.size = 3;
    CHECK(unpack_of(&m, &e) < 0);
    static char long_text[PKI_PEM_SIZE + 1];
    memset(long_text, 'a', sizeof long_text - 1);
    m = msg_fill(MSG_JOIN, spec);
    m.pem = long_text;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "csr");
    m = msg_fill(MSG_JOIN, spec);
    m.token = long_text + PKI_PEM_SIZE - WIRE_TOKEN_SIZE;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "token");
    m = msg_fill(MSG_JOIN, spec);
    memcpy(m.node, "a b", 4);
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "node");
    m = msg_fill(MSG_JOINED, spec);
    m.pem = long_text;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "cert");
    m = msg_fill(MSG_FORGET, spec);
    m.job = 0;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "job");
    m = msg_fill(MSG_REMOVE, spec);
    m.what = REMOVAL_N;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "what");
    m = msg_fill(MSG_REMOVED, spec);
    m.job = 0;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "job");
    m = msg_fill(MSG_HELLO, spec);
    m.node[0] = 0;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "node");
    static const char *const not_names[] = {"a b", "a\"b", "a\nb", "a/b", "n\xc3\xb6"};
    for (int i = 0; i < 5; i++) { /* the name appears in logs and commands */
        m = msg_fill(MSG_HELLO, spec);
        snprintf(m.node, sizeof m.node, "%s", not_names[i]);
        CHECK_MSG(unpack_of(&m, &e) < 0, "%s", not_names[i]);
        CHECK_STR(e.field, "node");
    }
    m.node[0] = 'x', m.node[1] = 0, m.abi = WIRE_ABI_BEFORE;
    CHECK(unpack_of(&m, &e) == 0);
    m.abi = WIRE_ABI_BEFORE - 1;
    snprintf(m.address, sizeof m.address, "not read of another version");
    /* the message must be accepted, so that the node can be told why it may not join */
    CHECK(unpack_of(&m, &e) == 0);
    /* The id of prepared data becomes the name of a directory. */
    static const char *const not_hex[] = {"../../x", "0123ABCD", "12 34", "12/34", "."};
    for (int i = 0; i < 10; i++) {
        m = msg_fill(i < 5 ? MSG_ASSIGN : MSG_TRACE, spec);
        snprintf(m.prepared_id, sizeof m.prepared_id, "%s", not_hex[i % 5]);
        CHECK_MSG(unpack_of(&m, &e) < 0, "%s", m.prepared_id);
        CHECK_STR(e.field, "prepared_id");
    }
    /* Ranks connect to the address that a node sends. The address must be numeric. It must not be
     * the name of a host, and must not have a port. */
    static const char *const not_numeric[] = {"node-7", "10.0.0.1:80", "10.0.0", "::1%lo",
                                              " 1.2.3.4"};
    for (int i = 0; i < 5; i++) {
        m = msg_fill(MSG_HELLO, spec);
        snprintf(m.address, sizeof m.address, "%s", not_numeric[i]);
        CHECK_MSG(unpack_of(&m, &e) < 0, "%s", not_numeric[i]);
        CHECK_STR(e.field, "address");
    }
    m.address[0] = 0; /* an older seqw does not send one */
    CHECK(unpack_of(&m, &e) == 0);
    struct wire_attempt many = {1, 1, JOB_MAX_RANKS + 1};
    m.n_attempts = 1, m.attempts = &many;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "slots");
    static char chunk[WIRE_CHUNK + 1];
    m = msg_fill(MSG_LOG, spec);
    m.data = chunk, m.size = sizeof chunk;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "data");
    m = msg_fill(MSG_DESCRIBE, spec);
    m.offset = 256;
    CHECK(unpack_of(&m, &e) == 0);
    m.models = false; /* the message has the index of a model, but does not ask for models */
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "offset");
    free(spec);
}

/* Checks sizes of disks, which are summed and shown. A size must not be negative, and the free
 * bytes must not exceed the size. */
static void test_disk(void)
{
    static const struct {
        struct disk_use use;
        const char *field;
    } bad[] = {{{-1, 0, 10, 0}, "disk.jobs"},
               {{0, -1, 10, 0}, "disk.prepared"},
               {{0, 0, -10, 0}, "disk.size"},
               {{0, 0, 10, 11}, "disk.free"},
               {{0, 0, 10, -1}, "disk.free"}};
    struct err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct msg m = {.type = MSG_HEARTBEAT, .disk = bad[i].use};
        CHECK_MSG(unpack_of(&m, &e) < 0, "%s", bad[i].field);
        CHECK_STR(e.field, bad[i].field);
    }
    /* the message does not have the size */
    CHECK(unpack_of(&(struct msg){.type = MSG_HEARTBEAT}, &e) == 0);
}

/* Checks UUIDs of GPUs. A UUID becomes a word of a rank's environment, and identifies a GPU. */
static void test_gpus(void)
{
    struct job_spec *spec = spec_fill();
    struct err e;
    struct gpu list[GPU_MAX] = {0};
    struct msg m = {.type = MSG_HEARTBEAT, .gpus = list, .n_gpus = 2};
    static const char *const bad[] = {"", "GPU 1", "GPU-1,GPU-2", "all\n", "$(id)"};
    snprintf(list[0].uuid, sizeof list[0].uuid, "GPU-1");
    for (int i = 0; i < 5; i++) {
        snprintf(list[1].uuid, sizeof list[1].uuid, "%s", bad[i]);
        CHECK_MSG(unpack_of(&m, &e) < 0, "%s", bad[i]);
        CHECK_STR(e.field, "gpu.uuid");
    }
    snprintf(list[1].uuid, sizeof list[1].uuid, "GPU-1"); /* the same UUID occurs twice */
    CHECK(unpack_of(&m, &e) < 0);
    snprintf(list[1].uuid, sizeof list[1].uuid, "GPU-2");
    CHECK(unpack_of(&m, &e) == 0);
    list[1].health = GPU_HEALTH_N;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "gpu.health");
    list[1].health = GPU_OK;
    list[0].memory_free = 1; /* but the GPU has no memory */
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "gpu.memory_free");
    m = msg_fill(MSG_ASSIGN, spec);
    m.n_uuids = 1; /* there are two ranks, but one UUID */
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "gpus");
    static const char odd[2][GPU_UUID_SIZE] = {"GPU-a", "GPU b"};
    m.n_uuids = 2, m.uuids = odd;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "gpu.uuid");
    static const char *const relative[] = {"/a", "up/files/b"};
    m = msg_fill(MSG_ASSIGN, spec);
    m.grants = relative;
    CHECK(unpack_of(&m, &e) < 0);
    CHECK_STR(e.field, "grants");
    m = msg_fill(MSG_ASSIGN, spec);
    m.n_uuids = 0; /* a job that uses no GPU */
    CHECK(unpack_of(&m, &e) == 0);
    free(spec);
}

static void test_unknown_field(void)
{
    struct job_spec *spec = spec_fill();
    struct arena a;
    struct msg m = msg_fill(MSG_ASSIGN, spec), out;
    struct err e = {0};
    size_t size = 0;
    arena_init(&a, ARENA_SIZE);
    char *data = wire_pack(&m, &a, &size);
    CHECK(data);
    char *at = data ? memmem(data, size, "data.seq_len", 12) : NULL;
    CHECK(at);
    if (at) at[11] = 'x';
    CHECK(wire_unpack(data, size, &a, &out, &e) < 0);
    CHECK_MSG(strstr(e.text, "data.seq_lex"), "%s", e.text);
    arena_fini(&a);
    free(spec);
}

static void test_limits(void)
{
    struct arena a;
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .node = "n"}, out;
    struct err e = {0};
    size_t size = 0;
    arena_init(&a, 4096);
    char *big = calloc(1, WIRE_MAX_SIZE + 1);
    assert(big);
    CHECK(wire_unpack(big, WIRE_MAX_SIZE + 1, &a, &out, &e) < 0 && e.code == ERR_TOO_LARGE);
    /* Half a million empty attempts take 2 bytes each on the wire and 48 bytes each in memory. The
     * arena has no room for them, so the message is refused. */
    size_t n = 0;
    big[n++] = 0x0a; /* Msg.hello */
    size_t body = 1000000;
    for (size_t v = body;; v >>= 7) {
        big[n++] = (char)((v & 0x7f) | (v >= 128 ? 0x80 : 0));
        if (v < 128) break;
    }
    for (size_t i = 0; i < body; i += 2) big[n + i] = 0x3a; /* Hello.attempts, length 0 */
    CHECK(wire_unpack(big, n + body, &a, &out, &e) < 0);
    CHECK(a.used_size <= 4096);
    arena_reset(&a);
    arena_fini(&a);
    arena_init(&a, ARENA_SIZE);
    CHECK(wire_unpack(big, n + body, &a, &out, &e) < 0);
    arena_fini(&a);
    arena_init(&a, 64);
    CHECK(!wire_pack(&m, &a, &size));
    arena_fini(&a);
    free(big);
}

static void test_versions(void)
{
    static const uint32_t others[] = {0, WIRE_ABI_BEFORE - 1, WIRE_ABI + 1, UINT32_MAX};
    CHECK(wire_speaks(WIRE_ABI) && wire_speaks(WIRE_ABI_BEFORE));
    CHECK(wire_choose(0) == WIRE_ABI_BEFORE && wire_choose(WIRE_ABI_BEFORE) == WIRE_ABI_BEFORE);
    CHECK(wire_choose(WIRE_ABI) == WIRE_ABI && wire_choose(UINT32_MAX) == WIRE_ABI);
    for (int i = 0; i < 4; i++) {
        char text[512], number[16];
        CHECK(!wire_speaks(others[i]));
        wire_refusal(others[i], text, sizeof text);
        snprintf(number, sizeof number, ": %u,", others[i]);
        CHECK_MSG(strstr(text, number) && strstr(text, "speaks 6 and 7"), "%s", text);
        CHECK_MSG(strstr(text, i < 2 ? "upgrade seqw" : "upgrade seqd"), "%s", text);
    }
    /* 0.2.0 has the kinds up to REFUSED. */
    struct job_spec *spec = spec_fill();
    for (int type = MSG_HELLO; type <= MSG_REMOVED; type++) {
        const struct msg m = msg_fill((enum msg_type)type, spec);
        struct arena a;
        size_t size;
        CHECK(wire_knows(WIRE_ABI, (enum msg_type)type));
        CHECK(wire_knows(WIRE_ABI_BEFORE, (enum msg_type)type) == (type <= MSG_REFUSED));
        arena_init(&a, ARENA_SIZE);
        CHECK(!wire_pack_for(&m, WIRE_ABI_BEFORE, &a, &size) == (type > MSG_REFUSED));
        arena_fini(&a);
    }
    CHECK(!wire_knows(WIRE_ABI, (enum msg_type)0) && !wire_knows(WIRE_ABI, (enum msg_type)1000));
    free(spec);
}

/* Checks a job for a peer that lacks some fields of the spec. The peer must get the fields that it
 * knows unchanged. When the message is unpacked, the fields that it lacks must have their
 * defaults. */
static void test_spec_before(void)
{
    struct job_spec *spec = spec_fill();
    struct msg m = msg_fill(MSG_ASSIGN, spec), out;
    struct arena a;
    struct err e;
    size_t size, whole;
    arena_init(&a, ARENA_SIZE);
    spec->checkpoint.changes = 1;
    CHECK(!spec_needs(spec, WIRE_ABI));
    const char *needs = spec_needs(spec, WIRE_ABI_BEFORE);
    CHECK(needs && spec_field(needs)->since == WIRE_ABI);
    CHECK(wire_pack(&m, &a, &whole));
    void *data = wire_pack_for(&m, WIRE_ABI_BEFORE, &a, &size);
    CHECK(data && size < whole);
    CHECK_MSG(wire_unpack(data, size, &a, &out, &e) == 0, "%s", e.text);
    CHECK(!spec_needs(out.spec, WIRE_ABI_BEFORE));
    /* after this, the spec is the same again */
    for (const struct field *f = spec_fields; f->path; f++) {
        if (f->since > WIRE_ABI_BEFORE) spec_set_default(spec, f, spec);
    }
    spec_compare(spec, out.spec);
    /* Nodes of ABI 6 would treat job:ID as the name of a file. */
    CHECK(spec_intern(spec, "job:7/step-3", 12, &spec->model.path) == 0);
    CHECK_STR(spec_needs(spec, WIRE_ABI_BEFORE), "paths by job:ID");
    CHECK(!spec_needs(spec, WIRE_ABI));
    arena_fini(&a);
    free(spec);
}

int main(void)
{
    RUN(test_versions);
    RUN(test_spec_before);
    RUN(test_round_trip);
    RUN(test_hostile);
    RUN(test_refusals);
    RUN(test_gpus);
    RUN(test_disk);
    RUN(test_unknown_field);
    RUN(test_limits);
    return test_done("wire");
}
