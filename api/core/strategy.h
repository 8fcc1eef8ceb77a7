/* strategy.h: the one list of strategies, which are the ways to split a sequence over ranks. Each
 * line has the strategy's name twice: for STRATEGY_ID in enum strategy_id, and for "name" in a job
 * spec. The options, needs and messages of the strategy are in strategy_NAME of
 * worker/plan/strategy_NAME.c, and its code is in sp_row_NAME of worker/sp. Both tables are made
 * from this list, so that a program does not link if strategy_NAME or sp_row_NAME is missing. A
 * new strategy is added at the end, because the first strategy that fits a family is its
 * default. */
#ifndef SEQD_CORE_STRATEGY_H
#define SEQD_CORE_STRATEGY_H

/* clang-format off */
#define STRATEGIES(row)                                                            \
    row(LOCAL, local)     /* one rank, no communication */                         \
    row(RSA, rsa)         /* ring self-attention */                                \
    row(LASP, lasp)       /* each rank passes states on; softmax uses a ring */    \
    row(DSP, dsp)         /* dynamic sequence parallelism */                       \
    row(ULYSSES, ulysses) /* DeepSpeed-Ulysses: attention is split by heads */     \
    row(TP, tp)           /* Megatron's tensor parallelism (2021) */               \
    row(TP_SP, tp_sp)     /* tp, with sequence parallelism between */              \
    row(USP, usp)         /* Ulysses among the ranks of a group, and a ring between the groups */
/* clang-format on */

#define STRATEGY_ID(id, name) STRATEGY_##id,
enum strategy_id { STRATEGY_AUTO, STRATEGIES(STRATEGY_ID) STRATEGY_N };
#undef STRATEGY_ID

#endif
