/* request_wire.h: a request that rank 0 has read, as bytes for the other ranks. They have no
 * text of the body: tokens, options and a compiled grammar are enough to answer. All ranks run
 * one build on machines of one kind, so the bytes are those of the structs. */
#ifndef SEQD_INFER_REQUEST_WIRE_H
#define SEQD_INFER_REQUEST_WIRE_H

#include "worker/infer/requests.h"

int64_t request_wire_size(const struct request *r);
void request_wire_write(const struct request *r, char *out); /* out [request_wire_size] */
/* Makes r from bytes that request_wire_write has written. The caller sets what r borrows
 * afterwards, and frees r. Fails with ERR_IO if there is no memory. */
int request_wire_read(struct request *r, const char *bytes, struct err *e);

#endif
