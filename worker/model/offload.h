/* offload.h: a store outside the device's memory for values that layers keep until the backward
 * pass, and for the optimizer of a training (struct offload_plan). If the device has memory of its
 * own, the store is the host's part of the plan. Otherwise the store is a file, which a thread
 * reads and writes while the rank computes.
 *
 *     offload_out, offload_back    request a copy and return its ticket immediately; the copies of
 *                                  a direction are made in the order of the requests, and a copy
 *                                  back is made after all copies out that were requested before
 *     offload_wait                 waits until the copy is made and its buffer may be used again;
 *                                  on a device, the caller does not wait, but later operations do
 *
 * A buffer belongs to the store from the request until offload_wait returns. Bytes are counted
 * when they are copied.
 *
 * tested: tests/engine/test_offload.c */
#ifndef SEQD_MODEL_OFFLOAD_H
#define SEQD_MODEL_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "kernels/backend.h"
#include "worker/plan/plan.h"

#define OFFLOAD_FIELD "memory.offload_dir"
/* Number of copies of a direction that may be under way at a time. If there are more, offload_wait
 * for the oldest also waits for a later one of the same direction. With a file, a request waits if
 * twice this number of copies are under way. */
#define OFFLOAD_FLIGHT 8

struct offload;

struct offload_options {
    const struct plan *plan; /* borrowed */
    struct be *be;           /* borrowed */
    void *host;              /* plan->host_size bytes; NULL for a file */
    int fd;                  /* from offload_file; the store closes it; -1 if `host` is set */
    /* be_options.n_tasks, which is increased while the file is read and written */
    int64_t *n_tasks;
};

/* Opens a file of `size` bytes in the directory of the descriptor dir. The file has no name, so it
 * is removed when it is closed, however the process ends. Fails with ERR_IO. Fails with
 * ERR_NO_SPACE if the file system can tell that the disk has no room for the whole file. The error
 * names the field. Bytes that were never written are read as zeros. */
int offload_file(int dir, int64_t size, struct err *e);

/* Opens a store. The store owns fd from this call on, even if the call fails. Returns NULL after a
 * failure, with ERR_IO or the device's error. */
struct offload *offload_open(const struct offload_options *o, struct err *e);
/* Closes a store; o may be NULL. Waits for the copy that is being made. Copies that have not begun
 * are not made. */
void offload_close(struct offload *o);

/* Request a copy of size bytes between buf and the store. buf is in the device's memory. The bytes
 * in the store begin at byte `at`. */
int64_t offload_out(struct offload *o, const void *buf, int64_t size, int64_t at);
int64_t offload_back(struct offload *o, void *buf, int64_t size, int64_t at);
/* Waits until the copy of `ticket` is made. If `ticket` is 0, does not wait. Fails with ERR_IO or
 * ERR_NO_SPACE if this copy or an earlier one failed; the error names the field. If the store has
 * `host`, returns 0, because sync reports failures. */
int offload_wait(struct offload *o, int64_t ticket, struct err *e);

/* Return the number of bytes that were copied since the last reset. Read or reset the counts only
 * while no copy is being made. */
struct offload_count offload_counted(struct offload *o);
void offload_reset(struct offload *o); /* NULL allowed */
/* Tells whether exactly these bytes were copied to the store and back. o is NULL if the plan
 * offloads nothing. */
bool offload_moved(struct offload *o, const struct offload_count *want);

/* Copy bytes between the store and the host's memory, while no request is open. The bytes are not
 * counted. With a file, several threads may call these functions at the same time, for disjoint
 * bytes. offload_read fails as offload_wait does, also if an earlier offload_write failed. If
 * offload_write fails, each later offload_read and offload_wait reports it. */
int offload_read(struct offload *o, void *to, int64_t size, int64_t at, struct err *e);
void offload_write(struct offload *o, const void *from, int64_t size, int64_t at);

#endif
