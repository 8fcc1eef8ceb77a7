/* notify.h: the messages of a service to the manager that started it (systemd's $NOTIFY_SOCKET,
 * see sd_notify(3)), and the feeding of the manager's watchdog ($WATCHDOG_USEC). Without a manager
 * the functions do nothing. Loop thread only. tested: tests/core/test_notify.c */
#ifndef SEQD_CORE_NOTIFY_H
#define SEQD_CORE_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/loop.h"

#define NOTIFY_STATUS_MS 10000 /* time between two ticks if there is no watchdog */

struct notify;

/* Answers a tick, or notify_ready: writes the status, one line. Returns true if every part of the
 * program that must make progress has made some since the last call. A tick feeds the watchdog
 * only then. The call itself shows that the loop runs. */
typedef bool notify_tick(void *arg, char *status, size_t size);

/* Begins ticks, four per watchdog time limit. Removes the manager's variables from the
 * environment, so that children do not have them. Returns NULL if no manager asked for messages,
 * or if its address is not a Unix socket (logged; the variables stay). Every function here accepts
 * NULL. */
struct notify *notify_open(struct loop *l, notify_tick *tick, void *arg);
void notify_close(struct notify *n);
void notify_ready(struct notify *n);     /* READY=1, with the status; also after a reload */
void notify_reloading(struct notify *n); /* RELOADING=1 */
void notify_stopping(struct notify *n);  /* STOPPING=1; the watchdog is fed as before */

#endif
