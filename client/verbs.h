/* verbs.h: every verb of seqctl. One row per verb; each row, its help and its code stand together
 * in the file of its noun. */
#ifndef SEQD_CLIENT_VERBS_H
#define SEQD_CLIENT_VERBS_H

#include "client/cli.h"

extern const struct verb *const verbs_all[]; /* in the order of help, then NULL */

extern const struct verb verb_submit, verb_plan, verb_verify; /* submit.c, plan.c, verify.c */
extern const struct verb verb_init;                           /* init.c */
extern const struct verb verb_ls, verb_show, verb_restart, verb_explain;      /* job.c */
extern const struct verb verb_cancel, verb_suspend, verb_resume;              /* cancel.c */
extern const struct verb verb_rm, verb_removals;                              /* rm.c */
extern const struct verb verb_usage;                                          /* usage.c */
extern const struct verb verb_prune;                                          /* prune.c */
extern const struct verb verb_watch;                                          /* watch.c */
extern const struct verb verb_events, verb_metrics;                           /* event.c */
extern const struct verb verb_logs;                                           /* log.c */
extern const struct verb verb_artifacts, verb_checkpoints;                    /* artifact.c */
extern const struct verb verb_pull, verb_push;                                /* pull.c, push.c */
extern const struct verb verb_uploads;                                        /* upload.c */
extern const struct verb verb_data;                                           /* data.c */
extern const struct verb verb_model;                                          /* model.c */
extern const struct verb verb_nodes, verb_version;                            /* node.c */
extern const struct verb verb_login, verb_logout, verb_contexts, verb_whoami; /* login.c */
extern const struct verb verb_page;                                           /* page.c */
extern const struct verb verb_backup;                                         /* backup.c */
extern const struct verb verb_tokens, verb_audit;                             /* token.c */
extern const struct verb verb_completion;                                     /* completion.c */
extern const struct verb verb_set;                                            /* set.c */
extern const struct verb verb_continue, verb_retry;                           /* continue.c */

#endif
