/* event.h: an event of a job as one line. */
#ifndef SEQD_CLIENT_EVENT_H
#define SEQD_CLIENT_EVENT_H

#include "client/json.h"

/* Makes a line such as "12:03:11  epoch 1  checkpoint  step=100", cleaned. Returns out. */
char *event_line(const struct jv *ev, char *out, size_t size);
/* Makes a line of one step of the metrics stream: "step 12  loss 3.21  ...". */
char *event_step_line(const struct jv *m, char *out, size_t size);

#endif
