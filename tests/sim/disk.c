/* disk.c: a disk for SQLite, with files in memory. Each file has two contents: the content that
 * programs read, and the content that is on disk. When power is lost, any part of the writes since
 * the last sync may be kept. */
#include <errno.h>
#include <sqlite3.h>
#include "tests/sim/oom.h"
#include "tests/sim/sim.h"

enum { FILES = 16, REGIONS = 64, LOCKS = 8, SECTOR = 512 };

struct change { /* a write that came after the last sync */
    struct change *next;
    int64_t at, size; /* a size of -1 means that the file was truncated to `at` bytes */
    char data[];
};

struct image {
    char *data;
    int64_t size, room;
};

struct file {
    char name[256]; /* "" if the file is private to its handle */
    bool used;
    struct image now, safe;
    struct change *first, **last;
    int n_shared, writer; /* locks of the rollback journal; `writer` is the index of the handle
                           * that has the write lock */
    char *region[REGIONS];
    int n_regions, region_size;
    int shm_shared[LOCKS], shm_writer[LOCKS];
};

struct handle {
    sqlite3_file base;
    struct file *file;
    int number, life, level;
    bool own; /* the file is deleted when it is closed */
    unsigned shm_shared, shm_writer;
};

struct disk_faults disk;
static struct file files[FILES];
static int life, n_handles, last_errno;
static char *graves[4096]; /* regions that connections of a killed seqd may still read */
static int n_graves;
static sqlite3_vfs vfs;

/* ---- images ---------------------------------------------------------------------------------- */

static void image_size(struct image *m, int64_t size)
{
    if (size > m->room) {
        m->room = 2 * size + 65536;
        if (!(m->data = sim_realloc(m->data, (size_t)m->room))) abort();
    }
    if (size > m->size) memset(m->data + m->size, 0, (size_t)(size - m->size));
    m->size = size;
}

static void image_write(struct image *m, const void *data, int64_t size, int64_t at)
{
    if (at + size > m->size) image_size(m, at + size);
    if (size) memcpy(m->data + at, data, (size_t)size);
}

static void image_copy(struct image *to, const struct image *from)
{
    to->size = 0;
    image_write(to, from->data, from->size, 0);
}

static void note_change(struct file *f, const void *data, int64_t size, int64_t at)
{
    struct change *c = sim_malloc(sizeof *c + (size > 0 ? (size_t)size : 0));
    if (!c) abort();
    *c = (struct change){.at = at, .size = size};
    if (size > 0) memcpy(c->data, data, (size_t)size);
    *f->last = c;
    f->last = &c->next;
}

