/* notify.h: the messages of a service to the manager that started it (systemd's $NOTIFY_SOCKET, see
 * sd_notify(3)), and the watchdog that it feeds ($WATCHDOG_USEC). Without a manager all of it does
 * nothing. Loop thread only. tested: tests/core/test_notify.c */
#ifndef SEQD_CORE_NOTIFY_H
#define SEQD_CORE_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/loop.h"

#define NOTIFY_STATUS_MS 10000 /* how often the status is asked for, where no watchdog is */

struct notify;

/* Answers a tick: fills the status (a line), and returns whether everything that must move has
 * moved since the last tick: only then the watchdog is fed. The call itself shows that the loop
 * moves. */
typedef bool notify_tick(void *arg, char *status, size_t size);

/* Takes the variables out of the environment: they are not for children. Ticks come four times in
 * the watchdog's time. NULL: no manager asked for messages; every function here takes that. */
struct notify *notify_open(struct loop *l, notify_tick *tick, void *arg);
void notify_close(struct notify *n);
void notify_ready(struct notify *n);     /* READY=1, with the status; also after a reload */
void notify_reloading(struct notify *n); /* RELOADING=1 */
void notify_stopping(struct notify *n);  /* STOPPING=1; the watchdog is fed as before */

#endif
