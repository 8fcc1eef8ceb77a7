/* window.h: models with a sliding window in some layers and none in other layers: the kinds of
 * layers, and layer_types of config.json. It is private to worker/family.
 *
 * shape.window is the window of all layers, except for the layers in shape.layer_mask, which have
 * full attention. */
#ifndef SEQD_FAMILY_WINDOW_H
#define SEQD_FAMILY_WINDOW_H

#include "worker/family/config_table.h"

enum window_kind { WINDOW_ALL, WINDOW_NONE }; /* kinds of layer: with a window; without */

/* Returns a layer's kind, for family_row.layer_kind. If no layer has a window, all layers are
 * WINDOW_ALL. */
int window_kind(const struct model_shape *m, int64_t l);
/* Tells whether any layer is WINDOW_NONE. */
bool window_mixed(const struct model_shape *m);
/* Returns the window of a layer of that kind. */
int64_t window_of(const struct model_shape *m, int kind);
/* For family_row.check: clears a window that no layer has, and bits of layer_mask beyond the last
 * layer. Fails with ERR_UNSUPPORTED; the error names num_hidden_layers. */
int window_check(struct model_shape *m, struct err *e);

/* Read and write layer_types. Layers of "full_attention" become bits of layer_mask, and
 * c->n_windowed counts the layers of "sliding_attention". */
int window_read_layers(struct config *c, const char *key);
void window_write_layers(struct jwrite *w, const char *key, const struct model_shape *m);
/* Always writes layer_types, because in files of these families a missing list means that some
 * layers have windows. */
void window_write_all_layers(struct jwrite *w, const char *key, const struct model_shape *m);
/* Writes sliding_window: the window, or null. */
void window_write_size(struct jwrite *w, const char *key, const struct model_shape *m);

#endif
