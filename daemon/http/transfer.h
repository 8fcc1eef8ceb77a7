/* transfer.h: sends files of a node as the body of a reply. Bytes come by FETCH. The next chunk is
 * asked for when the client has read the last one. At most TRANSFER_FETCHES chunks are on their
 * way from one node, over all replies, so that reports and heartbeats of its session do not wait.
 * If a file is replaced or changes its size meanwhile, the reply ends short of its
 * Content-Length. */
#ifndef SEQD_DAEMON_HTTP_TRANSFER_H
#define SEQD_DAEMON_HTTP_TRANSFER_H

#include "daemon/http/http.h"
#include "daemon/http/routes.h"

#define TRANSFER_FETCHES 4
#define TRANSFER_BYTES   2048

/* A run of the body, from a position on: bytes of a file, or bytes[0, size). */
struct transfer_run {
    char path[RANK_PATH_SIZE]; /* path in a MSG_FETCH; "": the run is bytes */
    int64_t offset;            /* in the file */
    int64_t size;              /* size of the run, at least 1 */
    int64_t total;             /* size of the file; -1: any */
    unsigned char bytes[TRANSFER_BYTES];
};

struct transfer_source {
    int64_t job;
    char node[NODE_NAME];
    const char *type; /* media type */
    const char *name; /* named in errors; borrowed until over */
    int64_t total;    /* bytes of the body; -1: the size of one file, known with its first chunk */
    char etag[80];    /* with its quotes; "": none */
    void (*run)(void *arg, int64_t at, struct transfer_run *out);
    void (*over)(void *arg); /* last call: arg may be freed */
    void *arg;
};

/* Finds the node of rank 0 in the data of an ASSIGN (NULL: there is none). -1: it is not there. */
int transfer_node(const char *assign, char out[NODE_NAME]);

/* Answers r with 200, 206, 304 or 416, or with an error: the node's, 409 for a file that has been
 * replaced, or 503 when all streams are taken. */
void transfer_start(struct routes *R, struct http_req *r, const struct transfer_source *s);

/* Frees the transfers under way. By then neither the HTTP server nor control calls back. */
void transfers_drop(struct routes *R);

#endif
