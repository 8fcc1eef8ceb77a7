/* uploads.h: uploads for the loop thread: one thread does the file work of upload_dir.h, in order,
 * and answers by the loop's mailbox. */
#ifndef SEQD_DAEMON_UPLOAD_UPLOADS_H
#define SEQD_DAEMON_UPLOAD_UPLOADS_H

#include "api/core/loop.h"
#include "daemon/mailbox/errands.h"
#include "daemon/upload/upload_dir.h"

#define UPLOADS_WAITING   64 /* requests at once; each may hold a body of 1 MiB */
#define UPLOADS_SWEEP_MS  60000
#define UPLOADS_EXPIRE_MS (24 * 3600 * 1000ll) /* an incomplete upload idle for this long goes */

/* An upload of another user counts as missing, unless `who` may see all (principal_owns). */
enum upload_what {
    UPLOAD_CREATE, /* who, body, size -> id, made, json */
    UPLOAD_WRITE,  /* id, file, offset, body, size -> at */
    UPLOAD_COMMIT, /* id -> json */
    UPLOAD_REMOVE, /* id */
    UPLOAD_SHOW,   /* id -> json */
    UPLOAD_LIST,   /* -> json */
    UPLOAD_SWEEP
};

struct upload_op { /* kept by the caller until call is called */
    struct errand errand;
    struct uploads *of; /* uploads_do sets both */
    enum upload_what what;
    struct principal who; /* the user of the request */
    int64_t id, offset;
    int file;
    const char *body; /* borrowed until call is called */
    size_t size;
    /* the answer */
    struct err err; /* code 0: done */
    bool made;
    int64_t at;              /* WRITE: bytes of the file, also after a conflict; -1: not known */
    struct upload_name name; /* WRITE, COMMIT, REMOVE, SHOW: the upload's */
    char *json;              /* owned by the op's owner; NULL: none */
    void (*call)(void *arg, struct upload_op *op);
    void *arg;
};

struct uploads;
/* Opens the uploads. fails: ERR_CONFLICT when another seqd has the directory; ERR_TOO_LARGE for a
 * path that is too long; as err_errno and beneath_mark. */
struct uploads *uploads_open(struct loop *l, const struct upload_dir_options *o, struct err *e);
/* Returns the absolute directory of complete uploads, which nodes have as a root. */
const char *uploads_files(const struct uploads *u);
/* Returns the owner of the complete upload of that name ("": none); NULL: there is no such
 * upload. */
const char *uploads_owner(const struct uploads *u, const char *name);
/* Returns the complete upload of that id, valid until the loop turns; NULL: there is none. */
const struct upload_name *uploads_find(const struct uploads *u, int64_t id);
const struct upload_name *uploads_at(const struct uploads *u, int i); /* from 0; NULL: no more */
/* Finishes the requests that wait, and calls their `call`. The loop must not turn again. */
void uploads_close(struct uploads *u);
/* Hands a request to the thread. fails: ERR_PEER when too many wait or seqd is stopping; op->call
 * is not called then. */
int uploads_do(struct uploads *u, struct upload_op *op, struct err *e);

#endif
