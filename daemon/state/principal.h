/* principal.h: the sender of a request, and the rights it has. */
#ifndef SEQD_DAEMON_STATE_PRINCIPAL_H
#define SEQD_DAEMON_STATE_PRINCIPAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define USER_NAME 65 /* bytes of a user's name, with its NUL */

/* Each role may do all that the roles before it may. Numbers are stored. */
enum role {
    ROLE_NONE,     /* not known: may read health, version and documents */
    ROLE_USER,     /* jobs of its own */
    ROLE_OPERATOR, /* all jobs, nodes */
    ROLE_ADMIN,    /* tokens of others, the audit log */
    ROLE_N
};

struct principal {
    enum role role;
    int64_t token; /* id of the token that was sent; 0: none, the socket tells the user */
    char user[USER_NAME];
};

/* Tells whether p may see and change a job of owner. owner "": a version without owners stored it,
 * and it is for operators only. */
static inline bool principal_owns(const struct principal *p, const char *owner)
{
    return p->role >= ROLE_OPERATOR || (*owner && !strcmp(p->user, owner));
}

#endif
