/* dit.h: functions that write the common parts of diffusion transformers over [space, time]
 * (2212.09748). The parts are patches, conditioning on a time and a caption, and blocks of
 * modulated attention and MLP. The families stdit, stdit3, latte and t2d consist of these parts.
 *
 * The parts are written as if one rank had all rows. family_write() then adds the switches
 * (worker/program/spread.h). The residual stream is spread along space (ROWS_T, [space, time]).
 * Operations along space are between two switches (ROWS_ALT, [time, space]). With GRID_TENSOR the
 * parts are written for one of tp ranks instead. */
#ifndef SEQD_FAMILY_DIT_H
#define SEQD_FAMILY_DIT_H

#include "worker/family/config_table.h"
#include "worker/family/family.h"

/* A section that is being written. */
struct dit {
    struct program *p;
    const struct model_shape *m;
};

/* Checks the rules of all these families, and sets the sizes that config.json leaves out. Fails
 * with ERR_INVALID or ERR_UNSUPPORTED; the error names the key. */
int dit_check(struct model_shape *m, struct err *e);
/* Checks that the width and the length of a caption are given. This is for families that read a
 * caption. Fails with ERR_INVALID; the error names caption_channels. */
int dit_check_caption(struct model_shape *m, struct err *e);

/* ---- pieces of `in` -------------------------------------------------------------------------- */

int dit_patches(struct dit d); /* writes the patches, mapped by x_embedder.proj, as [T, C] */
/* adds 2-D positions; if `base_size` is set, computes them as STDiT3 does */
int dit_position_2d(struct dit d, int x);
int dit_position_1d(struct dit d, int x);
/* Writes the MLP of the sinusoid of t (t_embedder) or of fps (fps_embedder), as a value named
 * "time" [ROWS_COND, C]. Adds base unless it is PROG_NONE. If shared is set, later sections may
 * read the result. */
int dit_timestep(struct dit d, bool fps, int base, bool shared);
void dit_caption(struct dit d); /* makes the caption the shared value "caption" [ROWS_TEXT, C] */
/* Writes t_block.1 of SiLU(t), as the shared value "time_block" [ROWS_COND, 6 C]. */
void dit_time_block(struct dit d, int t);

/* ---- pieces of a layer ----------------------------------------------------------------------- */

int dit_input(struct dit d); /* returns the residual stream; it is also used in section `out` */

/* Shift, scale and gate of attention, and then shift, scale and gate of the MLP. They are views
 * [ROWS_COND, C]. */
struct dit_vectors {
    int attn[3], mlp[3];
};
/* returns views of the value `six` [ROWS_COND, 6 C] */
struct dit_vectors dit_vectors(struct dit d, int six);
/* Adds scale_shift_table to the value that section `in` shares as "time_block". */
struct dit_vectors dit_table(struct dit d, const struct program *in);

struct dit_attn {
    const char *prefix; /* prefix of the weights' names: "attn" */
    int dim;            /* dimension along which rows attend: 0 is space, 1 is time */
    bool rope, qk_norm;
};
/* Writes LN(x) (1 + scale) + shift. v has shift, scale and gate (struct dit_vectors). */
int dit_modulated(struct dit d, int x, const int v[3]);
int dit_attention(struct dit d, int x, const struct dit_attn *a); /* qkv, attention, proj */
int dit_gate(struct dit d, int base, int x, int gate, bool first, const char *name);
/* Writes x + proj(attention to the caption). Section `in` shares the caption. */
int dit_cross(struct dit d, const struct program *in, int x);
int dit_mlp(struct dit d, int x, const int v[3]); /* writes x + gate MLP(modulated x) */
/* Makes x the section's result. The section itself does not keep x, because x is the input of the
 * next section, which may keep it. */
void dit_result(struct dit d, int x);

/* ---- pieces of `out` ------------------------------------------------------------------------- */

/* Writes the final modulation of T2I models. Its two vectors are final_layer.scale_shift_table + t
 * ("time"). If the latents of a frame are given without noise, the original code modulates the
 * frame's rows twice, and so does this function. */
int dit_final_table(struct dit d, const struct program *in, int x);
void dit_loss(struct dit d, int x); /* writes final_layer.linear and the loss of the objective */

/* A product a W' + b with the tensors PREFIX.weight and PREFIX.bias. dit_linear also adds base,
 * unless it is PROG_NONE. */
struct dit_linear {
    const char *prefix;
    int64_t rows; /* rows of the weight, which are the columns of the result */
    enum init_id init;
};
int dit_linear(struct dit d, int x, int base, const struct dit_linear *l, const struct value *out);

/* ---- config.json ----------------------------------------------------------------------------- */

/* Readers and writers of keys in config.json. DIT_SPECIALS below uses them. */
int dit_read_ratio(struct config *c, const char *key);
int dit_read_patch(struct config *c, const char *key);
int dit_read_sigma(struct config *c, const char *key);
int dit_read_objective(struct config *c, const char *key);
void dit_write_ratio(struct jwrite *w, const char *key, const struct model_shape *m);
void dit_write_patch(struct jwrite *w, const char *key, const struct model_shape *m);
void dit_write_sigma(struct jwrite *w, const char *key, const struct model_shape *m);
void dit_write_objective(struct jwrite *w, const char *key, const struct model_shape *m);
/* returns 1, which is the index of the authors' model_type */
int dit_model(const struct model_shape *m);
/* sets the number of predicted channels and the width of the MLP */
int dit_finish(struct config *c);
extern const char *const dit_nothing[]; /* keys that change nothing */

/* clang-format off */
#define DIT_ABSENT                                                                                 \
    HF_ABSENT(2048, 1e-6, 10000), {"in_channels", 4}, {"patch_t", 1}, {"patch_h", 2}, {"patch_w", 2}
#define DIT_SIZES                                                                                  \
    {"hidden_size", NULL, HF_NEEDED}, {"num_attention_heads", "num_heads", HF_NEEDED},             \
    {"intermediate_size", NULL, HF_UNWRITTEN}, {"in_channels", NULL, 0},                           \
    {"head_dim", NULL, HF_UNWRITTEN}, {"num_key_value_heads", NULL, HF_UNWRITTEN},                 \
    {"out_channels", NULL, HF_UNWRITTEN}, {"patch_t", NULL, HF_UNWRITTEN},                         \
    {"patch_h", NULL, HF_UNWRITTEN}, {"patch_w", NULL, HF_UNWRITTEN},                              \
    {"hidden_act", NULL, HF_UNWRITTEN | HF_FIXED}
#define DIT_SPECIALS                                                                               \
    {"mlp_ratio", dit_read_ratio, dit_write_ratio}, {"patch_size", dit_read_patch, dit_write_patch},               \
    {"pred_sigma", dit_read_sigma, dit_write_sigma}, {"learn_sigma", dit_read_sigma, NULL},                        \
    {"drop_path", config_want_zero, NULL},                \
    {"objective", dit_read_objective, dit_write_objective},                                                \
    {"quantization_config", config_want_null, NULL}
#define CAPTION {"caption_channels", NULL, 0}, {"model_max_length", NULL, 0}
/* clang-format on */

#endif
