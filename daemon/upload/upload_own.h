/* upload_own.h: the uploads in memory and their paths. Only the files that implement struct
 * upload_dir include it. */
#ifndef SEQD_DAEMON_UPLOAD_UPLOAD_OWN_H
#define SEQD_DAEMON_UPLOAD_UPLOAD_OWN_H

#include "api/core/file.h"
#include "daemon/upload/upload_dir.h"
#include "daemon/upload/upload_list.h"

struct upload {
    struct upload *next;
    struct upload_list *l; /* owned */
    bool done;
    int64_t touched_ms;
    bool *verified; /* for each file, whether its bytes have the listed digest */
    int hashed;     /* index of the file whose first hashed_at bytes are in sha, or -1 */
    int64_t hashed_at;
    struct sha256 sha;
};

struct upload_dir {
    struct upload_dir_options o;
    char dir[FILE_PATH_SIZE - 512], files[FILE_PATH_SIZE - 504];
    int lock;
    int64_t last_id;
    int n;
    struct upload *first;
};

/* Returns the upload of that id, or NULL if there is none. */
struct upload *upload_find(const struct upload_dir *d, int64_t id);
/* Does the same as upload_find, but fails with ERR_NOT_FOUND if there is none. */
struct upload *upload_find_or_say(struct upload_dir *d, int64_t id, struct err *e);
/* Writes the path of a part of the upload, which is that of its folder with `rest` appended. Fails
 * with ERR_TOO_LARGE. */
int upload_part_path(const struct upload_dir *d, int64_t id, const char *rest,
                     char out[FILE_PATH_SIZE], struct err *e);
/* Opens the folder that has the upload's files. Returns its descriptor, or -1 with an error. */
int upload_open_tree(const struct upload_dir *d, int64_t id, struct err *e);
/* Opens file i of the upload with the flags of open(2), and makes the folders that contain it.
 * Returns its descriptor, or -1 with an error. */
int upload_open_file(const struct upload_dir *d, const struct upload *u, int i, int flags,
                     struct err *e);
/* Writes the list l to a file. Fails as file_write does. */
int upload_write_list(const struct upload_list *l, const char *path, struct err *e);

#endif
