/* away.h: the part of a plan that lies beside the device's memory (memory.offload): buffers and
 * places in the store, and the bytes that a step copies. Pure.
 *
 * tested: tests/engine/test_offload.c, test_offload_state.c */
#ifndef SEQD_PLAN_AWAY_H
#define SEQD_PLAN_AWAY_H

#include <stdbool.h>
#include <stdint.h>

struct plan;

/* The arrays of a training that the store has if the optimizer is offloaded. Each has n_shard
 * elements of fp32. AWAY_GRAD has n_trained elements if plan_adds_here() is true, and it does not
 * exist if plan.fused is set. */
enum away_array { AWAY_MASTER, AWAY_M, AWAY_V, AWAY_EMA, AWAY_GRAD, AWAY_N };

/* Numbers of bytes that are copied to the store and back from it. */
struct offload_count {
    int64_t bytes_out, bytes_in;
};

/* The data that layers keep for the backward pass in a store outside the device's memory. The
 * store is the host's part. If the device has no memory of its own, the store is a file. Streams 0
 * .. L-1 use n_ring buffers cyclically: stream b is in buffer b modulo n_ring. The records of
 * layers use two buffers cyclically. So when the backward pass begins, the last streams and
 * records are still in their buffers, and these are never copied. Every earlier stream and record
 * is copied out once and copied back once in a pass. The store has first the streams and then the
 * records, both in the order of layers.
 *
 * If there are several stages, each stage numbers its own layers and streams: its first layer is 1
 * and reads stream 0. Each sequence between its forward and its backward pass has its own buffers
 * and its own part of the store. */
struct offload_plan {
    bool on; /* the data of layers are offloaded */
    /* numbers of buffers on the device for streams and for records; stream L has an additional
     * buffer */
    int n_ring, n_records;
    /* streams 0 .. n_out-1 and the records of layers 1 .. n_records_out are copied */
    int n_out, n_records_out;
    /* bytes of one sequence's part of the store; there are `slots` parts */
    int64_t slot_size;
    int64_t record_stride; /* bytes of a record's buffer */
    int64_t row_size;      /* bytes of one row of a stream */
    int64_t records_size;  /* bytes of the records that are copied */
    /* size: bytes of the store; disk_size: bytes of the file, a multiple of PLAN_PAGE, if the
     * store is a file */
    int64_t size, disk_size;
    /* The gradients and the state of the optimizer are in the store, after the activations
     * (plan_place_away). Gradients are then summed by bucket, and the device has two windows of
     * `piece` elements of each array (PLAN_UPDATE), through which a bucket is updated: a piece
     * arrives in one of them while the piece before it is updated and leaves. */
    bool optimizer;
    int64_t piece;
    /* offset in the store, in bytes, of each array of enum away_array; -1 if there is none */
    int64_t away_at[AWAY_N];
};

/* Places the arrays of an offloaded optimizer in the store, from byte `at` on. Returns the end of
 * the last one, or -1 if it would be at 2^62 or more. */
int64_t plan_place_away(struct plan *p, int64_t at);
/* Returns the elements of the windows on the device, PLAN_UPDATE: two for each array that the store
 * has, of offload.piece elements each. Sets offload.piece. */
int64_t plan_away_window(struct plan *p);
/* Returns the bytes that rank `rank` copies for its gradients and its optimizer in a step. If
 * `updates` is false, the step is skipped, and moments and weights are not copied. */
struct offload_count plan_away_moves(const struct plan *p, int rank, bool updates);

#endif
