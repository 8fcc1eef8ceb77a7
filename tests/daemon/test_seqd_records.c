/* test_seqd_records: compares stored events and stored lists of uploads with
 * tests/golden/records/events.txt and uploads.txt, byte by byte.
 * tests: needs golden/records */
#include "tests/lib/records.h"

#include "daemon/state/event.h"
#include "daemon/upload/upload_list.h"

static void copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

/* Fills the members that every event has, whatever its type. */
static void fill_common(struct event *ev)
{
    copy(ev->by, sizeof ev->by, "ann");
    ev->n_ranks = 3;
    copy(ev->source, sizeof ev->source, "n0");
    copy(ev->node, sizeof ev->node, "n1");
    ev->n_places = 2;
    ev->places[0] = (struct job_place){.node = "n1", .n_ranks = 1};
    ev->places[1] = (struct job_place){.node = "n2", .first_rank = 1, .n_ranks = 2};
    ev->cause = CAUSE_INFRASTRUCTURE + (int32_t)ev->type % (CAUSE_N - 1);
    ev->rank = (int32_t)ev->type;
    ev->exit_status = -7, ev->signal = 11;
    ev->blame = BLAME_NODE + (int32_t)ev->type % (BLAME_N - 1);
    ev->oom = ev->gives_up = true;
    ev->stepped_ms = 1795000000123, ev->ran_ms = 86400001;
    err_field(&ev->err, ERR_INVALID + (int)ev->type % (ERR_N - 1), "data.seq_len",
              "a \"quoted\" text\twith \xC3\xA9");
    ev->step = ((int64_t)1 << 53) + 1, ev->count = 2147483647;
    copy(ev->prepared_id, sizeof ev->prepared_id, "0123abcd");
    ev->n_tokens = INT64_MAX, ev->steps = 5000;
    ev->form = 1 + (int32_t)ev->type % 8;
    copy(ev->detail, sizeof ev->detail, "{\"path\":\"a]}\",\"sizes\":[1,{\"b\":2.5}]}");
}

static struct event event_full(enum job_event type)
{
    struct event ev = {.type = type};
    fill_common(&ev);
    if (type == EV_ASSIGN || type == EV_FAILED_AT) ev.task = TASK_RUN;
    if (type != EV_ASSIGN) return ev;
    copy(ev.places[0].instance, INSTANCE_ID_SIZE, "0123456789abcdef");
    copy(ev.places[1].instance, INSTANCE_ID_SIZE, "fedcba9876543210");
    for (int i = 0; i < ev.n_ranks; i++) snprintf(ev.gpus[i], GPU_UUID_SIZE, "GPU-%d", i);
    return ev;
}

static void check_read(const char *text, const struct event *want)
{
    struct event *got = calloc(1, sizeof *got);
    struct err e = {0};
    got->type = want->type;
    CHECK_MSG(!event_read(text, strlen(text), got, &e), "%s: %s", text, e.text);
    CHECK_MSG(!memcmp(got, want, sizeof *got), "%s: it reads back as another event", text);
    free(got);
}

/* Compares the text of an event with a line of the golden file. Then compares this text with an
 * additional unknown member with a second line. */
static void hold(const struct event *ev, const char *kind)
{
    char text[EVENT_DATA_SIZE], name[64];
    CHECK(event_write(ev, text, sizeof text) == (int64_t)strlen(text));
    snprintf(name, sizeof name, "%s.%s", job_event_name(ev->type), kind);
    const char *kept = records_hold(name, text);
    if (kept) check_read(kept, ev);
}

static void hold_unknown(const struct event *ev)
{
    char text[EVENT_DATA_SIZE], name[64];
    CHECK(event_write(ev, text, sizeof text) > 0);
    snprintf(name, sizeof name, "%s.unknown", job_event_name(ev->type));
    const char *kept = records_hold(name, records_unknown(text));
    if (kept) check_read(kept, ev);
}

static void test_events(void)
{
    records_open("tests/golden/records/events.txt");
    for (int type = 0; type < JOB_EVENT_N; type++) {
        const struct event none = {.type = (enum job_event)type, .rank = -1};
        const struct event full = event_full((enum job_event)type);
        hold(&full, "all");
        hold(&none, "none");
        hold_unknown(&none);
    }
    struct event ev = event_full(EV_ASSIGN);
    /* for a single node, the event has an instance and no list of nodes */
    ev.task = TASK_PREPARE;
    ev.n_places = 0;
    memset(ev.places, 0, sizeof ev.places);
    copy(ev.places[0].instance, INSTANCE_ID_SIZE, "0123456789abcdef");
    hold(&ev, "one_node");
    hold_unknown(&ev);
    ev = (struct event){.type = EV_RANK_EXIT, .cause = CAUSE_USER, .rank = -1};
    err_set(&ev.err, ERR_IO, "%s", ""); /* an error with a code has a text, even if it is empty */
    hold(&ev, "empty_text");
    records_close();
}

/* Checks the texts of events_0.2.0.txt, which the writer of 0.2.0 wrote. This version must be able
 * to read them, and must write them with the same bytes. */
