/* halves.h: keeps those data of a wrapper's directory that are needed to write a new directory
 * of the wrapper. A wrapper (worker/family/wrapper.h) is a model that consists of two halves:
 * a text model, and a half that reads pictures ("the other half"). The kept data are the names
 * of the text model's tensors, and the bytes of the other half's tensors. */
#ifndef SEQD_HF_HALVES_H
#define SEQD_HF_HALVES_H

#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

struct hf_halves;

/* Opens the other half. *out is NULL if DIR has no weights, or if no tensor in DIR belongs to
 * the other half. `still` is called while tensors of the other half are read, and may be NULL.
 * Fails as hf_weights_open does. */
int hf_halves_open(const char *dir, const struct model_shape *m, void (*still)(void *arg),
                   void *arg, struct hf_halves **out, struct err *e);
/* Writes the file TO/model.safetensors, from which hf_halves_open can read all data. The file
 * has the tensors of the other half, and an empty tensor for each name of the text model.
 * Writes no file if the model has no other half. */
struct hf_take;
int hf_halves_take(const struct hf_take *t, const struct model_shape *m, struct err *e);
void hf_halves_close(struct hf_halves *h); /* accepts NULL */
/* Returns the name in DIR of the tensor that seqd calls `name`. Returns `name` itself if DIR has
 * no such tensor. */
const char *hf_halves_name(const struct hf_halves *h, const char *name);
/* hf_halves_count returns the number of tensors of the other half. hf_halves_item returns
 * tensor i of the other half. If h is NULL, the number is 0. */
int hf_halves_count(const struct hf_halves *h);
struct st_out hf_halves_item(const struct hf_halves *h, int i);

#endif
