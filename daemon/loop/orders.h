/* orders.h: orders about many jobs, such as the cancel of all jobs that a filter takes. Such an
 * order is a row of the table `orders`, with the ids of its jobs. When the row is on disk, the
 * order is acknowledged. It is then carried out in slices, each of them in a turn of its own. After
 * a restart it continues with the slice that was under way. An order about a job that has the
 * wanted state already changes nothing, so a slice may be given twice.
 *
 * All functions are called on the loop thread. tested: tests/daemon/test_seqd_orders.c */
#ifndef SEQD_DAEMON_LOOP_ORDERS_H
#define SEQD_DAEMON_LOOP_ORDERS_H

#include "daemon/loop/order.h"

#define ORDERS_SLICE 64   /* jobs of a turn; the order of a job takes about 0.1 ms */
#define ORDERS_USER  4    /* unfinished orders of a user; each takes 8 bytes a job */
#define ORDERS_MAX   64   /* unfinished orders */
#define ORDERS_LIVE  1000 /* an order about more jobs is acknowledged before it is carried out */
/* a finished order is shown for this long */
#define ORDERS_KEEP_MS (30ll * 24 * 3600 * 1000)

/* The numbers are stored. */
enum orders_what { ORDERS_CANCEL, ORDERS_SUSPEND, ORDERS_RESUME, ORDERS_N };
/* The words of an order: "cancel", and the state "cancelled" that its jobs are to have. */
struct orders_row {
    const char *name, *done;
    order_call *call;
};
extern const struct orders_row orders_rows[ORDERS_N];

struct orders;
/* Creates the orders, and continues those that are not finished. */
struct orders *orders_create(struct commits *all);
void orders_destroy(struct orders *o); /* call it after the store is closed; o may be NULL */

struct orders_new {
    enum orders_what what;
    const char *who;
    int64_t *job; /* ids in any order; malloc'd, and owned by orders from the call on */
    int n;
};
/* Called when the order is on disk, with its id, or with an error. */
typedef void orders_added(void *arg, int64_t id, const struct err *e);
/* Adds an order. `added` is called with ERR_TOO_LARGE if the user or all users have too many
 * unfinished orders, and with ERR_PEER if seqd starts or stops. */
void orders_add(struct orders *o, const struct orders_new *n, orders_added *added, void *arg);

#endif
