/* test_api_messages: checks messages as they are sent, byte by byte.
 * tests/golden/records/messages.txt has each kind of message three times: with all its fields,
 * without fields, and with a field that this version does not know.
 * tests: needs golden/records */
#include "tests/lib/records.h"

#include "tests/lib/messages.h"

enum { ARENA_SIZE = 16 << 20, MOST = 1 << 15 };

/* Makes a spec in which nearly all fields have their defaults, because a different test covers the
 * table of fields. Fields that are new in this version are left out, so that the bytes do not
 * change when a field is added. */
static struct job_spec *spec_plain(bool lists)
{
    struct job_spec *s = calloc(1, sizeof *s);
    assert(s);
    spec_defaults(s);
    if (!lists) return s;
    s->data.n_train = 2, s->eval.n_data = 1, s->n_stages = 1, s->n_labels = 1;
    s->stages[0] = (struct spec_stage){.from_step = 7, .seq_len = 64, .lr = 0.5};
    s->data.train[1].weight = 2;
    spec_intern(s, "/d/a.txt", 8, &s->data.train[0].path);
    spec_intern(s, "key", 3, &s->labels[0].key);
    spec_intern(s, "value", 5, &s->labels[0].value);
    snprintf(s->model.config, sizeof s->model.config, "{\"hidden_size\":64}");
    return s;
}

static const char *hex(const unsigned char *data, size_t size)
{
    static char out[2 * MOST + 1];
    assert(size <= MOST);
    for (size_t i = 0; i < size; i++) snprintf(out + 2 * i, 3, "%02x", data[i]);
    return out;
}

static size_t bytes(const char *text, unsigned char *out)
{
    size_t n = 0;
    for (unsigned b; n < MOST && sscanf(text + 2 * n, "%2x", &b) == 1; n++)
        out[n] = (unsigned char)b;
    return n;
}

static size_t number_put(size_t v, unsigned char *out)
{
    size_t n = 0;
    for (; v >= 128; v >>= 7) out[n++] = (unsigned char)(v | 128);
    out[n++] = (unsigned char)v;
    return n;
}

static size_t number_get(const unsigned char *in, size_t *v)
{
    size_t n = 0;
    *v = 0;
    do *v |= (size_t)(in[n] & 127) << 7 * n;
    while (in[n++] & 128);
    return n;
}

/* Appends the number field 1000 to the inner message. Returns the message's new size. */
static size_t with_unknown(const unsigned char *in, size_t size, unsigned char *out)
{
    static const unsigned char unknown[] = {0xc0, 0x3e, 0x05};
    size_t tag, length, at = number_get(in, &tag), n = number_put(tag, out);
    at += number_get(in + at, &length);
    assert(at + length == size);
    n += number_put(length + sizeof unknown, out + n);
    memcpy(out + n, in + at, length);
    memcpy(out + n + length, unknown, sizeof unknown);
    return n + length + sizeof unknown;
}

static int unpack(const char *kept, struct arena *a, struct msg *out, struct err *e)
{
    static unsigned char data[MOST];
    arena_init(a, ARENA_SIZE);
    return wire_unpack(data, bytes(kept, data), a, out, e);
}

static void check_same(const char *kept, const struct msg *want)
{
    struct arena a;
    struct msg got;
    struct err e = {0};
    if (!kept) return;
    const int rc = unpack(kept, &a, &got, &e);
    CHECK_MSG(!rc, "type %d: %s", (int)want->type, e.text);
    if (!rc) msg_compare(want, &got);
    arena_fini(&a);
}

static const char *packed(const struct msg *m, bool unknown)
{
    static unsigned char longer[MOST];
    struct arena a;
    size_t size = 0;
    arena_init(&a, ARENA_SIZE);
    const uint32_t abi = m->type == MSG_ASSIGN ? WIRE_ABI_BEFORE : WIRE_ABI;
    const unsigned char *data = wire_pack_for(m, abi, &a, &size);
    assert(data && size <= MOST - 16);
    if (unknown) size = with_unknown(data, size, longer), data = longer;
    const char *text = hex(data, size);
    arena_fini(&a);
    return text;
}

static void test_all(void)
{
    struct job_spec *spec = spec_plain(true);
    char name[32];
    memset(two_blobs[1].data, 0xA5, BLOB_SIZE);
    records_open("tests/golden/records/messages.txt");
    for (int type = MSG_HELLO; type < MSG_TYPE_N; type++) {
        const struct msg m = msg_fill((enum msg_type)type, spec);
        snprintf(name, sizeof name, "%d.all", type);
        check_same(records_hold(name, packed(&m, false)), &m);
        snprintf(name, sizeof name, "%d.unknown", type);
        check_same(records_hold(name, packed(&m, true)), &m);
    }
    records_close();
    free(spec);
}

/* Checks a message without its fields, and the sentence with which it is refused. */
static void test_none(void)
{
    struct job_spec *spec = spec_plain(false);
    char name[32];
    records_open("tests/golden/records/messages_none.txt");
    for (int type = MSG_HELLO; type < MSG_TYPE_N; type++) {
        const struct msg m = {.type = (enum msg_type)type, .spec = spec};
        struct arena a;
        struct msg got;
        struct err e = {0};
        snprintf(name, sizeof name, "%d.none", type);
        const char *kept = records_hold(name, packed(&m, false));
        if (!kept) continue;
        const int rc = unpack(kept, &a, &got, &e);
        arena_fini(&a);
        CHECK(!rc == !e.code);
        snprintf(name, sizeof name, "%d.read", type);
        records_hold(name, rc ? e.text : "ok");
    }
    records_close();
    free(spec);
}

/* Checks the messages of messages_0.2.0.txt, which version 0.2.0 packed. This version must be able
 * to read them. If it packs them for 0.2.0, the bytes must be the same. */
static void test_before(void)
{
    char name[32];
    if (records.writes) return;
    records_open("tests/golden/records/messages_0.2.0.txt");
    for (int type = MSG_HELLO; type <= MSG_REFUSED; type++) {
        struct arena a;
        struct msg m;
        struct err e = {0};
        size_t size = 0;
        snprintf(name, sizeof name, "%d.all", type);
        const char *kept = records_next(name);
        if (!kept) continue;
        CHECK_MSG(!unpack(kept, &a, &m, &e), "%s: %s", name, e.text);
        const unsigned char *data = wire_pack_for(&m, WIRE_ABI_BEFORE, &a, &size);
        CHECK_MSG(data && !strcmp(hex(data, size), kept), "%s is packed as %s", name,
                  data ? hex(data, size) : "nothing");
        arena_fini(&a);
    }
    records_close();
}

int main(int argc, char **argv)
{
    records_args(argc, argv);
    RUN(test_all);
    RUN(test_none);
    RUN(test_before);
    return test_done("api_messages");
}