static void forget_changes(struct file *f)
{
    for (struct change *c = f->first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    f->first = NULL;
    f->last = &f->first;
}

static void apply(struct image *m, const struct change *c, int64_t size)
{
    if (c->size < 0)
        image_size(m, c->at);
    else
        image_write(m, c->data, size, c->at);
}

/* Keeps none, all or some of the changes since the last sync. If it keeps only some, a kept change
 * may be torn, which means that only its first sectors are kept. */
static void lose_power(struct file *f)
{
    const int how = sim_below(4);
    for (struct change *c = f->first; c; c = c->next) {
        const bool kept = how == 1 || (how > 1 && sim_below(2));
        const bool torn = how > 1 && c->size > SECTOR && !sim_below(4);
        if (kept) apply(&f->safe, c, torn ? sim_below((int)(c->size / SECTOR)) * SECTOR : c->size);
    }
    forget_changes(f);
    image_copy(&f->now, &f->safe);
}

/* ---- files ----------------------------------------------------------------------------------- */

static struct file *file_find(const char *name)
{
    for (int i = 0; i < FILES; i++)
        if (files[i].used && !strcmp(files[i].name, name)) return &files[i];
    return NULL;
}

static struct file *file_make(const char *name)
{
    for (int i = 0; i < FILES; i++) {
        struct file *f = &files[i];
        if (f->used) continue;
        f->now.size = f->safe.size = 0;
        snprintf(f->name, sizeof f->name, "%s", name);
        f->used = true;
        f->last = &f->first;
        return f;
    }
    abort();
}

static void drop_shm(struct file *f)
{
    for (int i = 0; i < f->n_regions; i++) {
        if (n_graves < 4096) graves[n_graves++] = f->region[i];
        f->region[i] = NULL;
    }
    f->n_regions = 0;
    memset(f->shm_shared, 0, sizeof f->shm_shared);
    memset(f->shm_writer, 0, sizeof f->shm_writer);
}

static void file_drop(struct file *f)
{
    drop_shm(f);
    forget_changes(f);
    f->used = false;
}

void disk_cut(bool power)
{
    life++;
    for (int i = 0; i < FILES; i++) {
        struct file *f = &files[i];
        if (!f->used) continue;
        drop_shm(f);
        f->n_shared = f->writer = 0;
        if (power) lose_power(f);
    }
}

void disk_reset(void)
{
    life++;
    for (int i = 0; i < FILES; i++)
        if (files[i].used) file_drop(&files[i]);
    for (int i = 0; i < n_graves; i++) free(graves[i]);
    n_graves = 0;
    disk = (struct disk_faults){.room = -1};
    last_errno = n_handles = 0;
    sqlite3_randomness(0, NULL); /* seeds SQLite's random numbers again, with on_random */
}

static bool alive(const struct handle *h)
{
    return h->life == life;
}

/* Returns the code with which this call fails, or 0. */
static int meets(const struct handle *h, int code)
{
    if (!alive(h)) {
        last_errno = EIO;
        return code;
    }
    if (disk.aside || !disk.fail_in || --disk.fail_in) return 0;
    sim_note(0, "disk: %s fails with %d", h->file->name, code);
    last_errno = EIO;
    return code;
}

/* ---- what SQLite calls ----------------------------------------------------------------------- */

static int io_close(sqlite3_file *file)
{
    struct handle *h = (struct handle *)file;
    if (alive(h)) {
        if (h->level && h->file->n_shared) h->file->n_shared--;
        if (h->file->writer == h->number) h->file->writer = 0;
        if (h->own) file_drop(h->file);
    }
    return SQLITE_OK;
}

static int io_read(sqlite3_file *file, void *to, int n, sqlite3_int64 at)
{
    struct handle *h = (struct handle *)file;
    const int rc = meets(h, SQLITE_IOERR_READ);
    if (rc) return rc;
    const struct image *m = &h->file->now;
    const int64_t there = at >= m->size ? 0 : m->size - at < n ? m->size - at : n;
    if (there) memcpy(to, m->data + at, (size_t)there);
    if (there == n) return SQLITE_OK;
    memset((char *)to + there, 0, (size_t)(n - there));
    return SQLITE_IOERR_SHORT_READ;
}

static void write_part(struct file *f, const void *from, int64_t n, int64_t at)
{
    image_write(&f->now, from, n, at);
    note_change(f, from, n, at);
}

static int io_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 at)
{
    struct handle *h = (struct handle *)file;
    int rc = meets(h, SQLITE_IOERR_WRITE);
    if (!alive(h)) return rc;
    struct file *f = h->file;
    const int64_t grows = at + n > f->now.size ? at + n - f->now.size : 0;
    if (!rc && disk.room >= 0 && grows > disk.room) {
        rc = SQLITE_FULL;
        last_errno = ENOSPC;
    }
    if (rc) {
        if (disk.shorter || sim_below(2)) write_part(f, from, sim_below(n), at);
        return rc;
    }
    if (disk.room >= 0) disk.room -= grows;
    write_part(f, from, n, at);
    return SQLITE_OK;
}

static int io_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct handle *h = (struct handle *)file;
    const int rc = meets(h, SQLITE_IOERR_TRUNCATE);
    if (rc) return rc;
    image_size(&h->file->now, size);
    note_change(h->file, NULL, -1, size);
    return SQLITE_OK;
}

