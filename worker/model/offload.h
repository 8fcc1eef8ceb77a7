/* offload.h: a store outside the device's memory for values that layers keep until the backward
 * pass (struct offload_plan). If the device has memory of its own, the store is the host's part of
 * the plan; else it is a file, which a thread reads and writes while the rank computes.
 *
 *     offload_out, offload_back    ask for a copy and return its ticket immediately; copies are
 *                                  made in the order in which they were asked for
 *     offload_wait                 waits until the copy is made and its buffer may be used again;
 *                                  on a device, later operations wait, not the caller
 *
 * A buffer belongs to the store from the call that asks for the copy until the wait returns. Bytes
 * are counted when they move.
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
#define OFFLOAD_FLIGHT 4 /* most copies that are asked for and not yet waited for */

struct offload;

struct offload_options {
    const struct plan *plan; /* borrowed */
    struct be *be;           /* borrowed */
    void *host;              /* plan->host_size bytes; NULL for a file */
    int fd;                  /* from offload_file; the store closes it; -1 with `host` */
    /* be_options.n_tasks, which counts up while the file is read and written */
    int64_t *n_tasks;
};

/* Opens a file of `size` bytes in the directory for which dir is a descriptor. The file has no
 * name, so it no longer exists once it is closed, however the process ends. Fails with ERR_IO; the
 * error names the field. Fails with ERR_NO_SPACE if the file system can tell that the disk has no
 * room for the whole file. */
int offload_file(int dir, int64_t size, struct err *e);

/* Opens a store. Returns NULL if it failed, with ERR_IO or the device's error. The store owns fd
 * from this call on, even if the call fails. */
struct offload *offload_open(const struct offload_options *o, struct err *e);
/* Closes a store; o may be NULL. Waits for the copy that is under way; later copies are not
 * made. */
void offload_close(struct offload *o);

/* Ask for a copy of size bytes between buf, which is in the device's memory, and the store from
 * byte `at` on. */
int64_t offload_out(struct offload *o, const void *buf, int64_t size, int64_t at);
int64_t offload_back(struct offload *o, void *buf, int64_t size, int64_t at);
/* Waits until the copy of `ticket` is made; for ticket 0 it does not wait. Fails with ERR_IO or
 * ERR_NO_SPACE, which name the field, if this or any earlier copy failed. With `host` it returns
 * 0, because sync reports failures. */
int offload_wait(struct offload *o, int64_t ticket, struct err *e);

/* Bytes that were copied since the last reset. Read or reset them only while no copy is under
 * way. */
struct offload_count {
    int64_t bytes_out, bytes_in;
};
struct offload_count offload_counted(struct offload *o);
void offload_reset(struct offload *o); /* NULL allowed */
/* Tells whether `bytes` bytes were copied to the store and as many were copied back. o is NULL if
 * the plan offloads nothing. */
bool offload_moved(struct offload *o, int64_t bytes);

#endif