static void test_events_before(void)
{
    static const enum job_event last = EV_CHECKPOINT_REMOVED;
    static struct event ev;
    char text[EVENT_DATA_SIZE], name[64];
    if (records.writes) return;
    records_open("tests/golden/records/events_0.2.0.txt");
    for (int i = 0; i < 2 * ((int)last + 1); i++) {
        struct err e = {0};
        memset(&ev, 0, sizeof ev);
        ev.type = (enum job_event)(i / 2);
        snprintf(name, sizeof name, "%s.%s", job_event_name(ev.type), i % 2 ? "none" : "all");
        const char *kept = records_next(name);
        if (!kept) continue;
        CHECK_MSG(!event_read(kept, strlen(kept), &ev, &e), "%s: %s", kept, e.text);
        CHECK(event_write(&ev, text, sizeof text) > 0);
        CHECK_STR(text, kept);
    }
    records_close();
}

/* Checks that words that only a newer seqd knows are read as the value with the smallest
 * effect. */
static void test_words_of_another_version(void)
{
    static const char text[] = "{\"task\":\"x\",\"class\":\"x\",\"blame\":\"x\",\"form\":\"x\","
                               "\"code\":\"x\"}";
    struct event ev = {.type = EV_ASSIGN};
    CHECK(!event_read(text, sizeof text - 1, &ev, NULL));
    CHECK(ev.task == TASK_RUN && ev.cause == CAUSE_USER && ev.blame == BLAME_NONE);
    CHECK(ev.form == 0 && ev.err.code == ERR_INTERNAL);
}

/* Checks a member of a wrong type, a text that is too long, and a value that ends in the
 * middle. */
static void test_damaged(void)
{
    static const char *const damaged[] = {
        "",
        "[]",
        "{\"by\":1}",
        "{\"by\":\"a\\u0000b\"}",
        "{\"step\":\"1\"}",
        "{\"step\":1.5}",
        "{\"rank\":null}",
        "{\"step\":99999999999999999999}",
        "{\"class\":3}",
        "{\"nodes\":{}}",
        "{\"nodes\":[1]}",
        "{\"instances\":[1]}",
        "{\"gpus\":\"GPU-1\"}",
        "{\"detail\":{\"a\":}",
        "{\"instances\":[\"0123456789abcdef0\"]}",
        "{\"by\":\"a\"",
        "{\"by\":\"a\",}",
        "{\"nodes\":[{\"node\":\"a\",\"first_rank\":1,\"n_ranks\":1}]}",
        "{\"nodes\":[{\"node\":\"a\",\"first_rank\":0}]}",
        "{\"nodes\":[{\"first_rank\":0,\"n_ranks\":1}]}",
        "{\"nodes\":[{\"node\":\"a\",\"first_rank\":0,\"n_ranks\":65}]}",
        "{\"nodes\":[{\"node\":\"a\",\"first_rank\":0,\"n_ranks\":1}"};
    static struct event ev;
    char text[EVENT_DETAIL_SIZE + 64];
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct err e = {0};
        memset(&ev, 0, sizeof ev);
        CHECK_MSG(event_read(damaged[i], strlen(damaged[i]), &ev, &e) == -1 &&
                      e.code == ERR_CORRUPT && *e.text,
                  "%s", damaged[i]);
    }
    const int n = snprintf(text, sizeof text, "{\"detail\":[\"%0*d\"]}", EVENT_DETAIL_SIZE - 4, 0);
    CHECK(event_read(text, (size_t)n, &ev, NULL) == -1);
    CHECK(event_write(&(struct event){.by = "ann"}, text, 8) == -1);
}

static void test_uploads(void)
{
    static const char *const owners[] = {"ann", ""};
    struct upload_list *l = upload_list_new(), *back = upload_list_new();
    char text[4096];
    records_open("tests/golden/records/uploads.txt");
    for (int i = 0; i < 2; i++) {
        struct err e = {0};
        memset(l, 0, sizeof *l);
        copy(l->name, sizeof l->name, "my-data_1.0");
        copy(l->owner, sizeof l->owner, owners[i]);
        l->id = i ? 1 : INT64_MAX, l->created_ms = i ? 0 : 1795000000123;
        for (l->n = 0; l->n < 2 - i; l->n++) {
            struct upload_file *f = &l->file[l->n];
            copy(f->path, sizeof f->path, l->n ? "a \"b\"/\xC3\xA9.bin" : "train.jsonl");
            f->size = l->n ? 0 : UPLOAD_MAX;
            memset(f->sha256, l->n ? 'f' : '0', SHA256_HEX - 1);
            l->size += f->size;
        }
        CHECK(upload_list_write(l, text, sizeof text) > 0);
        const char *kept = records_hold(i ? "none" : "all", text);
        if (!kept) continue;
        CHECK_MSG(!upload_list_read(back, kept, strlen(kept), true, &e), "%s", e.text);
        CHECK(back->id == l->id && back->created_ms == l->created_ms && back->size == l->size);
        CHECK(!strcmp(back->name, l->name) && upload_list_same(back, l));
    }
    CHECK(upload_list_read(back, records_unknown(text), strlen(records_unknown(text)), true, NULL));
    records_close();
    free(l);
    free(back);
}

int main(int argc, char **argv)
{
    records_args(argc, argv);
    RUN(test_events);
    RUN(test_events_before);
    RUN(test_words_of_another_version);
    RUN(test_damaged);
    RUN(test_uploads);
    return test_done("seqd_records");
}
