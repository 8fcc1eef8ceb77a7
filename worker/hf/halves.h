/* halves.h: the data of a wrapper's directory (worker/family/wrapper.h) that a directory written
 * from it needs: the names of the text model's tensors, and the bytes of the other half's
 * tensors. */
#ifndef SEQD_HF_HALVES_H
#define SEQD_HF_HALVES_H

#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

struct hf_halves;

/* Opens the other half. *out is NULL if DIR has no weights or no tensor of another half. still:
 * called while tensors of the other half are read; may be NULL. fails: as the weights of DIR. */
int hf_halves_open(const char *dir, const struct model_shape *m, void (*still)(void *arg),
                   void *arg, struct hf_halves **out, struct err *e);
/* Writes TO/model.safetensors with all that hf_halves_open needs: the other half's tensors, and an
 * empty tensor for each name of the text model. Writes no file if there is no other half. */
struct hf_take;
int hf_halves_take(const struct hf_take *t, const struct model_shape *m, struct err *e);
void hf_halves_close(struct hf_halves *h); /* NULL allowed */
/* Returns the name in DIR of the tensor that seqd calls `name`; `name` itself if DIR has no such
 * tensor. */
const char *hf_halves_name(const struct hf_halves *h, const char *name);
/* Return the number of the other half's tensors, and one of them. h NULL: there are none. */
int hf_halves_count(const struct hf_halves *h);
struct st_out hf_halves_item(const struct hf_halves *h, int i);

#endif
