/* seccomp.c: builds the filter as a program of BPF. It compares the number of a call with a list,
 * one after the other. The kernel knows which numbers need no look at arguments, and runs the
 * program for those no more than once (Linux 5.11). */
#include "api/core/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "api/core/assert.h"

#if defined __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#define X32  0x40000000u
#elif defined __aarch64__ && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ARCH AUDIT_ARCH_AARCH64
#define X32  0u
#else
#define ARCH 0u
#define X32  0u
#endif

/* Sanitizers trace their own threads, start a process for it, and ask for the personality. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* newer than the headers of older systems; the numbers are the same on every architecture */
enum {
    FCHMODAT2 = 452,
    SETXATTRAT = 463,
    REMOVEXATTRAT = 466,
    OPEN_TREE_ATTR = 467,
    FILE_SETATTR = 469
};

/* clang-format off */
static const short refused[] = {
    /* reach into others */
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_pidfd_getfd, SYS_process_madvise,
    SYS_process_mrelease, SYS_migrate_pages, SYS_move_pages, SYS_setpriority,
    SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl,
    SYS_semget, SYS_semop, SYS_semctl, SYS_semtimedop,
    SYS_mq_open, SYS_mq_unlink, SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_fanotify_init,
    /* change the machine */
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen,
    SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_setns, SYS_unshare,
    SYS_kexec_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_swapon,
    SYS_swapoff, SYS_acct, SYS_quotactl, SYS_quotactl_fd, SYS_settimeofday, SYS_clock_settime,
    SYS_adjtimex, SYS_clock_adjtime, SYS_sethostname, SYS_setdomainname, SYS_vhangup, SYS_syslog,
    SYS_add_key, SYS_request_key, SYS_keyctl,
    /* parts of the kernel that no rank needs */
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter,
    SYS_io_uring_register,
    /* calls on paths that Landlock does not see */
    SYS_truncate, SYS_fchmodat, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_removexattr,
    SYS_lremovexattr, SYS_utimensat,
    FCHMODAT2, SETXATTRAT, REMOVEXATTRAT, OPEN_TREE_ATTR, FILE_SETATTR,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_memfd_secret
    SYS_memfd_secret,
#endif
#if defined __x86_64__ /* arm64 has only the newer ones */
    SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat,
    SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_uselib, SYS_ustat, SYS__sysctl,
#endif
};
static const short traced[] = {SYS_ptrace, SYS_personality};
#if defined __x86_64__
static const short started[] = {SYS_fork, SYS_vfork};
#endif
/* clang-format on */

#define NEW_NAMESPACES                                                                             \
    (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET |     \
     CLONE_NEWCGROUP)
#define TYPE_MASK 0xfu /* the other bits are SOCK_CLOEXEC and SOCK_NONBLOCK */
#define COUNT(a)  ((int)(sizeof(a) / sizeof *(a)))
#define NUMBER    offsetof(struct seccomp_data, nr)
/* the lower half of an argument, on a little-endian machine */
#define ARGUMENT(i) (offsetof(struct seccomp_data, args) + 8 * (i))

enum { MOST = 400 };

struct bpf_lines {
    struct sock_filter line[MOST];
    int n;
};

static void put(struct bpf_lines *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    assert(p->n < MOST);
    p->line[p->n++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct bpf_lines *p, size_t offset)
{
    put(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct bpf_lines *p, int error)
{
    put(p, BPF_RET | BPF_K,
        error ? SECCOMP_RET_ERRNO | ((uint32_t)error & SECCOMP_RET_DATA) : SECCOMP_RET_ALLOW, 0, 0);
}

/* Answers a call with the error. The number of the call is loaded. */
static void refuse(struct bpf_lines *p, int number, int error)
{
    put(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1);
    answer(p, error);
}

static void refuse_all(struct bpf_lines *p, const short *numbers, int n)
{
    for (int i = 0; i < n; i++) refuse(p, numbers[i], EPERM);
}

/* Begins the lines of one call: they run for it alone, and end with an answer (close_call). */
static int open_call(struct bpf_lines *p, int number)
{
    put(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 0);
    return p->n - 1;
}

static void close_call(struct bpf_lines *p, int opened)
{
    assert(p->n - opened - 1 < 256);
    p->line[opened].jf = (uint8_t)(p->n - opened - 1);
}

/* Refuses a call if one of these bits of an argument is set. */
static void refuse_bits(struct bpf_lines *p, int number, int argument, uint32_t bits)
{
    const int at = open_call(p, number);
    load(p, ARGUMENT(argument));
    put(p, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    answer(p, EPERM);
    answer(p, 0);
    close_call(p, at);
}

/* Allows INET or INET6 for TCP; its protocol is 0 or TCP, because Landlock does not see others,
 * such as MPTCP. */
static void stream_family(struct bpf_lines *p, uint32_t family)
{
    load(p, ARGUMENT(0));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, family, 0, 7);
    load(p, ARGUMENT(1));
    put(p, BPF_ALU | BPF_AND | BPF_K, TYPE_MASK, 0, 0);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 0, 4);
    load(p, ARGUMENT(2));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 0, 1);
    answer(p, 0);
}

