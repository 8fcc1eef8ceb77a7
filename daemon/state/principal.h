/* principal.h: the sender of a request, and the sender's rights. */
#ifndef SEQD_DAEMON_STATE_PRINCIPAL_H
#define SEQD_DAEMON_STATE_PRINCIPAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define USER_NAME 65 /* bytes of a user's name, with its NUL */

/* Each role may do everything that the roles before it may do. The numbers are stored. */
enum role {
    ROLE_NONE,     /* an unknown sender, who may read health, version and documentation */
    ROLE_USER,     /* jobs of its own */
    ROLE_OPERATOR, /* all jobs, nodes */
    ROLE_ADMIN,    /* may manage tokens of others and read the audit log */
    ROLE_N
};

struct principal {
    enum role role;
    int64_t token; /* id of the request's token; 0 if it has no token and the socket tells the
                    * user */
    char user[USER_NAME];
};

/* Tells whether p may see and change a job of `owner`. If `owner` is "", a version without owners
 * stored the job, and only operators may see it. */
static inline bool principal_owns(const struct principal *p, const char *owner)
{
    return p->role >= ROLE_OPERATOR || (*owner && !strcmp(p->user, owner));
}

#endif
