/* upload_list.h: the list of an upload, which has the name of the upload and the path, size and
 * digest of each file. It is the body of POST /v1/uploads, and is stored in a file beside the
 * data. The functions are pure.
 * tested: tests/daemon/test_seqd_upload.c, tests/fuzz/fuzz_upload.c */
#ifndef SEQD_DAEMON_UPLOAD_UPLOAD_LIST_H
#define SEQD_DAEMON_UPLOAD_UPLOAD_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"
#include "daemon/state/principal.h"

#define UPLOAD_NAME  64
#define UPLOAD_PATH  256
#define UPLOAD_FILES 1000
#define UPLOAD_MAX                                                                                 \
    ((int64_t)1 << 50) /* largest number of bytes of all files together, so that
                                         * sums do not overflow */

struct upload_file {
    char path[UPLOAD_PATH]; /* relative, without . and .. */
    int64_t size;
    char sha256[SHA256_HEX];
    int64_t received; /* bytes that have been received; not part of the JSON */
};

struct upload_list {
    char name[UPLOAD_NAME];
    char owner[USER_NAME];  /* "" if the upload has no owner */
    int64_t id, created_ms; /* present only in a list that is stored on disk */
    int n;
    int64_t size; /* size of all files */
    struct upload_file file[];
};

/* upload_list_new makes a list with room for UPLOAD_FILES files. upload_list_fit frees the room
 * that is not used, and returns the list. The caller frees the list. */
struct upload_list *upload_list_new(void);
struct upload_list *upload_list_fit(struct upload_list *l);

/* Reads {"name", "files": [{"path", "size", "sha256"}]}. If `stored` is set, also reads "id",
 * "owner" and "created_ms". l must come from upload_list_new. Fails with ERR_INVALID, which names
 * the field, or with ERR_TOO_LARGE. */
int upload_list_read(struct upload_list *l, const char *text, size_t size, bool stored,
                     struct err *e);
/* Tells whether two lists have the same owner and files. */
bool upload_list_same(const struct upload_list *a, const struct upload_list *b);
/* Returns the largest number of bytes that upload_list_write can need. */
size_t upload_list_room(const struct upload_list *l);
/* Writes the list l as text, from which upload_list_read makes an equal list. Returns the length
 * of the text, or -1 if it does not fit. */
int64_t upload_list_write(const struct upload_list *l, char *out, size_t size);

struct upload_name {
    int64_t id;
    char name[UPLOAD_NAME], owner[USER_NAME];
};

enum upload_state { UPLOAD_RECEIVING, UPLOAD_COMPLETE };

/* An upload as REST shows it. */
struct upload_shown {
    struct upload_name of;
    int32_t state; /* enum upload_state */
    char created_at[32];
    int64_t size, received;
    char *path;                    /* path at which nodes read it, or NULL if it is not complete */
    const struct upload_list *all; /* its files, or NULL if they are not shown */
};
struct jwrite;
void upload_show(const struct upload_shown *v, struct jwrite *w);

#endif