/* Syncs a file. A sync that fails drops the data that it should have written. The next sync
 * succeeds nevertheless. */
static int io_sync(sqlite3_file *file, int flags)
{
    struct handle *h = (struct handle *)file;
    for (int i = sim_below(3); i > 0 && alive(h); i--) fiber_yield();
    int rc = meets(h, SQLITE_IOERR_FSYNC);
    if (!rc && disk.no_sync) rc = SQLITE_IOERR_FSYNC, last_errno = EIO, disk.no_sync = false;
    if (!alive(h)) return rc;
    for (struct change *c = h->file->first; c && !rc; c = c->next)
        apply(&h->file->safe, c, c->size);
    forget_changes(h->file);
    return rc;
}

static int io_size(sqlite3_file *file, sqlite3_int64 *size)
{
    *size = ((struct handle *)file)->file->now.size;
    return SQLITE_OK;
}

static int io_lock(sqlite3_file *file, int level)
{
    struct handle *h = (struct handle *)file;
    struct file *f = h->file;
    if (!alive(h) || level <= h->level) return SQLITE_OK;
    if (f->writer && f->writer != h->number) return SQLITE_BUSY;
    if (level == SQLITE_LOCK_EXCLUSIVE && f->n_shared > 1) return SQLITE_BUSY;
    if (!h->level) f->n_shared++;
    if (level >= SQLITE_LOCK_RESERVED) f->writer = h->number;
    h->level = level;
    return SQLITE_OK;
}

static int io_unlock(sqlite3_file *file, int level)
{
    struct handle *h = (struct handle *)file;
    struct file *f = h->file;
    if (!alive(h) || level >= h->level) return SQLITE_OK;
    if (f->writer == h->number) f->writer = 0;
    if (level == SQLITE_LOCK_NONE) f->n_shared--;
    h->level = level;
    return SQLITE_OK;
}

static int io_reserved(sqlite3_file *file, int *out)
{
    *out = ((struct handle *)file)->file->writer != 0;
    return SQLITE_OK;
}

static int io_control(sqlite3_file *file, int op, void *arg)
{
    return SQLITE_NOTFOUND;
}

static int io_sector(sqlite3_file *file)
{
    return SECTOR;
}

static int io_traits(sqlite3_file *file)
{
    return SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN;
}

static int io_shm_map(sqlite3_file *file, int i, int size, int extend, void volatile **out)
{
    struct handle *h = (struct handle *)file;
    struct file *f = h->file;
    *out = NULL;
    if (!alive(h) || i >= REGIONS) return SQLITE_IOERR_SHMMAP;
    if (i >= f->n_regions && !extend) return SQLITE_OK;
    if (i >= f->n_regions && disk.room >= 0 && disk.room < size) {
        last_errno = ENOSPC;
        return SQLITE_IOERR_SHMSIZE;
    }
    for (; f->n_regions <= i; f->n_regions++)
        if (!(f->region[f->n_regions] = sim_calloc(1, (size_t)size))) abort();
    *out = f->region[i];
    return SQLITE_OK;
}

static int shm_unlock(struct handle *h, int at)
{
    struct file *f = h->file;
    if (h->shm_writer >> at & 1) f->shm_writer[at] = 0;
    if (h->shm_shared >> at & 1) f->shm_shared[at]--;
    h->shm_writer &= ~(1u << at);
    h->shm_shared &= ~(1u << at);
    return SQLITE_OK;
}

static int io_shm_lock(sqlite3_file *file, int at, int n, int flags)
{
    struct handle *h = (struct handle *)file;
    struct file *f = h->file;
    if (!alive(h)) return SQLITE_OK;
    for (int i = at; i < at + n; i++) {
        if (flags & SQLITE_SHM_UNLOCK) continue;
        if (f->shm_writer[i] && f->shm_writer[i] != h->number) return SQLITE_BUSY;
        const int mine = h->shm_shared >> i & 1;
        if (flags & SQLITE_SHM_EXCLUSIVE && f->shm_shared[i] > mine) return SQLITE_BUSY;
    }
    for (int i = at; i < at + n; i++) {
        if (flags & SQLITE_SHM_UNLOCK) {
            shm_unlock(h, i);
        } else if (flags & SQLITE_SHM_EXCLUSIVE) {
            f->shm_writer[i] = h->number;
            h->shm_writer |= 1u << i;
        } else if (!(h->shm_shared >> i & 1)) {
            f->shm_shared[i]++;
            h->shm_shared |= 1u << i;
        }
    }
    return SQLITE_OK;
}

