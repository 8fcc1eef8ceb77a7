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

struct jwrite;
struct upload_shown { /* facts that REST shows beside the list */
    const char *path; /* path where nodes read it; NULL: not yet */
    const char *created_at;
    int64_t received;
    const int64_t *at; /* received bytes of each file, unless the upload is done */
    bool done, files;  /* files: shows the files, too */
};
void upload_list_show(const struct upload_list *l, const struct upload_shown *v, struct jwrite *w);

#endif
