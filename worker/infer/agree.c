/* agree.c: sends the choices of every rank to all other ranks and compares them. If the
 * choices of ranks differ, the error names a rank whose choice is not the most frequent
 * choice. */
#include "worker/infer/agree.h"

#include <stdio.h>

/* Finds a rank whose choice is not the most frequent choice. If there are only two ranks and
 * their choices differ, returns the second rank. Returns -1 if all ranks agree. *like gets a
 * rank with the most frequent choice. */
static int odd_rank(const int64_t *choice, int P, int *like)
{
    int most = 0, odd = -1;
    for (int q = 0; q < P; q++) {
        int n = 0;
        for (int k = 0; k < P; k++) n += choice[k] == choice[q];
        if (n > most) most = n, *like = q;
    }
    for (int q = 0; q < P && odd < 0; q++)
        if (choice[q] != choice[*like]) odd = q;
    return odd;
}

static char *choice_text(char out[64], int rank, int64_t choice)
{
    if (choice == AGREE_NOT_FINITE)
        snprintf(out, 64, "rank %d has logits that are NaN or infinity", rank);
    else if (choice == AGREE_NO_TOKEN)
        snprintf(out, 64, "rank %d found no token that is allowed", rank);
    else
        snprintf(out, 64, "rank %d chose token %lld", rank, (long long)choice);
    return out;
}

/* Compares the choices that P ranks made for one token. */
static int compare(const struct agree_choice *c, const int64_t *each, int P, struct err *e)
{
    char one[64], other[64];
    int like = 0;
    const int odd = odd_rank(each, P, &like);
    if (odd < 0) return 0;
    return err_set(
        e, ERR_CORRUPT,
        "after token %lld of prompt %s %s and %s: their logits should be the same bits, so one of "
        "them computes wrongly (memory, processor), or their processors are of different kinds",
        (long long)c->position, c->id, choice_text(one, odd, each[odd]),
        choice_text(other, like, each[like]));
}

int agree_on(struct comm *comm, void *bounce, const struct agree_choice *choice, int n,
             struct err *e)
{
    const int P = comm ? comm_size(comm) : 1;
    int64_t own[JOB_MAX_BATCH], each[JOB_MAX_RANKS];
    const int64_t *all = own;
    for (int i = 0; i < n; i++) own[i] = choice[i].token;
    if (comm) all = comm_each_i64(comm, PURPOSE_CONTROL, own, n, bounce, e);
    if (!all) return -1;
    for (int i = 0; i < n; i++) {
        for (int q = 0; q < P; q++) each[q] = all[q * n + i];
        if (compare(&choice[i], each, P, e)) return -1;
        if (own[i] == AGREE_NOT_FINITE) return i;
    }
    return n;
}
