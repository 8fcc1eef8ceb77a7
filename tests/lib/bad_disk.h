/* bad_disk.h: a VFS of SQLite on top of the default one. A test can make the VFS block, fail, or
 * report a full disk.
 *
 *     bad_disk_install();       must be called before the first store_open
 *     bad_disk_hold(); ... bad_disk_release();
 *                               between these calls commits wait in the sync of the log
 *     disk.fail_at = n;         the n-th call from now on fails, where only calls of the kinds in
 *                               disk.faults are counted
 *     disk.full = true;         every write fails because the disk is full
 *     disk.full_while = path;   the disk is full until the file `path` is removed. After that, a
 *                               directory is made in its place, so that no new file can be made
 *
 * A call is counted when it begins. disk.failed is the name of the call that failed. */
#ifndef SEQD_TESTS_BAD_DISK_H
#define SEQD_TESTS_BAD_DISK_H

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DISK_READ = 1, DISK_WRITE = 2, DISK_SYNC = 4, DISK_TRUNCATE = 8, DISK_SHM = 16 };

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool hold; /* syncs of the log must wait */
    /* n_held is the number of syncs that are waiting. n_let is the number of these syncs that may
     * return; they return one by one. */
    int n_held, n_let;
    int faults; /* the kinds of calls (DISK_...) that are counted and may fail */
    int files;  /* SQLITE_OPEN_WAL, SQLITE_OPEN_MAIN_DB or both; 0 means all files */
    int64_t fail_at, n_calls;
    /* the result of the failing call, such as SQLITE_IOERR; 0 means the usual error of this kind
     * of call */
    int code;
    bool goes_on; /* all calls after the failing call fail, too */
    bool quick;   /* syncs return without syncing */
    bool full;
    const char *failed, *full_while;
    void (*before)(void); /* a function that is called before the first call that fails, or NULL */
    sqlite3_vfs *real;
    sqlite3_vfs vfs;
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct bad_file {
    sqlite3_file base;
    int flags;
    sqlite3_file *real; /* is stored after this struct */
};

static inline struct bad_file *bad(sqlite3_file *f)
{
    return (struct bad_file *)f;
}

/* Returns the error code if the call must fail without running, or 0 if it may run. */
static inline int bad_disk_meets(const struct bad_file *f, int kind, const char *name, int code)
{
    int rc = 0;
    pthread_mutex_lock(&disk.mutex);
    const bool counted = disk.faults & kind && (!disk.files || disk.files & f->flags);
    if (counted) disk.n_calls++;
    if (counted && disk.fail_at &&
        (disk.n_calls == disk.fail_at || (disk.goes_on && disk.n_calls > disk.fail_at))) {
        if (!disk.failed && disk.before) {
            pthread_mutex_unlock(&disk.mutex);
            disk.before();
            pthread_mutex_lock(&disk.mutex);
        }
        disk.failed = name;
        rc = disk.code ? disk.code : code;
    }
    if (disk.full_while && access(disk.full_while, F_OK)) {
        mkdir(disk.full_while, 0700);
        disk.full_while = NULL;
    }
    if (kind & (DISK_WRITE | DISK_SHM) && (disk.full || disk.full_while)) {
        rc = kind == DISK_SHM ? SQLITE_IOERR_SHMSIZE : SQLITE_FULL;
        errno = ENOSPC;
    }
    pthread_mutex_unlock(&disk.mutex);
    return rc;
}

/* Sets disk.full with the mutex locked, because the writer may be reading it. */
static inline void bad_disk_full(bool full)
{
    pthread_mutex_lock(&disk.mutex);
    disk.full = full;
    pthread_mutex_unlock(&disk.mutex);
}

static inline int bad_close(sqlite3_file *f)
{
    return bad(f)->real->pMethods ? bad(f)->real->pMethods->xClose(bad(f)->real) : SQLITE_OK;
}

static inline int bad_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    int rc = bad_disk_meets(bad(f), DISK_READ, "read", SQLITE_IOERR_READ);
    return rc ? rc : bad(f)->real->pMethods->xRead(bad(f)->real, to, n, at);
}

static inline int bad_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    int rc = bad_disk_meets(bad(f), DISK_WRITE, "write", SQLITE_IOERR_WRITE);
    return rc ? rc : bad(f)->real->pMethods->xWrite(bad(f)->real, from, n, at);
}

static inline int bad_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    int rc = bad_disk_meets(bad(f), DISK_TRUNCATE, "truncate", SQLITE_IOERR_TRUNCATE);
    return rc ? rc : bad(f)->real->pMethods->xTruncate(bad(f)->real, size);
}

static inline int bad_sync(sqlite3_file *f, int flags)
{
    int rc = bad_disk_meets(bad(f), DISK_SYNC, "sync", SQLITE_IOERR_FSYNC);
    if (rc) return rc;
    pthread_mutex_lock(&disk.mutex);
    if (disk.hold && bad(f)->flags & SQLITE_OPEN_WAL) {
        disk.n_held++;
        pthread_cond_broadcast(&disk.changed);
        while (disk.hold && !disk.n_let) pthread_cond_wait(&disk.changed, &disk.mutex);
        if (disk.n_let) disk.n_let--;
        disk.n_held--;
    }
    pthread_mutex_unlock(&disk.mutex);
    return disk.quick ? SQLITE_OK : bad(f)->real->pMethods->xSync(bad(f)->real, flags);
}

