/* test_answers: requests to a job that serves, on their way through the agent. The test takes the
 * place of the gang and of the session. tests/agent/test_agent_life.c has both. */
#include "api/wire.h"
#include "worker/agent/answers.h"
#include "worker/agent/attempt.h"
#include "worker/agent/session.h"
#include "tests/lib/test.h"

static struct {
    int n_room; /* packets that the gang still takes */
    int n_asks, n_drops;
    uint64_t dropped;  /* id of the last DROP */
    struct msg answer; /* the last message to seqd */
    int n_answers;
} told;

int attempt_ask(struct attempt *t, enum rank_msg_type type, const void *payload, size_t size)
{
    (void)t, (void)size;
    told.n_asks += type == RANK_ASK;
    told.n_drops += type == RANK_DROP;
    if (type == RANK_DROP) memcpy(&told.dropped, payload, sizeof told.dropped);
    return type == RANK_ASK && told.n_room-- <= 0 ? -1 : 0;
}

bool session_can_send(const struct agent_session *s)
{
    (void)s;
    return true;
}

int session_send(struct agent_session *s, const struct msg *m)
{
    (void)s;
    told.answer = *m;
    told.n_answers++;
    return 0;
}

/* Checks a request of which the gang cannot take the second piece: seqd gets 503, and rank 0
 * forgets the first piece. */
static void test_full(void)
{
    struct agent_answers *a = answers_create(NULL);
    struct attempt t = {.job = 7, .epoch = 2};
    struct msg m = {.type = MSG_ASK, .job = 7, .epoch = 2, .request = 5, .more = true, .data = "x"};
    m.size = 1;
    told.n_room = 1;
    answers_take(a, &t, &m);
    CHECK(told.n_asks == 1 && !told.n_drops && !told.n_answers);
    answers_take(a, &t, &m);
    CHECK(told.n_asks == 2 && told.n_drops == 1 && told.dropped == 5);
    CHECK(told.n_answers == 1 && told.answer.request == 5 && told.answer.status == 503);
    CHECK(!told.answer.more && !told.answer.size);
    answers_session_down(a);
    CHECK(told.n_drops == 1); /* nothing is open */
    answers_destroy(a);
}

/* Checks that a stream which the gang has lost ends as a lost request: seqd tells its client. */
static void test_lost_stream(void)
{
    struct {
        struct rank_msg head;
        struct rank_answer answer;
        char text[2];
    } p = {
        {RANK_ABI, RANK_ANSWER, 0, sizeof p.answer + 2}, {.id = 5, .status = 200, .size = 2}, "x"};
    const size_t empty = sizeof p.head + sizeof p.answer;
    struct agent_answers *a = answers_create(NULL);
    struct attempt t = {.job = 7, .epoch = 2};
    const struct msg m = {.type = MSG_ASK, .job = 7, .epoch = 2, .request = 5};
    told.n_room = 1, told.n_answers = 0;
    answers_take(a, &t, &m);
    answers_packet(a, &t, &p, empty + 2);
    CHECK(told.n_answers == 1 && told.answer.status == 200 && told.answer.more);
    p.answer = (struct rank_answer){.id = 5, .status = 503, .flags = RANK_ANSWER_LAST};
    p.head.size = sizeof p.answer;
    answers_packet(a, &t, &p, empty);
    CHECK(told.n_answers == 2 && told.answer.status == 503 && !told.answer.more);
    CHECK(!told.answer.size && !t.n_answered);
    answers_destroy(a);
}

/* Checks that the memory of a process with requests is in no core. */
static void test_hidden(void)
{
    char text[16] = "";
    FILE *f = fopen("/proc/self/coredump_filter", "r");
    if (!f) return; /* this kernel writes no cores */
    CHECK(fgets(text, sizeof text, f) != NULL);
    fclose(f);
    CHECK_STR(text, "00000000\n");
}

int main(void)
{
    RUN(test_full);
    RUN(test_lost_stream);
    RUN(test_hidden);
    return test_done("answers");
}
