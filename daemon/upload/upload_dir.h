/* upload_dir.h: manages the files that clients have uploaded as inputs of jobs. The functions
 * block, so they are called on the thread of uploads.c.
 *
 *   DIR/lock                      locked by the only seqd that uses the directory
 *   DIR/parts/ID/list.json        the list of upload ID; tree/ has its received bytes
 *   DIR/lists/NAME.json           the list of a complete upload
 *   DIR/files/NAME/...            its files, which jobs read
 *
 * Under its name an upload is either complete or absent. Once every file has its size and digest
 * and all files are synced, one rename gives the upload its name. If seqd is killed, an incomplete
 * upload remains. It can be continued where its files end. It is removed if it receives no byte
 * for expire_ms.
 * tested: tests/daemon/test_seqd_upload.c */
#ifndef SEQD_DAEMON_UPLOAD_UPLOAD_DIR_H
#define SEQD_DAEMON_UPLOAD_UPLOAD_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "daemon/state/principal.h"
#include "daemon/upload/upload_list.h"

/* Largest number of uploads that exist at the same time, complete or not, and largest number
 * that one owner may have. The list of an upload takes up to 350 KiB of memory. */
#define UPLOADS_COUNT 1000
#define UPLOADS_USER  250

struct upload_dir_options {
    const char *dir; /* is made if it does not exist */
    /* limits on the bytes, received or promised, of all uploads and of one owner's uploads */
    int64_t max, user_max;
    int64_t expire_ms;
};

struct upload_dir;
struct upload_dir *upload_dir_open(const struct upload_dir_options *o, int64_t now_ms,
                                   struct err *e);
void upload_dir_close(struct upload_dir *d);
const char *upload_dir_files(const struct upload_dir *d); /* DIR/files, absolute; never changes */

/* Makes an upload. If an upload with the same list exists already, complete or incomplete, finds
 * that upload instead. *made tells whether the upload is new. `body` is in the form of
 * upload_list.h. Fails with ERR_CONFLICT if an upload of that name has different files or a
 * different owner. Fails with ERR_TOO_LARGE, whose field is "files", if a quota of bytes would be
 * exceeded, and without a field if the owner has UPLOADS_USER uploads. Fails with ERR_NO_SPACE if
 * there are UPLOADS_COUNT uploads, or if the disk is full. Also fails as upload_list_read and
 * err_errno do. */
int upload_dir_create(struct upload_dir *d, const char *owner, const char *body, size_t size,
                      int64_t now_ms, int64_t *id, bool *made, struct err *e);
/* Appends to the file of index `file`, which must have exactly `offset` bytes. *at is the number
 * of the file's bytes after the call. If the offset is wrong, the call fails with ERR_CONFLICT,
 * but *at is set. If there is no such upload or file, *at is -1 and the call fails with
 * ERR_NOT_FOUND. If the file would get more bytes than its size in the upload's list, the call
 * fails with ERR_INVALID. If the file becomes complete and its digest differs from the digest in
 * the upload's list, the file becomes empty and the call fails with ERR_CORRUPT. If the files were
 * not written in sequence, or if seqd was restarted in between, only the commit compares the
 * digest. If the disk is full, the file is unchanged and the call fails with ERR_NO_SPACE, whose
 * text tells the fix. */
int upload_dir_write(struct upload_dir *d, int64_t id, int file, int64_t offset, const void *bytes,
                     size_t n, int64_t now_ms, int64_t *at, struct err *e);
/* Completes an upload, and does nothing if it is complete already. Fails with ERR_NOT_FOUND if
 * there is no such upload. Fails with ERR_CONFLICT if a file is not complete, and names that file.
 * Fails with ERR_CORRUPT as upload_dir_write does. After a fault of the disk, fails as err_errno
 * does. */
int upload_dir_commit(struct upload_dir *d, int64_t id, struct err *e);
int upload_dir_remove(struct upload_dir *d, int64_t id, struct err *e);
/* Removes incomplete uploads that have received no byte for expire_ms. */
void upload_dir_sweep(struct upload_dir *d, int64_t now_ms);

/* Describes the complete upload of index i, counted from 0. Returns false if there are at most i
 * such uploads. */
bool upload_dir_complete(const struct upload_dir *d, int i, struct upload_name *out);
/* Describes upload id, complete or not. Returns false if there is none. */
bool upload_dir_name(const struct upload_dir *d, int64_t id, struct upload_name *out);

/* Returns an upload as JSON, which the caller frees, or NULL with ERR_NOT_FOUND. */
char *upload_dir_show(struct upload_dir *d, int64_t id, struct err *e);
/* Returns the uploads that `who` may see (principal_owns), without their files. The result is
 * JSON, which the caller frees. */
char *upload_dir_list(struct upload_dir *d, const struct principal *who);

#endif
