/* event.h: writes an event of a job as one line. */
#ifndef SEQD_CLIENT_EVENT_H
#define SEQD_CLIENT_EVENT_H

#include "client/json.h"

/* Makes a line such as "12:03:11 epoch 1 checkpoint step=100", without control characters. Returns
 * out. */
char *event_line(const struct jv *ev, char *out, size_t size);
/* Makes a line such as "step 12 loss 3.21 ..." from one step of the metrics stream. */
char *event_step_line(const struct jv *m, char *out, size_t size);

#endif
