/* tcp.h: the parts of the TCP transport, for worker/comm/tcp*.c only.
 *
 *   tcp.c        the functions of comm_ops; marks lost peers
 *   tcp_hello.c  makes one authenticated connection per pair of ranks
 *   tcp_frame.c  sends and receives the frames of one connection
 *   tcp_thread.c the progress thread: epoll, heartbeats, silence, the goodbye
 *   tls.c        encryption, if asked for
 *
 * Threads. To post, the rank writes an op and then increases the lane's count of posted ops
 * (release). The thread that holds `lock` moves bytes. This is the progress thread or, if the lock
 * is free right after posting, the rank itself. The holder of the lock stores the count of
 * complete ops in the lane, and then changes the value of the rank's door (shm_door_move). Once
 * `halted` is set, under the lock, no thread accesses the caller's buffers. */
#ifndef SEQD_COMM_TCP_H
#define SEQD_COMM_TCP_H

#include <pthread.h>
#include <sys/uio.h>
#include "worker/comm/endpoint.h"
#include "worker/comm/tls.h"

/* A frame has 24 bytes. A DATA frame is followed by `size` bytes of payload. The handshake checks
 * that both ends use the same protocol. Numbers have the machine's byte order. */
#define TCP_MAGIC 0x71657331u
enum tcp_frame_type {
    /* messages 1 to `number` of the channel have a buffer and may be sent */
    FRAME_READY = 1,
    FRAME_DATA,  /* message `number` */
    FRAME_TAKEN, /* messages 1 to `number` have been received in full */
    FRAME_BEAT,  /* a sign of life */
    FRAME_BYE,   /* the last frame: this rank closes, with no transfer outstanding */
    FRAME_N
};
struct tcp_frame {
    uint32_t magic;
    uint8_t type, channel;
    uint16_t purpose;
    uint64_t number;
    int64_t size;
};

struct tcp_lane {                      /* one channel with one peer */
    uint64_t send_posted, recv_posted; /* atomic; written by the rank */
    uint64_t send_acked, recv_done;    /* atomic; written by the holder of the lock */
    /* under the lock: indices of the last READY received and of the last DATA sent */
    uint64_t granted, sent;
    uint64_t ready_told, received, taken_told;           /* under the lock */
    struct comm_op *send[COMM_N_OPS], *recv[COMM_N_OPS]; /* by number % COMM_N_OPS */
};

enum tcp_fault_kind {
    FAULT_NONE,
    FAULT_CLOSED,
    FAULT_ERRNO,
    FAULT_SILENT,
    FAULT_NONSENSE,
    FAULT_MISMATCH
};
struct tcp_fault {
    enum tcp_fault_kind kind;
    int error;              /* ERRNO */
    int64_t silent_ms;      /* SILENT */
    const char *what;       /* NONSENSE: a noun phrase */
    struct tcp_frame frame; /* NONSENSE, MISMATCH: the frame that was received */
};

struct tcp_peer {
    int rank;
    int fd; /* -1 if not connected, or closed */
    char address[RANK_ADDRESS_SIZE];
    struct tls *tls; /* NULL if the connection is plain */
    uint32_t left;   /* atomic: the peer has said goodbye */
    bool lost, bye_told, beat_due, wants_out;
    int64_t heard_ns, said_ns;
    struct tcp_fault fault;
    struct tcp_lane lane[CHANNEL_N];

    char out[(2 * CHANNEL_N + 3) * sizeof(struct tcp_frame)]; /* frames to send */
    int out_at, out_size, next_channel;
    const char *pay; /* payload after the frames: the caller's bytes */
    int64_t pay_left;
    struct tcp_lane *sending;

    char in[4096]; /* received frames; the last may be incomplete */
    int in_size;
    char *dest; /* next byte of the payload being received, in the caller's buffer */
    int64_t dest_left;
    struct tcp_lane *receiving;
};

struct tcp {
    struct comm *c;
    int listen_fd, epoll_fd, wake_fd;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    bool halted, closing; /* under the lock */
    /* atomic: the first lost peer, or -1; the peer's fault is set before this */
    int lost;
    int64_t silence_ns, tick_ns, next_tick_ns, leave_by_ns;
    int64_t wake_ns; /* time at which the first delayed message is due */
    bool late;
    unsigned char key[RANK_KEY_SIZE];
    struct tls_context *tls; /* NULL if connections are plain */
    struct tcp_peer peer[];  /* [n_ranks] */
};

/* tcp.c. Adds an authenticated connection that tcp_hello.c has made. tcp.c owns fd and tls from
 * then on. */
void tcp_attach(struct tcp *t, int rank, int fd, struct tls *tls);
void tcp_detach(struct tcp *t, struct tcp_peer *p); /* closes the connection */
void tcp_lose(struct tcp *t, struct tcp_peer *p, struct tcp_fault why);
void tcp_wake(struct tcp *t); /* wakes the progress thread */

/* tcp_hello.c. Connects with every rank for which via[] has TCP. It dials lower ranks and accepts
 * connections of higher ranks. Fails with ERR_PEER if a rank did not connect or is lost; the error
 * names the rank and the reason. Fails with ERR_INVALID if another host's address is a loopback
 * address, and also with ERR_ABORTED or ERR_IO. */
int tcp_hello(struct tcp *t, const struct comm_blob *all, struct err *e);
int tcp_hello_listen(struct tcp *t, const char *address, struct err *e); /* fills c->blob */

/* tcp_frame.c. Send and receive frames, under the lock. They do not wait. */
void tcp_flush(struct tcp *t, struct tcp_peer *p);
void tcp_receive(struct tcp *t, struct tcp_peer *p);

/* tcp_thread.c */
int tcp_thread_start(struct tcp *t, struct err *e);

#endif
