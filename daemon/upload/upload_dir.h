/* upload_dir.h: inputs that clients bring, on disk. File work that blocks: for uploads.c's thread.
 *
 *   DIR/lock                      flocked: one seqd per directory
 *   DIR/parts/ID/list.json        the list of upload ID; tree/ has the bytes received of it
 *   DIR/lists/NAME.json           the list of a complete upload
 *   DIR/files/NAME/...            its files, which jobs read
 *
 * An upload is complete or absent: every file has its size and digest, all is synced, and then one
 * rename gives it its name. A kill leaves a part, which continues where its files end, or goes
 * after expire_ms without a byte. tested: tests/daemon/test_seqd_upload.c */
#ifndef SEQD_DAEMON_UPLOAD_UPLOAD_DIR_H
#define SEQD_DAEMON_UPLOAD_UPLOAD_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "daemon/state/principal.h"
#include "daemon/upload/upload_list.h"

#define UPLOADS_COUNT 1000 /* uploads at once, complete or not */

struct upload_dir_options {
    const char *dir;       /* made when it is missing */
    int64_t max, user_max; /* bytes, of all and of one owner, received or promised */
    int64_t expire_ms;
};

struct upload_dir;
struct upload_dir *upload_dir_open(const struct upload_dir_options *o, int64_t now_ms,
                                   struct err *e);
void upload_dir_close(struct upload_dir *d);
const char *upload_dir_files(const struct upload_dir *d); /* DIR/files, absolute; never changes */

/* Makes an upload, or finds one of the same list, complete or not: *made says whether it is new.
 * body: upload_list.h. fails: as upload_list_read; ERR_CONFLICT for a name that has other files or
 * another owner; ERR_TOO_LARGE over a quota or UPLOADS_COUNT; ERR_NO_SPACE; as err_errno. */
int upload_dir_create(struct upload_dir *d, const char *owner, const char *body, size_t size,
                      int64_t now_ms, int64_t *id, bool *made, struct err *e);
/* Appends to file number `file`, which must have `offset` bytes. *at: its bytes afterwards, also
 * set when the offset is wrong (ERR_CONFLICT); -1: there is no such upload or file
 * (ERR_NOT_FOUND). ERR_INVALID for more bytes than listed. A file that becomes complete but has
 * another digest than listed becomes empty: ERR_CORRUPT. If files were not written one after the
 * other, or seqd was restarted meanwhile, only the commit compares the digest. ERR_NO_SPACE, with
 * the fix, when the disk is full: the file stays as it was. */
int upload_dir_write(struct upload_dir *d, int64_t id, int file, int64_t offset, const void *bytes,
                     size_t n, int64_t now_ms, int64_t *at, struct err *e);
/* Completes an upload; does nothing if it is complete. fails: ERR_NOT_FOUND; ERR_CONFLICT naming a
 * file that is not whole; ERR_CORRUPT as upload_dir_write; as err_errno. */
int upload_dir_commit(struct upload_dir *d, int64_t id, struct err *e);
int upload_dir_remove(struct upload_dir *d, int64_t id, struct err *e);
/* Removes incomplete uploads that have received no byte for expire_ms. */
void upload_dir_sweep(struct upload_dir *d, int64_t now_ms);

/* Describes complete upload number i, from 0; false: there are fewer. */
bool upload_dir_complete(const struct upload_dir *d, int i, struct upload_name *out);
/* Describes upload id, complete or not; false: there is none. */
bool upload_dir_name(const struct upload_dir *d, int64_t id, struct upload_name *out);

/* Returns an upload as JSON, which the caller frees; NULL with ERR_NOT_FOUND. */
char *upload_dir_show(struct upload_dir *d, int64_t id, struct err *e);
/* Returns the uploads that who may see (principal_owns) as JSON, without their files; the caller
 * frees it. */
char *upload_dir_list(struct upload_dir *d, const struct principal *who);

#endif
