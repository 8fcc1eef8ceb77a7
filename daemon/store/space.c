/* space.c: makes and releases the reserve. The thread of store_open does this at first, and later
 * the writer. `full` tells other threads whether the reserve is released; it is guarded by the
 * mutex. */
#include "daemon/store/space.h"

#include <errno.h>
#include <sqlite3.h>
#include "api/core/clock.h"
#include "api/core/log.h"

#define START_ROOM (1 << 20) /* bytes that seqd writes at its start beside the database */

void space_init(struct disk_space *s, const char *dir)
{
    pthread_mutex_init(&s->mutex, NULL);
    reserve_init(&s->reserve, dir);
    s->look_ms = 0;
    s->full = false;
}

void space_fini(struct disk_space *s)
{
    pthread_mutex_destroy(&s->mutex);
}

bool space_ran_out(sqlite3 *db, int rc)
{
    int no = sqlite3_system_errno(db);
    if ((rc & 0xff) == SQLITE_FULL) return true;
    return (rc == SQLITE_IOERR_SHMSIZE || rc == SQLITE_IOERR_WRITE) &&
           (no == ENOSPC || no == EDQUOT);
}

static void say_full(struct disk_space *s, bool full)
{
    pthread_mutex_lock(&s->mutex);
    s->full = full;
    pthread_mutex_unlock(&s->mutex);
}

bool space_held(const struct disk_space *s)
{
    return s->reserve.held;
}

void space_look(struct disk_space *s)
{
    if (s->reserve.held || clock_ms() < s->look_ms) return;
    s->look_ms = clock_ms() + SPACE_LOOK_MS;
    if (!reserve_make(&s->reserve)) return;
    log_info("store.room", "text=\"there is room again: new jobs are taken\"");
    say_full(s, false);
}

void space_release(struct disk_space *s)
{
    reserve_release(&s->reserve);
    s->look_ms = clock_ms() + SPACE_LOOK_MS;
    say_full(s, true);
    log_error("store.full",
              "text=\"the disk of %s is full and has no reserve of %d MiB any more: new jobs are "
              "refused until %d MiB are free\"",
              s->reserve.dir, RESERVE_SIZE >> 20, RESERVE_ROOM >> 20);
}

void space_start(struct disk_space *s)
{
    /* Other files are written at the start, too, and need space. */
    if (s->reserve.held && reserve_free(&s->reserve) < START_ROOM) space_release(s);
    if (!reserve_make(&s->reserve) && !s->full) space_release(s); /* logged once */
}

bool space_full(const struct disk_space *s)
{
    struct disk_space *w = (struct disk_space *)s;
    pthread_mutex_lock(&w->mutex);
    bool full = s->full;
    pthread_mutex_unlock(&w->mutex);
    return full;
}

int space_withdraw(const struct disk_space *s, struct err *e)
{
    int64_t left = reserve_free(&s->reserve);
    return err_set(
        e, ERR_NO_SPACE,
        "the disk of seqd's state directory %s is full, %lld KiB are free and the reserve "
        "is used up: nothing was changed; make room and send the request again",
        s->reserve.dir, (long long)(left < 0 ? 0 : left >> 10));
}

int space_refuse(const struct disk_space *s, struct err *e)
{
    int64_t left = reserve_free(&s->reserve);
    return err_set(e, ERR_NO_SPACE,
                   "the disk of seqd's state directory %s is full: %lld MiB are free, new jobs are "
                   "taken from %d MiB on; existing jobs continue and can be cancelled",
                   s->reserve.dir, (long long)(left < 0 ? 0 : left >> 20), RESERVE_ROOM >> 20);
}
