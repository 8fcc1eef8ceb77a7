/* upload_list.h: the description of an upload: its name and its files, with sizes and digests. The
 * body of POST /v1/uploads, and the file beside the data on disk. Pure.
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
#define UPLOAD_MAX   ((int64_t)1 << 50) /* bytes in all: sums do not overflow */

struct upload_file {
    char path[UPLOAD_PATH]; /* relative, without . and .. */
    int64_t size;
    char sha256[SHA256_HEX];
    int64_t received; /* bytes that are here; in no list */
};

struct upload_list {
    char name[UPLOAD_NAME];
    char owner[USER_NAME];  /* "": none */
    int64_t id, created_ms; /* only in the list on disk */
    int n;
    int64_t size; /* size of all files */
    struct upload_file file[];
};

/* Makes a list with room for UPLOAD_FILES files; the caller frees it. upload_list_fit gives back
 * the unused room. */
struct upload_list *upload_list_new(void);
struct upload_list *upload_list_fit(struct upload_list *l);

/* Reads {"name", "files": [{"path", "size", "sha256"}]}; stored: "id", "owner" and "created_ms" as
 * well. l comes from upload_list_new. fails: ERR_INVALID naming the field; ERR_TOO_LARGE. */
int upload_list_read(struct upload_list *l, const char *text, size_t size, bool stored,
                     struct err *e);
/* Tells whether two lists have the same owner and files. */
bool upload_list_same(const struct upload_list *a, const struct upload_list *b);
/* Returns the bytes that upload_list_write needs at most. */
size_t upload_list_room(const struct upload_list *l);
/* Writes the list as text, which reads back the same. Returns its length; -1: it does not fit. */
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
    char *path;                    /* nodes read it there; NULL: not yet */
    const struct upload_list *all; /* its files; NULL: they are not shown */
};
struct jwrite;
void upload_show(const struct upload_shown *v, struct jwrite *w);

#endif