static void io_shm_barrier(sqlite3_file *file)
{
}

static int io_shm_unmap(sqlite3_file *file, int remove)
{
    struct handle *h = (struct handle *)file;
    if (!alive(h)) return SQLITE_OK;
    for (int i = 0; i < LOCKS; i++) shm_unlock(h, i);
    if (remove) drop_shm(h->file);
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {.iVersion = 2,
                                           .xClose = io_close,
                                           .xRead = io_read,
                                           .xWrite = io_write,
                                           .xTruncate = io_truncate,
                                           .xSync = io_sync,
                                           .xFileSize = io_size,
                                           .xLock = io_lock,
                                           .xUnlock = io_unlock,
                                           .xCheckReservedLock = io_reserved,
                                           .xFileControl = io_control,
                                           .xSectorSize = io_sector,
                                           .xDeviceCharacteristics = io_traits,
                                           .xShmMap = io_shm_map,
                                           .xShmLock = io_shm_lock,
                                           .xShmBarrier = io_shm_barrier,
                                           .xShmUnmap = io_shm_unmap};

static int on_open(sqlite3_vfs *v, const char *name, sqlite3_file *file, int flags, int *out)
{
    struct handle *h = (struct handle *)file;
    *h = (struct handle){.number = ++n_handles, .life = life, .own = !name};
    h->file = name ? file_find(name) : NULL;
    if (!h->file && !(flags & SQLITE_OPEN_CREATE)) return SQLITE_CANTOPEN;
    if (!h->file) h->file = file_make(name ? name : "");
    h->base.pMethods = &methods;
    if (out) *out = flags;
    return SQLITE_OK;
}

static int on_delete(sqlite3_vfs *v, const char *name, int sync)
{
    struct file *f = file_find(name);
    if (!f) return SQLITE_IOERR_DELETE_NOENT;
    file_drop(f);
    return SQLITE_OK;
}

static int on_access(sqlite3_vfs *v, const char *name, int flags, int *out)
{
    *out = file_find(name) != NULL;
    return SQLITE_OK;
}

static int on_full_path(sqlite3_vfs *v, const char *name, int size, char *out)
{
    snprintf(out, (size_t)size, "%s", name);
    return SQLITE_OK;
}

static int on_random(sqlite3_vfs *v, int n, char *out)
{
    for (int i = 0; i < n; i++) out[i] = (char)sim_random();
    return n;
}

static int on_sleep(sqlite3_vfs *v, int us)
{
    fiber_yield();
    return us;
}

static int on_time(sqlite3_vfs *v, double *out)
{
    *out = 2440587.5 + (double)sim_utc / 86400000.0;
    return SQLITE_OK;
}

static int on_last_error(sqlite3_vfs *v, int n, char *out)
{
    return last_errno;
}

void disk_install(void)
{
    vfs = *sqlite3_vfs_find(NULL);
    vfs.iVersion = 1;
    vfs.zName = "sim";
    vfs.pNext = NULL;
    vfs.szOsFile = (int)sizeof(struct handle);
    vfs.xOpen = on_open;
    vfs.xDelete = on_delete;
    vfs.xAccess = on_access;
    vfs.xFullPathname = on_full_path;
    vfs.xRandomness = on_random;
    vfs.xSleep = on_sleep;
    vfs.xCurrentTime = on_time;
    vfs.xGetLastError = on_last_error;
    sqlite3_vfs_register(&vfs, 1);
}
