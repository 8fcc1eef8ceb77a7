/* sources: daemon/state/event.c api/core/record.c api/core/jread.c api/core/jwrite.c api/core/err.c api/core/spec.c api/core/nearest.c
 *
 * Reads the data column of an event, whose type is the first byte. An accepted event is written,
 * and the written text must be accepted, too. The first writing drops lists that contradict
 * n_ranks. Reading and writing the text again must not change its bytes. */
#include "daemon/state/event.h"

#include <string.h>
#include "api/core/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char text[2][1 << 20];

/* Reads an event and writes it to text[to]. Returns the size of the written text, or -1 if the
 * event is refused. */
static int64_t rewrite(enum job_event type, const char *data, size_t size, int to)
{
    static struct event ev;
    struct err e = {0};
    memset(&ev, 0, sizeof ev);
    ev.type = type;
    if (event_read(data, size, &ev, &e)) {
        assert(e.code == ERR_CORRUPT && e.text[0]);
        return -1;
    }
    const int64_t n = event_write(&ev, text[to], sizeof text[to]);
    assert(n > 0);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    const enum job_event type = (enum job_event)(*data % JOB_EVENT_N);
    int64_t n = rewrite(type, (const char *)data + 1, size - 1, 0);
    if (n < 0) return 0;
    n = rewrite(type, text[0], (size_t)n, 1);
    assert(n > 0 && rewrite(type, text[1], (size_t)n, 0) == n);
    assert(!memcmp(text[0], text[1], (size_t)n));
    return 0;
}
