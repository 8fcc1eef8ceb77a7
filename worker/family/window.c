/* window.c: stores the layers without a window as bits of layer_mask, and reads and writes
 * layer_types. */
#include "worker/family/window.h"

#include <string.h>
#include "api/core/err.h"

int window_kind(const struct model_shape *m, int64_t l)
{
    return shape_special(m, l) ? WINDOW_NONE : WINDOW_ALL;
}

bool window_mixed(const struct model_shape *m)
{
    for (int64_t l = 0; l < m->n_layers; l++)
        if (window_kind(m, l) == WINDOW_NONE) return true;
    return false;
}

int64_t window_of(const struct model_shape *m, int kind)
{
    return kind == WINDOW_NONE ? 0 : m->window;
}

int window_check(struct model_shape *m, struct err *e)
{
    int64_t n_full = 0;
    for (int64_t l = 0; l < 32 * SHAPE_MASKS; l++) {
        if (l >= m->n_layers) m->layer_mask[l / 32] &= ~((int64_t)1 << l % 32);
        n_full += shape_special(m, l);
    }
    if (n_full && m->n_layers > 32 * SHAPE_MASKS)
        return err_field(e, ERR_UNSUPPORTED, "model.config.num_hidden_layers",
                         "num_hidden_layers %d: at most %d where some have a window and some have "
                         "none",
                         m->n_layers, 32 * SHAPE_MASKS);
    if (n_full == m->n_layers) m->window = 0;
    if (!m->window) memset(m->layer_mask, 0, sizeof m->layer_mask);
    return 0;
}

static int read_layer(struct config *c, enum jtok t)
{
    if (t != J_STRING) return 1;
    const bool full = jread_is(&c->j, "full_attention");
    if (!full && !jread_is(&c->j, "sliding_attention"))
        return config_refuse(c, "layer_types",
                             "only \"full_attention\" and \"sliding_attention\" are supported");
    c->n_windowed += !full;
    config_mark_layer(c->m, c->n_flags, full);
    return 0;
}

int window_read_layers(struct config *c, const char *key)
{
    return config_read_list(c, key, read_layer);
}

void window_write_layers(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (!window_mixed(m)) return;
    jwrite_array(w, key);
    for (int64_t l = 0; l < m->n_layers; l++)
        jwrite_str(w, NULL, window_kind(m, l) ? "full_attention" : "sliding_attention");
    jwrite_end(w);
}

void window_write_all_layers(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int64_t l = 0; l < m->n_layers; l++)
        jwrite_str(w, NULL,
                   m->window && !window_kind(m, l) ? "sliding_attention" : "full_attention");
    jwrite_end(w);
}

void window_write_size(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (m->window)
        jwrite_int(w, key, m->window);
    else
        jwrite_null(w, key);
}
