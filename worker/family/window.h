/* window.h: functions for models in which only some layers have a sliding window: the kinds of
 * layers, and layer_types of config.json. It is private to worker/family.
 *
 * shape.window is the width of the window. The layers whose bits are set in shape.layer_mask have
 * full attention, without a window. */
#ifndef SEQD_FAMILY_WINDOW_H
#define SEQD_FAMILY_WINDOW_H

#include "worker/family/config_table.h"

/* kinds of layers: WINDOW_ALL has the window of shape.window; WINDOW_NONE has none */
enum window_kind { WINDOW_ALL, WINDOW_NONE };

/* Returns a layer's kind. Used as family_row.layer_kind. If no layer has a window, all layers are
 * WINDOW_ALL. */
int window_kind(const struct model_shape *m, int64_t l);
/* Tells whether any layer is WINDOW_NONE. */
bool window_mixed(const struct model_shape *m);
/* Returns the window of layers of this kind. */
int64_t window_of(const struct model_shape *m, int kind);
/* Used as family_row.check. Clears a window that no layer has, and bits of layer_mask after the
 * last layer. Fails with ERR_UNSUPPORTED; the error names num_hidden_layers. */
int window_check(struct model_shape *m, struct err *e);

/* Read and write layer_types. Layers of "full_attention" are bits of layer_mask. c->n_windowed
 * becomes the number of layers of "sliding_attention". */
int window_read_layers(struct config *c, const char *key);
void window_write_layers(struct jwrite *w, const char *key, const struct model_shape *m);
/* Writes layer_types even if no layer has a window. If a file of these families lacks the key,
 * some layers have windows. */
void window_write_all_layers(struct jwrite *w, const char *key, const struct model_shape *m);
/* Writes sliding_window, which is the window or null. */
void window_write_size(struct jwrite *w, const char *key, const struct model_shape *m);

#endif
