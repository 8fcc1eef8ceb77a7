/* event.h: an event of a job as one line. */
#ifndef SEQD_CLIENT_EVENT_H
#define SEQD_CLIENT_EVENT_H

#include "client/json.h"

/* "12:03:11  epoch 1  checkpoint  step 100". Cleaned. Returns out. */
char *event_line(const struct jv *ev, char *out, size_t size);
/* One step of the metrics stream: "step 12  loss 3.21  ...". */
char *event_step_line(const struct jv *m, char *out, size_t size);

#endif
