/* halves.h: for a wrapper (worker/family/wrapper.h), which is a model that consists of a text
 * model and another half. Keeps the data that are needed to write a new directory from the
 * wrapper's directory: the names of the text model's tensors, and the bytes of the other half's
 * tensors. */
#ifndef SEQD_HF_HALVES_H
#define SEQD_HF_HALVES_H

#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

struct hf_halves;

/* Opens the other half. *out is NULL if DIR has no weights or no tensor of another half. `still`
 * is called while tensors of the other half are read, and may be NULL. Fails as opening the
 * weights of DIR does. */
int hf_halves_open(const char *dir, const struct model_shape *m, void (*still)(void *arg),
                   void *arg, struct hf_halves **out, struct err *e);
/* Writes TO/model.safetensors with everything that hf_halves_open needs: the tensors of the other
 * half, and an empty tensor for each name of the text model. Writes no file if there is no other
 * half. */
struct hf_take;
int hf_halves_take(const struct hf_take *t, const struct model_shape *m, struct err *e);
void hf_halves_close(struct hf_halves *h); /* accepts NULL */
/* Returns the name that the tensor called `name` by seqd has in DIR, or `name` itself if DIR has
 * no such tensor. */
const char *hf_halves_name(const struct hf_halves *h, const char *name);
/* Return the number of tensors of the other half, and one of these tensors. If h is NULL, there
 * are none. */
int hf_halves_count(const struct hf_halves *h);
struct st_out hf_halves_item(const struct hf_halves *h, int i);

#endif
