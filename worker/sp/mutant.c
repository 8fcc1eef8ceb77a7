/* mutant.c: the names of injected faults; empty in every build that is not for tests. */
#include "worker/sp/sp.h"

#ifdef SEQD_MUTANTS
const char *const sp_mutant_names[MUTANT_N] = {
    [MUTANT_NONE] = "none",
    [MUTANT_GRAD_OVER_P] = "grad_over_p",
    [MUTANT_STALE_KV] = "stale_kv",
    [MUTANT_HOP_OFF_BY_ONE] = "hop_off_by_one",
    [MUTANT_ZIGZAG_SWAPPED] = "zigzag_swapped",
    [MUTANT_LABEL_SHIFT] = "label_shift",
    [MUTANT_DOC_CROSSED] = "doc_crossed",
    [MUTANT_LOCAL_POSITION] = "local_position",
    [MUTANT_TOKEN_DROPPED] = "token_dropped",
    [MUTANT_LOSS_MEAN] = "loss_mean",
    [MUTANT_REPLICATED_ROTATED] = "replicated_rotated",
    [MUTANT_MERGE] = "merge",
    [MUTANT_SCALE] = "scale",
    [MUTANT_SAME_PEER] = "same_peer",
    [MUTANT_DROPOUT_LOCAL] = "dropout_local",
    [MUTANT_DECAY_POWER] = "decay_power",
    [MUTANT_STATE_EARLY] = "state_early",
    [MUTANT_OWN_DROPPED] = "own_dropped",
    [MUTANT_HEAD_OFFSET] = "head_offset",
    [MUTANT_STATE_CROSSED] = "state_crossed",
    [MUTANT_PAD_SEEN] = "pad_seen",
    [MUTANT_SWITCH_SWAPPED] = "switch_swapped",
    [MUTANT_GRAD_DROPPED] = "grad_dropped",
    [MUTANT_EMA_SKIPPED] = "ema_skipped",
    [MUTANT_DROPOUT_SAME] = "dropout_same",
};

void sp_mutant_over_p(int mutant, struct tensor grad, int P)
{
    if (mutant != MUTANT_GRAD_OVER_P) return;
    for (int64_t i = 0; i < grad.rows; i++)
        for (int64_t j = 0; j < grad.cols; j++)
            if (grad.dtype == DT_F64)
                ((double *)grad.data)[i * grad.ld + j] /= P;
            else
                ((float *)grad.data)[i * grad.ld + j] /= (float)P;
}
#endif
