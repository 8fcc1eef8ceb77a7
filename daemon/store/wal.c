/* wal.c: checkpoints the log after every WAL_STEP bytes, or WAL_STEP_BUSY bytes while requests
 * wait, and empties it at WAL_MAX. While a reader outside of seqd uses the log, a checkpoint
 * copies only a part of the log or nothing. A later checkpoint copies the remaining part. */
#include "daemon/store/wal.h"

#include <sqlite3.h>
#include "daemon/store/reader.h"
#include "daemon/store/space.h"

#define WAL_STEP      (4 << 20)
#define WAL_STEP_BUSY (16 << 20)
#define WAL_STEP_FULL (1 << 20) /* the step on a full disk, on which the log should not grow */
#define WAL_MAX       (64 << 20)

static int on_wal(void *arg, sqlite3 *db, const char *name, int n_pages)
{
    struct wal *w = arg;
    w->pages = n_pages;
    return SQLITE_OK;
}

void wal_init(struct wal *w, sqlite3 *db, int page_size)
{
    *w = (struct wal){.db = db, .page_size = page_size, .busy_ms = WAL_BUSY_MS};
    sqlite3_wal_hook(db, on_wal, w);
}

void wal_wait_ms(struct wal *w, int ms)
{
    w->busy_ms = ms;
    sqlite3_busy_timeout(w->db, ms);
}

int64_t wal_size(const struct wal *w)
{
    return w->pages * (w->page_size + 24);
}

static int try_checkpoint(struct wal *w, int mode)
{
    sqlite3_busy_timeout(w->db, 0); /* do not wait: a later checkpoint does the work */
    int rc = sqlite3_wal_checkpoint_v2(w->db, NULL, mode, NULL, NULL);
    sqlite3_busy_timeout(w->db, w->busy_ms);
    return (rc & 0xff) == SQLITE_BUSY || space_ran_out(w->db, rc) ? SQLITE_BUSY : rc;
}

int wal_empty(struct wal *w)
{
    return try_checkpoint(w, SQLITE_CHECKPOINT_TRUNCATE);
}

/* Empties the log and truncates its file. No reader may use the log in the meantime, so seqd's
 * reader finishes its query and waits. This is short, because an earlier checkpoint has done the
 * slow part. */
static int truncate_log(struct wal *w, struct store_reader *r)
{
    reader_hold(r);
    int rc = wal_empty(w);
    if (rc == SQLITE_OK) w->pages = 0;
    reader_release(r);
    return rc;
}

int wal_keep_short(struct wal *w, struct store_reader *r, bool idle, bool full)
{
    const int step = full ? WAL_STEP_FULL : WAL_STEP;
    const int64_t extra = idle ? 0 : WAL_STEP_BUSY - WAL_STEP;
    if (!w->checkpoint_at || w->checkpoint_at > wal_size(w) + step) /* the log was reset and has
                                                                     * begun again */
        w->checkpoint_at = wal_size(w) + step;
    if (wal_size(w) < w->checkpoint_at + extra) return SQLITE_OK;
    int rc = try_checkpoint(w, SQLITE_CHECKPOINT_PASSIVE);
    if (rc != SQLITE_OK && rc != SQLITE_BUSY) return rc;
    if (wal_size(w) >= WAL_MAX && !full) rc = truncate_log(w, r);
    w->checkpoint_at = wal_size(w) + step;
    return rc == SQLITE_BUSY ? SQLITE_OK : rc;
}
