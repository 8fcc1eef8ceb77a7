/* transfer.h: sends files of a node as the body of a reply. The node sends the bytes in answers to
 * FETCH. The next chunk is asked for when the client has read the previous one. At most
 * TRANSFER_FETCHES chunks are on their way from one node, for all replies together, so that the
 * reports and heartbeats of the node's session need not wait. If a file is replaced or changes its
 * size during the reply, the reply ends short of its Content-Length. */
#ifndef SEQD_DAEMON_HTTP_TRANSFER_H
#define SEQD_DAEMON_HTTP_TRANSFER_H

#include "daemon/http/http.h"
#include "daemon/http/routes.h"

#define TRANSFER_FETCHES 4
#define TRANSFER_BYTES   2048

/* A contiguous part of the body. Its bytes are a part of a file, or bytes[0, size). */
struct transfer_run {
    char path[RANK_PATH_SIZE]; /* path of the file in a MSG_FETCH; "" if the run is bytes[0,
                                * size) */
    int64_t offset;            /* in the file */
    int64_t size;              /* size of the run, at least 1 */
    int64_t total;             /* size that the file must have; -1 if it may have any size */
    unsigned char bytes[TRANSFER_BYTES];
};

struct transfer_source {
    int64_t job;
    char node[NODE_NAME];
    const char *type; /* media type */
    const char *name; /* the name for use in error texts; borrowed until `over` is called */
    /* bytes of the body; -1 if the body is one file, whose first chunk has its size */
    int64_t total;
    char etag[80]; /* entity tag with its quotes, or "" */
    void (*run)(void *arg, int64_t at, struct transfer_run *out);
    void (*over)(void *arg); /* called last; it may free arg */
    void *arg;
};

/* Finds the node of rank 0 in `assign`, the data of an ASSIGN event. If that node is away and its
 * files lie in a shared directory, finds a node that has them now. `assign` is NULL if the job has
 * no ASSIGN event. Returns -1 if `assign` is NULL or has no such node. */
int transfer_node(const struct nodes *nodes, const char *assign, char out[NODE_NAME]);

/* Answers r with 200, 206, 304 or 416, or with an error. The error is 409 if the file was
 * replaced, 503 if all streams are in use, and otherwise the node's error. */
void transfer_start(struct routes *R, struct http_req *r, const struct transfer_source *s);

/* Frees the unfinished transfers. Call it only when neither the HTTP server nor control can call
 * back any more. */
void transfers_drop(struct routes *R);

#endif
