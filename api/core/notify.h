/* notify.h: sends the messages of a service to the manager that started it (systemd's
 * $NOTIFY_SOCKET, see sd_notify(3)), and keeps the manager's watchdog ($WATCHDOG_USEC) from ending
 * the program. Without a manager the functions do nothing. All of them run on the loop thread.
 * tested: tests/core/test_notify.c */
#ifndef SEQD_CORE_NOTIFY_H
#define SEQD_CORE_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/loop.h"

#define NOTIFY_STATUS_MS 10000 /* time between two ticks if there is no watchdog */

struct notify;

/* Called at each tick and by notify_ready. Writes the status, which is one line. Returns true if
 * every part of the program that must make progress has made progress since the last call. A tick
 * feeds the watchdog only if this function returns true. The loop needs no check, because the loop
 * makes the call. */
typedef bool notify_tick(void *arg, char *status, size_t size);

/* Begins the ticks, four in each period of the watchdog. Removes the manager's variables from the
 * environment, so that children do not have them. Returns NULL if no manager asked for messages.
 * Also returns NULL if the manager's address is not a Unix socket; this is logged, and the
 * variables are not removed. Every function here accepts NULL. */
struct notify *notify_open(struct loop *l, notify_tick *tick, void *arg);
void notify_close(struct notify *n);
void notify_ready(struct notify *n);     /* sends READY=1 with the status; call it after the start
                                          * and after each reload */
void notify_reloading(struct notify *n); /* RELOADING=1 */
void notify_stopping(struct notify *n);  /* sends STOPPING=1; the watchdog is fed as before */

#endif
