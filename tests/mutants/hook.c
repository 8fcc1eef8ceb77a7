/* hook.c: selects the fault that is injected. It is linked into everything that MODE=mutants
 * builds. */
#include <stdlib.h>
#include <string.h>
#include "api/core/mutant.h"
#include "tests/lib/mutant.h"

const char *const mutant_names[] = {
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
    [MUTANT_WINDOW_WIDE] = "window_wide",
    [MUTANT_CAP_LOST] = "cap_lost",
    [MUTANT_CAP_LOST_BACK] = "cap_lost_back",
    [MUTANT_SINK_EACH] = "sink_each",
    [MUTANT_SINK_ROWS] = "sink_rows",
    [MUTANT_DECAY_POWER] = "decay_power",
    [MUTANT_STATE_EARLY] = "state_early",
    [MUTANT_OWN_DROPPED] = "own_dropped",
    [MUTANT_HEAD_OFFSET] = "head_offset",
    [MUTANT_STATE_CROSSED] = "state_crossed",
    [MUTANT_CARRY_LOST] = "carry_lost",
    [MUTANT_CARRY_EARLY] = "carry_early",
    [MUTANT_CARRY_BACK] = "carry_back",
    [MUTANT_MAP_LOST] = "map_lost",
    [MUTANT_MAP_BACK] = "map_back",
    [MUTANT_HALO_LOST] = "halo_lost",
    [MUTANT_GATE_LOST] = "gate_lost",
    [MUTANT_PIECE_LOST] = "piece_lost",
    [MUTANT_PAD_SEEN] = "pad_seen",
    [MUTANT_SWITCH_SWAPPED] = "switch_swapped",
    [MUTANT_BOUND_LEAKS] = "bound_leaks",
    [MUTANT_GRAD_DROPPED] = "grad_dropped",
    [MUTANT_HEADS_WRONG] = "heads_wrong",
    [MUTANT_SHARED_ONCE] = "shared_once",
    [MUTANT_GROUP_ALONE] = "group_alone",
    [MUTANT_STALE_OFFLOAD] = "stale_offload",
    [MUTANT_GRAD_LOST] = "grad_lost",
    [MUTANT_STREAM_STALE] = "stream_stale",
    [MUTANT_TIED_TWICE] = "tied_twice",
    [MUTANT_PART_TWICE] = "part_twice",
    [MUTANT_TARGET_FOREIGN] = "target_foreign",
    [MUTANT_SMOOTHING_LOCAL] = "smoothing_local",
    [MUTANT_Z_LOSS_LOST] = "z_loss_lost",
    [MUTANT_KV_ALONE] = "kv_alone",
    [MUTANT_SLOT_SHARED] = "slot_shared",
    [MUTANT_STAGE_ALONE] = "stage_alone",
    [MUTANT_EMA_SKIPPED] = "ema_skipped",
    [MUTANT_FROZEN_MOVED] = "frozen_moved",
    [MUTANT_MOMENTS_SHIFTED] = "moments_shifted",
    [MUTANT_REFERENCE_TUNED] = "reference_tuned",
    [MUTANT_REFERENCE_ALONE] = "reference_alone",
    [MUTANT_PAIR_SWAPPED] = "pair_swapped",
    [MUTANT_PAIR_LOCAL] = "pair_local",
    [MUTANT_PAIR_MEAN] = "pair_mean",
    [MUTANT_FACTOR_SHIFTED] = "factor_shifted",
    [MUTANT_ADAPTER_ALPHA] = "adapter_alpha",
    [MUTANT_ADAPTER_OTHER] = "adapter_other",
    [MUTANT_ADAPTER_ROW] = "adapter_row",
    [MUTANT_SAVED_FROZEN] = "saved_frozen",
    [MUTANT_SAVED_RATE] = "saved_rate",
    [MUTANT_DROPOUT_SAME] = "dropout_same",
    [MUTANT_ROUTE_BLIND] = "route_blind",
    [MUTANT_CACHE_SHARED] = "cache_shared",
    [MUTANT_STOP_FORGOTTEN] = "stop_forgotten",
    [MUTANT_MAP_PIECE] = "map_piece",
    [MUTANT_MAP_POSITION] = "map_position",
    [MUTANT_HALO_SHORT] = "halo_short",
    [MUTANT_HALF_AWAY] = "half_away",
    [MUTANT_END_TWICE] = "end_twice",
    [MUTANT_MERGE_FIRST] = "merge_first",
    [MUTANT_PAGE_FOREIGN] = "page_foreign",
    [MUTANT_PAGE_STALE] = "page_stale",
    [MUTANT_PREFIX_LONG] = "prefix_long",
    [MUTANT_STATE_TOKEN] = "state_token",
    [MUTANT_PARTS_ORDER] = "parts_order",
    [MUTANT_PREFIX_ADAPTER] = "prefix_adapter",
    [MUTANT_PREFIX_OWNER] = "prefix_owner",
    [MUTANT_ANSWER_DECODED] = "answer_decoded",
    [MUTANT_ACK_EARLY] = "ack_early",
    [MUTANT_EPOCH_ANY] = "epoch_any",
    [MUTANT_SLOT_EARLY] = "slot_early",
    [MUTANT_KEY_LOST] = "key_lost",
    [MUTANT_CANCEL_LOST] = "cancel_lost",
    [MUTANT_TAKEN_AGAIN] = "taken_again",
    [MUTANT_MARK_EARLY] = "mark_early",
    [MUTANT_SYNC_LAZY] = "sync_lazy",
    [MUTANT_STALE_FREE] = "stale_free",
    [MUTANT_STOPPED_EARLY] = "stopped_early",
    [MUTANT_STEP_LOST] = "step_lost",
};
_Static_assert(sizeof mutant_names / sizeof *mutant_names == MUTANT_N, "a name of every fault");

static enum mutant_id chosen;
static int chosen_tensor;

__attribute__((constructor)) static void read_environment(void)
{
    const char *want = getenv("SEQD_MUTANT");
    for (int i = 0; want && i < MUTANT_N; i++)
        if (!strcmp(want, mutant_names[i])) chosen = (enum mutant_id)i;
}

void mutant_choose(int id)
{
    chosen = (enum mutant_id)id;
}

void mutant_choose_tensor(int tensor)
{
    chosen_tensor = tensor;
}

bool mutant_on(enum mutant_id id)
{
    return chosen == id;
}

int mutant_tensor(void)
{
    return chosen_tensor;
}
