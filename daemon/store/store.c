/* store.c: the store as a whole. store_open locks the state directory, opens and checks the
 * database, and starts the writer and the reader. After that, calls are passed on to the writer
 * and the reader. Functions are called on the loop thread unless store.h says otherwise. This file
 * uses the connection that writes only before the first commit, to open and load the database. */
#include "daemon/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/log.h"
#include "daemon/store/answers.h"
#include "daemon/store/carried.h"
#include "daemon/store/gather.h"
#include "daemon/store/late_check.h"
#include "daemon/store/load.h"
#include "daemon/store/reader.h"
#include "daemon/store/remove.h"
#include "daemon/store/schema.h"
#include "daemon/store/space.h"
#include "daemon/store/store_check.h"
#include "daemon/store/txn.h"
#include "daemon/store/wal.h"
#include "daemon/store/writer.h"

#define NFS_MAGIC 0x6969
#define SMB_MAGIC 0xFF534D42u

struct store {
    struct loop *loop;
    char path[1024];
    int lock_fd;
    int64_t last_job, last_event;
    bool newer;
    bool checks_later; /* the database is large, and is checked by `check` */
    struct late_check *check;
    struct backups *backups;
    struct disk_space space;
    struct answers answers;
    sqlite3 *write_db;
    struct wal wal;
    struct store_writer *writer;
    struct store_reader *reader;
    bool running; /* both threads run */
};

/* ---- writing and reading --------------------------------------------------------------------- */

void store_commit(struct store *s, struct store_txn *t, store_done *done, void *arg)
{
    writer_commit(s->writer, t, done, arg);
}

void store_hold(struct store *s, struct store_txn *t)
{
    writer_hold(s->writer, t);
}

bool store_holds(const struct store *s)
{
    return writer_holds(s->writer);
}

void store_expect(struct store *s, struct store_coming *c)
{
    writer_expect(s->writer, c);
}

void store_arrived(struct store_coming *c)
{
    gather_arrived(c);
}

void store_gather(struct store *s, struct store_txn *t, store_done *done, void *arg)
{
    writer_gather(s->writer, t, done, arg);
}

bool store_full(const struct store *s)
{
    return space_full(&s->space);
}

int store_refuse(const struct store *s, struct err *e)
{
    return space_refuse(&s->space, e);
}

void store_health(const struct store *s, struct store_health *out)
{
    writer_health(s->writer, out);
    out->full = space_full(&s->space);
    late_check_health(s->check, out);
}

bool store_moved(struct store *s)
{
    return writer_moved(s->writer);
}

void store_read(struct store *s, enum store_ask what, const int64_t n[4], const char *text,
                store_answer *answer, void *arg)
{
    reader_ask(s->reader, what, n, text, answer, arg);
}

/* ---- loading --------------------------------------------------------------------------------- */

int store_load(struct store *s, const struct store_load *c, struct err *e)
{
    return load_all(s->write_db, s->path, c, e);
}

int store_load_tokens(struct store *s, void *arg, int (*token)(void *, const struct store_token *),
                      struct err *e)
{
    return load_tokens(s->write_db, s->path, arg, token, e);
}

int store_load_joins(struct store *s, const struct store_load_joins *c, struct err *e)
{
    return load_joins(s->write_db, s->path, c, e);
}

struct backups *store_backups(struct store *s)
{
    return s->backups;
}

bool store_is_newer(const struct store *s)
{
    return s->newer;
}

int64_t store_last_job(const struct store *s)
{
    return s->last_job;
}

int64_t store_last_event(const struct store *s)
{
    return s->last_event;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int lock_dir(struct store *s, const char *dir, struct err *e)
{
    char path[1024];
    struct statfs fs;
    if (statfs(dir, &fs)) return err_errno(e, "state directory %s", dir);
    if ((unsigned)fs.f_type == NFS_MAGIC || (unsigned)fs.f_type == SMB_MAGIC)
        return err_set(
            e, ERR_UNSUPPORTED,
            "state directory %s is on a network file system: its locks cannot be trusted, "
            "use a local disk",
            dir);
    if (snprintf(path, sizeof path, "%s/lock", dir) >= (int)sizeof path)
        return err_set(e, ERR_INVALID, "state directory %s: the path is too long", dir);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) return err_errno(e, "open %s", path);
    if (!file_lock(s->lock_fd)) return 0;
    if (errno != EWOULDBLOCK) return err_errno(e, "lock %s", path);
    return err_set(e, ERR_CONFLICT, "another seqd runs on state directory %s", dir);
}

