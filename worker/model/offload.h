/* offload.h: a store beside the device's memory for values that layers keep until the backward
 * pass (struct offload_plan): the host's part of the plan where the device has memory of its own,
 * else a file, which a thread reads and writes while the rank computes.
 *
 *     offload_out, offload_back    ask for a copy and return its ticket at once; copies are made
 *                                  in the order in which they were asked for
 *     offload_wait                 waits until the copy is made and its buffer may be used again.
 *                                  On a device later operations wait, not the caller
 *
 * A buffer belongs to the store from the call to the wait. Bytes are counted as they move.
 *
 * tested: tests/engine/test_offload.c */
#ifndef SEQD_MODEL_OFFLOAD_H
#define SEQD_MODEL_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "kernels/backend.h"
#include "worker/plan/plan.h"

#define OFFLOAD_FIELD  "memory.offload_dir"
#define OFFLOAD_FLIGHT 4 /* copies asked for and not yet waited for, at most */

struct offload;

struct offload_options {
    const struct plan *plan; /* borrowed */
    struct be *be;           /* borrowed */
    void *host;              /* plan->host_size bytes; NULL: a file */
    int fd;                  /* from offload_file: the store closes it; -1 with `host` */
    int64_t *n_tasks;        /* be_options.n_tasks: counts up while the file is read and written */
};

/* Opens a file of `size` bytes in the directory that dir is open for. No directory lists it, and it
 * is gone when it is closed, whatever ends the process. fails: ERR_IO naming the field,
 * ERR_NO_SPACE on a disk that has no room for all of it, where its file system can tell. */
int offload_file(int dir, int64_t size, struct err *e);

/* Opens a store; NULL: failed, ERR_IO or the device's error. The store owns fd from this call on,
 * also if it fails. */
struct offload *offload_open(const struct offload_options *o, struct err *e);
/* Closes a store; NULL allowed. Waits for the copy under way; later copies are not made. */
void offload_close(struct offload *o);

/* Ask for a copy of size bytes between buf, in the device's memory, and byte `at` of the store. */
int64_t offload_out(struct offload *o, const void *buf, int64_t size, int64_t at);
int64_t offload_back(struct offload *o, void *buf, int64_t size, int64_t at);
/* Waits until the copy of `ticket` is made; ticket 0: waits for none. fails: ERR_IO or
 * ERR_NO_SPACE naming the field, of any copy so far. With `host` it returns 0: sync reports
 * failures. */
int offload_wait(struct offload *o, int64_t ticket, struct err *e);

/* Bytes that were copied since the last reset. No copy may be under way. */
struct offload_count {
    int64_t bytes_out, bytes_in;
};
struct offload_count offload_counted(struct offload *o);
void offload_reset(struct offload *o); /* NULL allowed */
/* Tells whether `bytes` bytes went out and the same number came back. o NULL: the plan offloads
 * nothing. */
bool offload_moved(struct offload *o, int64_t bytes);

#endif
