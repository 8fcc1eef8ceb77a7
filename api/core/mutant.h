/* mutant.h: injected faults, each of which must make a test fail (`make mutants`). The code at the
 * place of a fault calls mutant_on(). In programs that are built for use, mutant_on() is always
 * false, and the code of faults is compiled out. MODE=mutants links tests/mutants/hook.c. Its
 * mutant_on() returns true for one fault of the process, which a test or the environment variable
 * SEQD_MUTANT chooses. The reference on one rank must stay correct. Code that the reference also
 * runs therefore injects its fault only if P > 1. */
#ifndef SEQD_CORE_MUTANT_H
#define SEQD_CORE_MUTANT_H

#include <stdbool.h>

enum mutant_id {
    MUTANT_NONE,
    MUTANT_GRAD_OVER_P, /* gradient x 1/P */
    MUTANT_STALE_KV,    /* backward reuses the first KV block */
    MUTANT_HOP_OFF_BY_ONE,
    MUTANT_ZIGZAG_SWAPPED,     /* halves swapped */
    MUTANT_LABEL_SHIFT,        /* the last token of a shard has no target */
    MUTANT_DOC_CROSSED,        /* document boundary ignored */
    MUTANT_LOCAL_POSITION,     /* RoPE with local positions */
    MUTANT_TOKEN_DROPPED,      /* no row sees the last token of a shard */
    MUTANT_LOSS_MEAN,          /* the loss is the mean of the ranks' means instead of the mean over
                                * all tokens */
    MUTANT_REPLICATED_ROTATED, /* text that every rank holds is treated as if it were sharded */
    MUTANT_MERGE,              /* softmax merged without a running maximum */
    MUTANT_SCALE,              /* 1/sqrt(C) instead of 1/sqrt(D) */
    MUTANT_SAME_PEER,          /* P = 2, where prev and next are the same rank: messages of KV and
                                * dKV are swapped */
    MUTANT_DROPOUT_LOCAL,      /* dropout keyed by local rows */
    MUTANT_WINDOW_WIDE,        /* the window of a layer holds one key too many */
    MUTANT_CAP_LOST,           /* forward does not cap scores */
    MUTANT_CAP_LOST_BACK,      /* backward does not cap scores */
    MUTANT_SINK_EACH,          /* the sink of attention is counted once for every rank */
    MUTANT_SINK_ROWS,          /* half of a shard's rows are left out of the gradient of the
                                * sinks */
    MUTANT_DECAY_POWER,        /* LASP: the state does not decay while it passes the rank's rows */
    MUTANT_STATE_EARLY,        /* LASP: the state is used before it was received */
    MUTANT_OWN_DROPPED,        /* LASP: a rank passes on the received state, without adding its own
                                * part */
    MUTANT_HEAD_OFFSET,    /* LASP: on all ranks but the last, backward uses the decay of the next
                            * head */
    MUTANT_STATE_CROSSED,  /* LASP: a state is carried across the start of a document */
    MUTANT_CARRY_LOST,     /* delta rule: the state that a rank receives is replaced by 0 */
    MUTANT_CARRY_EARLY,    /* delta rule: the state that is passed on lacks a rank's last chunk */
    MUTANT_CARRY_BACK,     /* delta rule: the gradient of the state that was passed on is lost */
    MUTANT_MAP_LOST,       /* delta rule: no state passes through the maps of a rank */
    MUTANT_MAP_BACK,       /* delta rule: no gradient of a state passes back through the maps */
    MUTANT_HALO_LOST,      /* a short convolution does not see the rows of the rank before */
    MUTANT_GATE_LOST,      /* on all ranks but the first, the gates of rows are replaced by 0 */
    MUTANT_PIECE_LOST,     /* the backward pass of an MLP leaves out the last piece of a rank's
                            * rows */
    MUTANT_PAD_SEEN,       /* DSP: attention sees the padding of a dimension */
    MUTANT_SWITCH_SWAPPED, /* DSP: the parts of a switch are in the wrong order */
    MUTANT_BOUND_LEAKS,    /* the variational bound, which trains the variance, also changes the
                            * noise */
    MUTANT_GRAD_DROPPED,   /* the sum of one tensor's gradient leaves out rank 0's part */
    MUTANT_HEADS_WRONG,    /* ulysses, usp: a rank gets neighbouring KV heads instead of its own */
    MUTANT_SHARED_ONCE,    /* a KV head that several ranks share gets only the gradient of one of
                            * these ranks */
    MUTANT_GROUP_ALONE,    /* gradients are not summed over the groups of parallel.zero_group */
    MUTANT_GRAD_LOST,      /* the gradient of earlier samples does not come back from the store */
    MUTANT_STALE_OFFLOAD,  /* half of a layer's offloaded input is not read back */
    MUTANT_STREAM_STALE,   /* a stage receives the stream of the first sequence again */
    MUTANT_TIED_TWICE,     /* the head's part of a tied embedding's gradient is added twice */
    MUTANT_PART_TWICE,     /* parallel.tp: the last rank's part of a sum counts twice */
    MUTANT_TARGET_FOREIGN, /* parallel.tp: a rank looks up a target's logit among the ids of a
                            * different rank */
    MUTANT_KV_ALONE,       /* parallel.tp: the gradient of a shared KV head is not summed */
    MUTANT_SLOT_SHARED,    /* all sequences that a stage keeps are offloaded to one place */
    MUTANT_STAGE_ALONE,    /* parallel.tp: stages after the first use one rank's part of a shared
                            * gradient instead of the sum */
    MUTANT_EMA_SKIPPED,    /* the average of the weights changes in a skipped step */
    MUTANT_FROZEN_MOVED,   /* weight decay is applied to frozen weights, too */
    /* every bucket is updated with the moments of the shard's first bucket */
    MUTANT_MOMENTS_SHIFTED,
    /* references of answers are computed with the adapters */
    MUTANT_REFERENCE_TUNED,
    /* a ring does not get the references that the other rings compute */
    MUTANT_REFERENCE_ALONE,
    MUTANT_PAIR_SWAPPED,   /* the answers of a pair are described the wrong way round */
    MUTANT_PAIR_LOCAL,     /* the losses of an answer are not summed over ranks */
    MUTANT_PAIR_MEAN,      /* the loss is a mean over samples instead of pairs */
    MUTANT_FACTOR_SHIFTED, /* rows get the factor of the other answer */
    /* parallel.tp: a rank smooths labels over its own ids alone */
    MUTANT_SMOOTHING_LOCAL,
    /* several ranks leave out the z-loss */
    MUTANT_Z_LOSS_LOST,
    MUTANT_ADAPTER_ALPHA,  /* the factor of adapters is 1 */
    MUTANT_ADAPTER_OTHER,  /* joined products all use the first one's A */
    MUTANT_ADAPTER_ROW,    /* a decoded row has the adapter of the next row */
    MUTANT_SAVED_FROZEN,   /* modules that are trained whole beside adapters are not updated */
    MUTANT_SAVED_RATE,     /* these modules have the rate of the adapters */
    MUTANT_DROPOUT_SAME,   /* every step uses the dropout of the first step */
    MUTANT_ROUTE_BLIND,    /* routers of all ranks but the first do not see the last expert */
    MUTANT_CACHE_SHARED,   /* every sequence of a pass sees the keys and values of the first
                            * sequence */
    MUTANT_STOP_FORGOTTEN, /* the search for a stop string begins at the new token each time */
    MUTANT_MAP_PIECE,      /* delta rule: only the last piece of rows adds to the gradient of a
                            * map */
    MUTANT_MAP_POSITION,   /* delta rule: later pieces of a map are treated as the start of a
                            * document */
    MUTANT_HALO_SHORT,     /* a rank that has too few rows for a halo passes on only its own
                            * rows */
    MUTANT_HALF_AWAY,      /* DDIM: a value halfway between two integers is rounded away from 0
                            * instead of to the even one */
    MUTANT_END_TWICE,      /* if an end token is listed twice, its logit is lost */
    MUTANT_MERGE_FIRST,    /* BPE: a pair that is listed twice gets the rank of its first entry */
    MUTANT_PAGE_FOREIGN,   /* serve: a sequence has a page of another one in its table */
    MUTANT_PAGE_STALE,  /* serve: a kept page has the tokens of the sequence that had it before */
    MUTANT_PREFIX_LONG, /* serve: the last token of a kept page is not compared */
    MUTANT_STATE_TOKEN, /* serve: states after a page are kept with the page before it */
    MUTANT_PARTS_ORDER, /* partial results of attention are merged in the order of their arrival */
    MUTANT_PREFIX_ADAPTER, /* serve: a kept prefix is used with another adapter */
    MUTANT_PREFIX_OWNER,   /* serve: a kept prefix is used by another owner */
    MUTANT_ANSWER_DECODED, /* serve: pages and states of an answer are kept as its tokens left
                            * them, in a model with states */
    /* Faults of the control plane, which tests/sim finds. */
    MUTANT_ACK_EARLY,     /* a submission is answered before its commit */
    MUTANT_EPOCH_ANY,     /* reports of every epoch count */
    MUTANT_SLOT_EARLY,    /* a stopping job holds no slots */
    MUTANT_KEY_LOST,      /* an Idempotency-Key is not kept */
    MUTANT_CANCEL_LOST,   /* a cancel does not override an earlier failure */
    MUTANT_TAKEN_AGAIN,   /* a record that is received twice counts twice */
    MUTANT_MARK_EARLY,    /* a record is acknowledged before its commit */
    MUTANT_SYNC_LAZY,     /* a commit is not synced */
    MUTANT_STALE_FREE,    /* if a node was given up, its attempts are counted as if they held no
                           * slots on it */
    MUTANT_STOPPED_EARLY, /* an attempt is over as soon as its first node has ended it */
    MUTANT_STEP_LOST,     /* the steps before a checkpoint are not committed with it */
    MUTANT_N,
    MUTANT_CONTROL = MUTANT_ACK_EARLY /* the first fault of the control plane */
};

#ifdef SEQD_MUTANTS
bool mutant_on(enum mutant_id id);
int mutant_tensor(void); /* returns the index of the tensor to which MUTANT_GRAD_DROPPED applies */
#else
static inline bool mutant_on(enum mutant_id id)
{
    return false;
}
static inline int mutant_tensor(void)
{
    return 0;
}
#endif

#endif