static int open_database(struct store *s, struct err *e)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int64_t page_size, version;
    if (sqlite3_open_v2(s->path, &s->write_db, flags, NULL) != SQLITE_OK)
        return schema_damaged(s->write_db, s->path, e);
    sqlite3_extended_result_codes(s->write_db, 1);
    sqlite3_busy_timeout(s->write_db, WAL_BUSY_MS);
    sqlite3_db_config(s->write_db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (schema_setup(s->write_db, s->path, e) ||
        schema_number(s->write_db, s->path, "PRAGMA page_size", &page_size, e) ||
        schema_number(s->write_db, s->path, "PRAGMA user_version", &version, e))
        return -1;
    s->newer = version == SCHEMA_NEWER;
    wal_init(&s->wal, s->write_db, (int)page_size);
    return 0;
}

/* Makes the commits in the log durable. If the last seqd exited after a failed sync, commits can
 * be read although they may not be on disk. A checkpoint copies them into the database, which is
 * then synced. If a full disk or a reader outside of seqd prevents this for some commits, the log
 * itself is made durable. */
static int first_checkpoint(struct store *s, struct err *e)
{
    int rc = wal_empty(&s->wal);
    if (rc == SQLITE_BUSY) return store_settle_log(s->write_db, s->path, e);
    return rc == SQLITE_OK ? 0 : schema_damaged(s->write_db, s->path, e);
}

static int open_writer(struct store *s, const char *dir, struct err *e)
{
    int bad = open_database(s, e);
    /* SQLite needs disk space for the index of the log, even if it only reads. */
    if (bad && space_ran_out(s->write_db, sqlite3_extended_errcode(s->write_db)) &&
        space_held(&s->space)) {
        sqlite3_close(s->write_db);
        s->write_db = NULL;
        space_release(&s->space);
        bad = open_database(s, e);
    }
    if (bad || late_check_first(s->write_db, dir, s->path, &s->checks_later, e) ||
        first_checkpoint(s, e) || carried_take(s->write_db, dir, e))
        return -1;
    const struct writer_options o = {.loop = s->loop,
                                     .db = s->write_db,
                                     .path = s->path,
                                     .wal = &s->wal,
                                     .space = &s->space,
                                     .out = &s->answers};
    if (!(s->writer = writer_create(&o, e))) return -1;
    return schema_number(s->write_db, s->path, REMOVE_LAST("id", "jobs"), &s->last_job, e) ||
                   schema_number(s->write_db, s->path, REMOVE_LAST("seq", "events"), &s->last_event,
                                 e)
               ? -1
               : 0;
}

static void warn_version(void)
{
    /* first version without the WAL reset bug, which happens with two connections */
    static const int fixed = 3051003;
    if (sqlite3_libversion_number() < fixed)
        log_info("store.version",
                 "sqlite=%s text=\"never open seqd.db with another program while seqd runs: before "
                 "3.51.3 two writers can damage it\"",
                 sqlite3_libversion());
}

struct store *store_open(struct loop *l, const char *dir, struct err *e)
{
    struct store *s = txn_must(calloc(1, sizeof *s));
    s->loop = l;
    s->lock_fd = -1;
    answers_init(&s->answers, l);
    space_init(&s->space, dir);
    if (snprintf(s->path, sizeof s->path, "%s/seqd.db", dir) >= (int)sizeof s->path) {
        err_set(e, ERR_INVALID, "state directory %s: the path is too long", dir);
        goto fail;
    }
    if (reserve_check_limit(e) || lock_dir(s, dir, e) || open_writer(s, dir, e)) goto fail;
    if (!(s->reader = reader_create(s->path, &s->answers, e))) goto fail;
    space_start(&s->space);
    warn_version();
    s->backups = backups_create(l, dir, s->path);
    s->running = true;
    writer_start(s->writer, s->reader);
    reader_start(s->reader);
    s->check = late_check_create(dir, s->path, s->checks_later);
    return s;
fail:
    store_close(s);
    return NULL;
}

void store_close(struct store *s)
{
    if (!s) return;
    backups_destroy(s->backups);
    late_check_destroy(s->check);
    if (s->running) {
        writer_stop(s->writer);
        reader_stop(s->reader);
        answers_give(&s->answers);
    }
    writer_destroy(s->writer);
    reader_destroy(s->reader);
    sqlite3_close(s->write_db); /* closed last, because only this connection may checkpoint */
    if (s->lock_fd >= 0) close(s->lock_fd);
    space_fini(&s->space);
    answers_fini(&s->answers);
    free(s);
}
