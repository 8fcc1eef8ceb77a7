/* verbs.h: every verb of seqctl. One row per verb; each row, its help and its code stand together
 * in the file of its noun. */
#ifndef SEQD_CLIENT_VERBS_H
#define SEQD_CLIENT_VERBS_H

#include "client/cli.h"

extern const struct verb *const verbs_all[]; /* in the order of help, then NULL */

extern const struct verb submit_verb, plan_verb, verify_verb; /* submit.c, plan.c, verify.c */
extern const struct verb init_verb;                           /* init.c */
extern const struct verb ls_verb, show_verb, restart_verb, explain_verb;      /* job.c */
extern const struct verb cancel_verb, suspend_verb, resume_verb;              /* cancel.c */
extern const struct verb rm_verb, removals_verb;                              /* rm.c */
extern const struct verb usage_verb;                                          /* usage.c */
extern const struct verb prune_verb;                                          /* prune.c */
extern const struct verb watch_verb;                                          /* watch.c */
extern const struct verb events_verb, metrics_verb;                           /* event.c */
extern const struct verb logs_verb;                                           /* log.c */
extern const struct verb artifacts_verb, checkpoints_verb;                    /* artifact.c */
extern const struct verb pull_verb, push_verb;                                /* pull.c, push.c */
extern const struct verb uploads_verb;                                        /* upload.c */
extern const struct verb data_verb;                                           /* data.c */
extern const struct verb model_verb;                                          /* model.c */
extern const struct verb nodes_verb, version_verb;                            /* node.c */
extern const struct verb login_verb, logout_verb, contexts_verb, whoami_verb; /* login.c */
extern const struct verb page_verb;                                           /* page.c */
extern const struct verb backup_verb;                                         /* backup.c */
extern const struct verb tokens_verb, audit_verb;                             /* token.c */
extern const struct verb completion_verb;                                     /* completion.c */
extern const struct verb set_verb;                                            /* set.c */
extern const struct verb continue_verb, retry_verb;                           /* continue.c */

#endif
