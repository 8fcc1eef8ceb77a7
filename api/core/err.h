/* err.h: the way in which a function reports a failure to its caller.
 *
 *     int f(..., struct err *e);     returns 0, or -1 with *e filled by err_set
 *
 * The sentence in an err is for a person: it names the field or file, the number that was found
 * and a number that is allowed. A mistake of the program itself is an assert instead of an err,
 * and asserts are always compiled in. Codes are mapped to HTTP statuses in exactly one place
 * (daemon/http/reply.c). */
#ifndef SEQD_CORE_ERR_H
#define SEQD_CORE_ERR_H

#include <stdbool.h>
#include <stdint.h>
enum err_code {
    ERR_NONE = 0,
    ERR_INVALID,      /* the request or a file is wrong, and the user can correct it */
    ERR_NOT_FOUND,    /* no such job, node, file */
    ERR_CONFLICT,     /* a valid request that the present state does not allow */
    ERR_DOES_NOT_FIT, /* the plan refuses the job; the sentence has the numbers */
    ERR_TOO_LARGE,    /* the request exceeds a limit of seqd, which the sentence names */
    ERR_IO,           /* a system call failed (the sentence has errno's text), or memory ran out */
    ERR_CORRUPT,      /* a file's digest, size, structure or values are wrong, or ranks disagree */
    ERR_PEER,         /* a peer (a rank or a process) is gone, is late, or sends invalid data */
    ERR_TIMEOUT,
    ERR_ABORTED,     /* a different process asked this one to stop */
    ERR_UNSUPPORTED, /* a known word that this build or device does not support */
    ERR_INTERNAL,
    ERR_DEVICE,       /* a device failed or is missing; the job may work on a different device */
    ERR_NO_SPACE,     /* a disk is full or read-only, or a quota is used up */
    ERR_UNAUTHORIZED, /* the caller has not proved its identity */
    ERR_FORBIDDEN,    /* the caller is known, but may not do this */
    ERR_WALL_LIMIT,   /* a job has reached the time limit limits.wall_s */
    ERR_DEPENDENCY,   /* a job that must succeed before this one has not succeeded */
    ERR_N
};

struct err {
    enum err_code code;
    char field[96]; /* the field at fault, such as "data.seq_len" or "gpu.uuid"; "" if none */
    char text[512]; /* one sentence, no newline */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Fills *e and returns -1, so that a function can end with `return err_set(...)`. e may be
 * NULL. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Does the same as err_set, for an error in one field of the job spec. */
int err_field(struct err *e, enum err_code code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Sets ERR_IO and appends strerror(errno) to the sentence: "open /x/y: Permission denied". For
 * some values of errno the code is not ERR_IO. ENOENT gives ERR_NOT_FOUND. EFBIG gives
 * ERR_TOO_LARGE, and the sentence names the limit. ENOSPC, EDQUOT and EROFS give ERR_NO_SPACE. */
int err_errno(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Does the same as err_errno after a write to a file that must hold at least `needed` bytes. */
int err_write(struct err *e, int64_t needed, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Tells whether a sentence begins with `name`, the name of a field or an operation, or with a
 * member of the field `name`. */
bool err_begins(const char *text, const char *name);
/* Puts "prefix: " in front of the sentence, to say which operation failed, unless the sentence
 * begins with the prefix already (err_begins). Returns -1. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Makes the error one about `field`, which the sentence then begins with. Returns -1. */
int err_about(struct err *e, const char *field);

/* Replaces control characters in the sentence by question marks. Call it for a sentence that
 * quotes a file. */
void err_plain(struct err *e);

const char *err_name(enum err_code code); /* "invalid", "does_not_fit", ...: stable, used in REST */

#ifdef __cplusplus
}
#endif

#endif
