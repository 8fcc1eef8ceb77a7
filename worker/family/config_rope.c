/* config_rope.c: reads and writes RoPE's rule in config.json. transformers v4 has rope_theta and
 * rope_scaling. v5 has rope_parameters, which is one object with all values. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/core/utf8.h"
#include "worker/family/config_table.h"
#include "worker/program/rope.h"

static bool any_rule(const struct config *c)
{
    return family_row(c->m)->rope_kinds;
}

/* Reads the name of the rule. "su" is an older name of longrope. */
static int read_kind(struct config *c, const char *object)
{
    char why[96] = "only rope_type ";
    if (jread_next(&c->j) != J_STRING) return config_invalid(c, "rope_type", "a string");
    if (!any_rule(c))
        return jread_is(&c->j, "default")
                   ? 0
                   : config_refuse(c, object, "only rope_type \"default\" is supported");
    if (jread_is(&c->j, "su")) return c->m->rope.kind = ROPE_LONGROPE, 0;
    for (int i = 0; rope_words[i]; i++) {
        if (jread_is(&c->j, rope_words[i])) return c->m->rope.kind = i, 0;
        const size_t n = strlen(why);
        snprintf(why + n, sizeof why - n, "%s%s", i ? ", " : "", rope_words[i]);
    }
    const size_t n = strlen(why);
    snprintf(why + n, sizeof why - n, " is supported");
    return config_refuse(c, object, why);
}

static int read_truncate(struct config *c)
{
    bool truncate = true;
    if (config_read_bool(c, "truncate", &truncate) < 0) return -1;
    c->m->rope.no_truncate = !truncate;
    return 0;
}