#define BAD_PASS(name, params, args)                                                               \
    static inline int bad_##name params                                                            \
    {                                                                                              \
        return bad(f)->real->pMethods->x##name args;                                               \
    }
BAD_PASS(FileSize, (sqlite3_file * f, sqlite3_int64 *n), (bad(f)->real, n))
BAD_PASS(Lock, (sqlite3_file * f, int level), (bad(f)->real, level))
BAD_PASS(Unlock, (sqlite3_file * f, int level), (bad(f)->real, level))
BAD_PASS(CheckReservedLock, (sqlite3_file * f, int *out), (bad(f)->real, out))
BAD_PASS(FileControl, (sqlite3_file * f, int op, void *arg), (bad(f)->real, op, arg))
BAD_PASS(SectorSize, (sqlite3_file * f), (bad(f)->real))
BAD_PASS(DeviceCharacteristics, (sqlite3_file * f), (bad(f)->real))
BAD_PASS(ShmLock, (sqlite3_file * f, int at, int n, int flags), (bad(f)->real, at, n, flags))
BAD_PASS(ShmUnmap, (sqlite3_file * f, int remove), (bad(f)->real, remove))

static inline int bad_ShmMap(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    int rc = extend ? bad_disk_meets(bad(f), DISK_SHM, "shm", SQLITE_IOERR_SHMSIZE) : 0;
    return rc ? rc : bad(f)->real->pMethods->xShmMap(bad(f)->real, page, size, extend, out);
}

static inline void bad_ShmBarrier(sqlite3_file *f)
{
    bad(f)->real->pMethods->xShmBarrier(bad(f)->real);
}

static inline int bad_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
    static const sqlite3_io_methods methods = {.iVersion = 2,
                                               .xClose = bad_close,
                                               .xRead = bad_read,
                                               .xWrite = bad_write,
                                               .xTruncate = bad_truncate,
                                               .xSync = bad_sync,
                                               .xFileSize = bad_FileSize,
                                               .xLock = bad_Lock,
                                               .xUnlock = bad_Unlock,
                                               .xCheckReservedLock = bad_CheckReservedLock,
                                               .xFileControl = bad_FileControl,
                                               .xSectorSize = bad_SectorSize,
                                               .xDeviceCharacteristics = bad_DeviceCharacteristics,
                                               .xShmMap = bad_ShmMap,
                                               .xShmLock = bad_ShmLock,
                                               .xShmBarrier = bad_ShmBarrier,
                                               .xShmUnmap = bad_ShmUnmap};
    struct bad_file *b = bad(f);
    b->flags = flags;
    b->real = (sqlite3_file *)(b + 1);
    b->real->pMethods = NULL;
    int rc = disk.real->xOpen(disk.real, name, b->real, flags, out);
    b->base.pMethods = b->real->pMethods ? &methods : NULL;
    return rc;
}

static inline void bad_disk_install(void)
{
    if (disk.real) return;
    disk.real = sqlite3_vfs_find(NULL);
    disk.vfs = *disk.real; /* the methods that are copied unchanged do not access the file */
    disk.vfs.pNext = NULL;
    disk.vfs.zName = "bad_disk";
    disk.vfs.szOsFile = (int)sizeof(struct bad_file) + disk.real->szOsFile;
    disk.vfs.xOpen = bad_open;
    sqlite3_vfs_register(&disk.vfs, 1);
}

static inline void bad_disk_hold(void)
{
    pthread_mutex_lock(&disk.mutex);
    disk.hold = true;
    pthread_mutex_unlock(&disk.mutex);
}

static inline bool bad_disk_held(void)
{
    pthread_mutex_lock(&disk.mutex);
    const bool held = disk.n_held > 0;
    pthread_mutex_unlock(&disk.mutex);
    return held;
}

/* Waits until a commit is waiting in its sync. */
static inline void bad_disk_wait_held(void)
{
    pthread_mutex_lock(&disk.mutex);
    while (!disk.n_held) pthread_cond_wait(&disk.changed, &disk.mutex);
    pthread_mutex_unlock(&disk.mutex);
}

/* Lets the sync that is waiting return. The next sync will wait. */
static inline void bad_disk_let_one(void)
{
    pthread_mutex_lock(&disk.mutex);
    disk.n_let++;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.mutex);
}

static inline void bad_disk_release(void)
{
    pthread_mutex_lock(&disk.mutex);
    disk.hold = false;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.mutex);
}

/* Removes all faults, and counts calls from zero again. */
static inline void bad_disk_mend(void)
{
    pthread_mutex_lock(&disk.mutex);
    disk.faults = disk.files = disk.code = 0;
    disk.fail_at = disk.n_calls = 0;
    disk.goes_on = disk.full = false;
    disk.failed = disk.full_while = NULL;
    pthread_mutex_unlock(&disk.mutex);
}

#endif
