/* verbs.h: every verb of seqctl. A verb has a line in VERBS and a row verb_NAME. The row, its help
 * and its code are in the file of the verb's noun. */
#ifndef SEQD_CLIENT_VERBS_H
#define SEQD_CLIENT_VERBS_H

#include "client/cli.h"

/* Every verb by its name, in the order of seqctl help. */
/* clang-format off */
#define VERBS(X) \
    X(init)        /* init.c */ \
    X(submit)      /* submit.c */ \
    X(plan)        /* plan.c */ \
    X(verify)      /* verify.c */ \
    X(serve)       /* serve.c */ \
    X(chat)        /* chat.c */ \
    X(ls)          /* job.c */ \
    X(queue)       /* queue.c */ \
    X(show)        /* job.c */ \
    X(watch)       /* watch.c */ \
    X(page)        /* page.c */ \
    X(logs)        /* log.c */ \
    X(events)      /* event.c */ \
    X(metrics)     /* event.c */ \
    X(set)         /* set.c */ \
    X(cancel)      /* cancel.c */ \
    X(suspend)     /* cancel.c */ \
    X(resume)      /* cancel.c */ \
    X(continue)    /* continue.c */ \
    X(retry)       /* continue.c */ \
    X(merge)       /* merge.c */ \
    X(restart)     /* job.c */ \
    X(explain)     /* job.c */ \
    X(artifacts)   /* artifact.c */ \
    X(checkpoints) /* artifact.c */ \
    X(pull)        /* pull.c */ \
    X(push)        /* push.c */ \
    X(uploads)     /* upload.c */ \
    X(data)        /* data.c */ \
    X(rm)          /* rm.c */ \
    X(removals)    /* rm.c */ \
    X(prune)       /* prune.c */ \
    X(usage)       /* usage.c */ \
    X(model)       /* model.c */ \
    X(nodes)       /* node.c */ \
    X(login)       /* login.c */ \
    X(logout)      /* login.c */ \
    X(contexts)    /* login.c */ \
    X(whoami)      /* login.c */ \
    X(tokens)      /* token.c */ \
    X(audit)       /* token.c */ \
    X(backup)      /* backup.c */ \
    X(completion)  /* completion.c */ \
    X(version)     /* node.c */ \
    X(help)        /* verbs.c */
/* clang-format on */

extern const struct verb *const verbs_all[]; /* verbs in the order of VERBS, then NULL */

#define VERB_ROW(name) extern const struct verb verb_##name;
VERBS(VERB_ROW)
#undef VERB_ROW

#endif