/* Reads a parameter that is one number. */
static int read_number(struct config *c, const char *object)
{
    struct shape_rope *r = &c->m->rope;
    const struct {
        const char *key;
        double *out;
    } v[] = {{"factor", &r->factor},
             {"low_freq_factor", &r->low_freq},
             {"high_freq_factor", &r->high_freq},
             {"beta_fast", &r->beta_fast},
             {"beta_slow", &r->beta_slow},
             {"mscale", &r->mscale},
             {"mscale_all_dim", &r->mscale_all_dim},
             {"attention_factor", &r->attention_factor}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        if (jread_is(&c->j, v[i].key)) return config_read_real(c, v[i].key, 0, 1e9, v[i].out);
    /* tells where the values came from, which changes nothing */
    if (jread_is(&c->j, "finetuned")) return config_ignore(c, object);
    /* These keys give each column one of the three coordinates of a picture. In text, all three
     * coordinates are the position of the token. */
    if (family_row(c->m)->text_of_pictures &&
        (jread_is(&c->j, "mrope_section") || jread_is(&c->j, "mrope_interleaved")))
        return config_ignore(c, object);
    char key[64], why[112];
    if (jread_copy(&c->j, key, sizeof key) < 0) key[0] = 0;
    utf8_show(key);
    const bool layers = jread_next(&c->j) == J_OBJECT;
    snprintf(why, sizeof why, "%.48s is not supported", key);
    config_refuse(c, object, layers ? "parameters by layer type are not supported" : why);
    return jread_skip(&c->j) < 0 ? config_invalid(c, object, "an object") : 0;
}

static int rope_key(struct config *c, const char *object)
{
    if (jread_is(&c->j, "rope_type") || jread_is(&c->j, "type")) return read_kind(c, object);
    if (jread_is(&c->j, "rope_theta")) return config_read_real(c, "rope_theta", 1, 1e12, &c->theta);
    if (jread_is(&c->j, "partial_rotary_factor")) return config_read_partial(c, object);
    if (!any_rule(c)) {
        if (jread_next(&c->j) == J_OBJECT)
            config_refuse(c, object, "parameters by layer type are not supported");
        return jread_skip(&c->j) < 0 ? config_invalid(c, object, "an object") : 0;
    }
    if (jread_is(&c->j, "original_max_position_embeddings"))
        return config_read_int(c, object, 1, (int64_t)1 << 50, &c->m->rope.original);
    if (jread_is(&c->j, "short_factor")) return config_read_array(c, object, "rope_short_factor");
    if (jread_is(&c->j, "long_factor")) return config_read_array(c, object, "rope_long_factor");
    if (jread_is(&c->j, "truncate")) return read_truncate(c);
    return read_number(c, object);
}

int config_read_rope(struct config *c, const char *key)
{
    const struct shape_rope before = c->m->rope;
    enum jtok t = jread_next(&c->j);
    bool empty = true;
    if (t == J_NULL) return 0;
    if (t != J_OBJECT) return config_invalid(c, key, "an object or null");
    for (; (t = jread_next(&c->j)) == J_KEY; empty = false)
        if (rope_key(c, key) < 0) return -1;
    if (t != J_OBJECT_END) return config_invalid(c, key, "an object");
    if (empty || !c->rope_object) return c->rope_object |= !empty, 0;
    if (memcmp(&before, &c->m->rope, sizeof before) == 0) return 0;
    return config_refuse(c, key, "rope_scaling and rope_parameters say different things");
}

/* Reads the RoPE of sliding_attention. Only its base is stored, in rope_local, because its rule
 * must be the default rule. The RoPE that was read before is unchanged. */
static int read_local(struct config *c, const char *key)
{
    const struct shape_rope full = c->m->rope;
    const double theta = c->theta;
    const bool object = c->rope_object;
    memset(&c->m->rope, 0, sizeof c->m->rope);
    c->theta = 0;
    c->rope_object = false;
    if (config_read_rope(c, key) < 0) return -1;
    const bool plain = c->m->rope.kind == ROPE_DEFAULT;
    if (c->theta) c->m->rope_local = c->theta;
    c->m->rope = full;
    c->theta = theta;
    c->rope_object = object;
    return plain ? 0
                 : config_refuse(c, key,
                                 "of sliding_attention only rope_type \"default\" is supported");
}

int config_read_layer_ropes(struct config *c, const char *key)
{
    struct jread here = c->j;
    enum jtok t = jread_next(&here);
    if (t != J_OBJECT || jread_next(&here) != J_KEY) return config_read_rope(c, key);
    /* v4: the RoPE of layers with full attention */
    if (jread_next(&here) != J_OBJECT) return config_read_rope(c, key);
    jread_next(&c->j);
    while ((t = jread_next(&c->j)) == J_KEY) {
        const bool local = jread_is(&c->j, "sliding_attention");
        if (!local && !jread_is(&c->j, "full_attention"))
            return config_invalid(c, key,
                                  "an object of \"full_attention\" and \"sliding_attention\"");
        if ((local ? read_local : config_read_rope)(c, key) < 0) return -1;
    }
    return t == J_OBJECT_END ? 0 : config_invalid(c, key, "an object");
}

/* Refuses a share that is so small that RoPE would rotate no column. It must be refused because
 * rotary_dim 0 means all columns. */
static int no_column(struct config *c)
{
    return config_error(c, ERR_INVALID, "partial_rotary_factor",
                        "partial_rotary_factor %g: RoPE turns no column of a head: make it larger",
                        c->partial_rotary);
}

/* Reads the share of a head that RoPE rotates, if the family has this size. In other families RoPE
 * rotates the whole head. */
int config_read_partial(struct config *c, const char *key)
{
    double v = 1;
    if (!config_has(c->family, "rotary_dim") || !any_rule(c)) return config_want_one(c, key);
    if (config_read_real(c, key, 0, 1, &v) < 0) return -1;
    c->partial_rotary = v;
    return v > 0 ? 0 : no_column(c);
}

int config_finish_rope(struct config *c)
{
    struct model_shape *m = c->m;
    const int64_t D = m->head_dim ? m->head_dim : m->n_heads ? m->width / m->n_heads : 0;
    if (c->partial_rotary > 0 && c->partial_rotary < 1)
        m->rotary_dim = (int64_t)((double)D * c->partial_rotary);
    if (D > 0 && c->partial_rotary > 0 && (double)D * c->partial_rotary < 1) return no_column(c);
    if (c->original && m->rope.kind != ROPE_DEFAULT) m->rope.original = c->original;
    return 0;
}

int config_read_original(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, (int64_t)1 << 50, &c->original);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void number(struct jwrite *w, const char *key, double v)
{
    if (v > 0) jwrite_double(w, key, v);
}

static void factors(struct jwrite *w, const char *key, const double *f, int64_t n)
{
    jwrite_array(w, key);
    for (int64_t i = 0; i < n; i++) jwrite_double(w, NULL, f[i]);
    jwrite_end(w);
}

void config_write_rope(struct jwrite *w, const char *key, const struct model_shape *m)
{
    const struct shape_rope *r = &m->rope;
    if (r->kind == ROPE_DEFAULT) {
        jwrite_null(w, key);
        return;
    }
    jwrite_object(w, key);
    jwrite_str(w, "rope_type", rope_words[r->kind]);
    number(w, "factor", r->factor);
    if (r->original) jwrite_int(w, "original_max_position_embeddings", r->original);
    number(w, "low_freq_factor", r->low_freq);
    number(w, "high_freq_factor", r->high_freq);
    number(w, "beta_fast", r->beta_fast);
    number(w, "beta_slow", r->beta_slow);
    number(w, "mscale", r->mscale);
    number(w, "mscale_all_dim", r->mscale_all_dim);
    if (r->no_truncate) jwrite_bool(w, "truncate", false);
    number(w, "attention_factor", r->attention_factor);
    if (r->kind == ROPE_LONGROPE) {
        factors(w, "short_factor", r->short_factor, rope_columns(m) / 2);
        factors(w, "long_factor", r->long_factor, rope_columns(m) / 2);
    }
    jwrite_end(w);
}

void config_write_partial(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (m->rotary_dim && m->rotary_dim != m->head_dim)
        jwrite_double(w, key, (double)m->rotary_dim / (double)m->head_dim);
}