static void allow_family(struct bpf_lines *p, uint32_t family)
{
    load(p, ARGUMENT(0));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, family, 0, 1);
    answer(p, 0);
}

static void sockets(struct bpf_lines *p, const struct seccomp_options *o)
{
    static const uint32_t fabric[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    const int at = open_call(p, SYS_socket);
    for (int i = 0; o->fabric && i < COUNT(fabric); i++) allow_family(p, fabric[i]);
    if (o->tcp) stream_family(p, AF_INET);
    if (o->tcp) stream_family(p, AF_INET6);
    answer(p, EPERM);
    close_call(p, at);
}

/* Allows threads alone, or processes without namespaces of their own. The arguments of clone3 are
 * in memory, where no filter can look; libc then calls clone. */
static void processes(struct bpf_lines *p, const struct seccomp_options *o)
{
    refuse(p, SYS_clone3, ENOSYS);
#if defined __x86_64__
    if (!o->processes && !SANITIZED) refuse_all(p, started, COUNT(started));
#endif
    const int at = open_call(p, SYS_clone);
    load(p, ARGUMENT(0));
    put(p, BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 0, 1);
    answer(p, EPERM);
    if (!o->processes && !SANITIZED) {
        put(p, BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0);
        answer(p, EPERM);
    }
    answer(p, 0);
    close_call(p, at);
}

static void build(struct bpf_lines *p, const struct seccomp_options *o)
{
    load(p, offsetof(struct seccomp_data, arch));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    answer(p, EPERM);
    load(p, NUMBER);
    if (X32) {
        put(p, BPF_JMP | BPF_JSET | BPF_K, X32, 0, 1);
        answer(p, EPERM);
    }
    refuse_all(p, refused, COUNT(refused));
    if (!SANITIZED) refuse_all(p, traced, COUNT(traced));
    refuse_bits(p, SYS_prlimit64, 0, UINT32_MAX); /* limits of others; 0 is the caller */
    /* a connection that is made by its first bytes, which Landlock does not see */
    refuse_bits(p, SYS_sendto, 3, MSG_FASTOPEN);
    refuse_bits(p, SYS_sendmsg, 2, MSG_FASTOPEN);
    refuse_bits(p, SYS_sendmmsg, 3, MSG_FASTOPEN);
    /* scheduling of others */
    refuse_bits(p, SYS_sched_setaffinity, 0, UINT32_MAX);
    refuse_bits(p, SYS_sched_setscheduler, 0, UINT32_MAX);
    refuse_bits(p, SYS_sched_setparam, 0, UINT32_MAX);
    refuse_bits(p, SYS_sched_setattr, 0, UINT32_MAX);
    refuse_bits(p, SYS_ioprio_set, 1, UINT32_MAX);
    /* a pair of datagram sockets can send to any path, which Landlock does not see */
    if (!o->fabric) refuse(p, SYS_socketpair, EPERM);
    sockets(p, o);
    processes(p, o);
    answer(p, 0);
}

int seccomp_works(void)
{
    const uint32_t action = SECCOMP_RET_ERRNO;
    return ARCH && !syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action);
}

int seccomp_enter(const struct seccomp_options *o)
{
    struct bpf_lines p = {.n = 0};
    if (!ARCH) return errno = ENOSYS, -1;
    build(&p, o);
    const struct sock_fprog prog = {(unsigned short)p.n, p.line};
    /* without this flag older kernels slow the process down, to hide from it what others compute */
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                        &prog);
}
