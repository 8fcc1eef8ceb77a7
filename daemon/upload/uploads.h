/* uploads.h: uploads for the loop thread. One thread does the file work of upload_dir.h and answers
 * through the loop's mailbox. The requests of a user are done in their order, and users are served
 * in turn (errands.h). */
#ifndef SEQD_DAEMON_UPLOAD_UPLOADS_H
#define SEQD_DAEMON_UPLOAD_UPLOADS_H

#include "api/core/loop.h"
#include "daemon/mailbox/errands.h"
#include "daemon/upload/upload_dir.h"

/* Largest number of requests that may wait at the same time, each with a body of up to 1 MiB, and
 * largest number that one user may have among them. */
#define UPLOADS_WAITING      64
#define UPLOADS_USER_WAITING 24
#define UPLOADS_SWEEP_MS     60000
/* an incomplete upload that receives no byte for this long is removed */
#define UPLOADS_EXPIRE_MS (24 * 3600 * 1000ll)

/* An upload of a different user counts as missing, unless `who` may see all uploads
 * (principal_owns). */
enum upload_what {
    UPLOAD_CREATE, /* who, body, size -> id, made, json */
    UPLOAD_WRITE,  /* id, file, offset, body, size -> at */
    UPLOAD_COMMIT, /* id -> json */
    UPLOAD_REMOVE, /* id */
    UPLOAD_SHOW,   /* id -> json */
    UPLOAD_LIST,   /* -> json */
    UPLOAD_SWEEP
};

struct upload_op { /* the caller keeps it until `call` is called */
    struct errand errand;
    struct uploads *of; /* uploads_do sets both */
    enum upload_what what;
    struct principal who; /* the user of the request */
    int64_t id, offset;
    int file;
    const char *body; /* borrowed until `call` is called */
    size_t size;
    /* the answer */
    struct err err; /* its code is 0 if all is done */
    bool made;
    /* for WRITE, the number of the file's bytes, also after a conflict; -1 if it is not known */
    int64_t at;
    struct upload_name name; /* the upload's name, for WRITE, COMMIT, REMOVE and SHOW */
    char *json;              /* owned by the op's owner, or NULL */
    void (*call)(void *arg, struct upload_op *op);
    void *arg;
};

struct uploads;
/* Opens the uploads. Fails with ERR_CONFLICT if a second seqd uses the directory, and with
 * ERR_TOO_LARGE if the path is too long. Also fails as err_errno or beneath_mark does. */
struct uploads *uploads_open(struct loop *l, const struct upload_dir_options *o, struct err *e);
/* Returns the absolute path of the directory of complete uploads. Nodes may read files beneath
 * it. */
const char *uploads_files(const struct uploads *u);
/* Returns the owner of the complete upload of that name, or "" if it has no owner. Returns NULL if
 * there is no such upload. */
const char *uploads_owner(const struct uploads *u, const char *name);
/* Returns the complete upload of that id, or NULL if there is none. It is valid until the loop
 * turns. */
const struct upload_name *uploads_find(const struct uploads *u, int64_t id);
/* returns complete upload i, counted from 0, or NULL if there are at most i */
const struct upload_name *uploads_at(const struct uploads *u, int i);
/* Finishes the waiting requests, and calls their `call`. The loop must not turn again. */
void uploads_close(struct uploads *u);
/* Hands a request to the thread. Fails with ERR_PEER if too many requests wait or if seqd is
 * stopping, and with ERR_TOO_LARGE if too many requests of the user wait. After a failure op->call
 * is not called. */
int uploads_do(struct uploads *u, struct upload_op *op, struct err *e);

#endif
