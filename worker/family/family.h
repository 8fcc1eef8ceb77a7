/* family.h: the model families. A family has a line in FAMILIES, and a row at the end of a file in
 * this folder. Related families may share a file. */
#ifndef SEQD_FAMILY_FAMILY_H
#define SEQD_FAMILY_FAMILY_H

#include <stddef.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"
#include "worker/program/program.h"

/* Largest number of kinds of layers in one model. The layers of a family are of at most 4 kinds,
 * and frozen tensors divide these kinds further. */
#define FAMILY_KINDS 8
/* largest number of tensors of one model; it is enough for 85 layers of 512 experts */
#define FAMILY_TENSORS 131072

/* Every family, as X(word in the names of constants, name of its row family_NAME). Jobs and
 * checkpoints store the position of a family in this list, so new families must be added at the
 * end. */
/* clang-format off */
#define FAMILIES(X) \
    X(LLAMA, llama)     /* also Mistral, Qwen2 and Qwen3 */ \
    X(BERT, bert) \
    X(TNL, tnl)         /* TransNormerLLM */ \
    X(LINEAR, linear)   /* linear transformer */ \
    X(RETNET, retnet) \
    X(MINIMAX, minimax) /* linear and softmax layers, mixture of experts */ \
    X(STDIT, stdit)     /* Open-Sora 1.0 */ \
    X(STDIT3, stdit3)   /* Open-Sora 1.2 */ \
    X(LATTE, latte) \
    X(T2D, t2d)         /* Transformer-2D of the DSP paper */ \
    X(SMOLLM3, smollm3) /* some layers without RoPE */ \
    X(OLMO2, olmo2)     /* norms after attention and MLP */ \
    X(PHI3, phi3)       /* joined projections, longrope */ \
    X(GRANITE, granite) /* multipliers */ \
    X(GPT2, gpt2) \
    X(GEMMA, gemma)     /* Gemma 2, and Gemma 3's text model */ \
    X(MIXTRAL, mixtral) \
    X(QWEN3_MOE, qwen3_moe) \
    X(OLMOE, olmoe) \
    X(QWEN3_5, qwen3_5) /* gated delta networks and gated softmax attention */ \
    X(GPT_OSS, gpt_oss) /* attention sinks, clamped experts with biases */ \
    X(ROBERTA, roberta) /* BERT, positions after the padding id */ \
    X(QWEN2_MOE, qwen2_moe) /* a shared expert for every token */ \
    X(QWEN3_NEXT, qwen3_next) /* Qwen3.5's layers with experts */ \
    X(QWEN3_5_MOE, qwen3_5_moe) \
    X(MODERNBERT, modernbert) /* an encoder with RoPE and two-sided windows */
/* clang-format on */

#define FAMILY_ID(WORD, name) FAMILY_##WORD,
enum model_family { FAMILIES(FAMILY_ID) FAMILY_N };
#undef FAMILY_ID

/* The programs of a whole model. They take about 4 MB, which is too much for a stack, so use
 * family_new. */
struct family {
    int n_kinds;
    struct program in, out, layer[FAMILY_KINDS];
};

enum task_id { MODEL_CAUSAL_LM, MODEL_MASKED_LM, MODEL_DIFFUSION };

struct family_row {
    char name[24]; /* model_type in jobs; a config.json may have another name (config_table.h) */
    /* the keys of its config.json, and the model_types (config_table.h) */
    const struct hf_family *config;
    enum task_id task;
    bool linear, softmax; /* kinds of attention in its layers */
    /* The state after a chunk is not just a sum of the decayed state before the chunk and a
     * summary. So the ranks of a ring compute one after the other. The exchanges scan and
     * all_gather pass maps of states (worker/sp/carry.h). */
    bool in_turn;
    /* Diffusion. published_on_noise is set if the published weights predict noise (iddpm).
     * Otherwise they predict the velocity of rectified flow. guided is the number of channels that
     * guidance changes if noise is predicted. 0 means all channels. */
    bool published_on_noise;
    int64_t guided;
    /* Diffusion: videos were encoded in clips of 17 frames, and each clip has 5 latents. */
    bool clips;
    /* its program can be written for one of several ranks of tensor parallelism */
    bool shares_layers;
    bool sinks;            /* its attention has sinks */
    bool text_of_pictures; /* its files also have parameters of RoPE for pictures */
    /* its files may have any rule for the frequencies of RoPE (rope.h) */
    bool rope_kinds;
    /* positions are rows of a table, which has max_position_embeddings rows */
    bool position_table;
    bool residual_turns; /* diffusion: the residual stream itself is switched between layers */
    bool flat_patches;   /* diffusion: the tensor of patches has no dimension of frames */
    /* Names of tensors in files. base is the prefix of the tensors of the package's base class.
     * Files of the base class omit this prefix. NULL means the usual prefix. head is the name of a
     * head that is tied to the embedding. NULL means the usual name. beside is a NULL-terminated
     * list of tensors that are not used. Each entry is a prefix of their names. If it begins with
     * a dot, it is a suffix. rename changes the names of older files to the present names. If it
     * is NULL, names are not changed. */
    const char *base;
    const char *head;
    const char *const *beside;
    void (*rename)(const char *stored, char *name, size_t size);
    /* Prefixes of tensors that belong to the part of a wrapper that is not computed (wrapper.h).
     * These tensors are copied unchanged into the directories that are written. NULL-terminated.
     * NULL if no wrapper contains this family. */
    const char *const *passed;
    /* Checks sizes that depend on each other, and sets the sizes that config.json leaves out. NULL
     * if there is nothing to check. Fails with ERR_INVALID or ERR_UNSUPPORTED; the error names the
     * key. */
    int (*check)(struct model_shape *m, struct err *e);
    void (*write)(const struct model_shape *m, struct family *f);
    /* returns the kind of layer l; NULL if all layers are of kind 0 */
    int (*layer_kind)(const struct model_shape *m, int64_t l);
};

extern const char *const family_words[]; /* family names by enum model_family, NULL-terminated */

/* Returns the row of the shape's family, or NULL if the family is not known. */
const struct family_row *family_row(const struct model_shape *m);
static inline bool family_diffusion(const struct model_shape *m)
{
    return family_row(m)->task == MODEL_DIFFUSION;
}
/* Returns the objective of a diffusion model, as a word of config.json. */
static inline const char *family_objective(const struct model_shape *m)
{
    return shape_of_noise(m) ? "iddpm" : "rectified_flow";
}
/* Tells whether the model is a masked language model, whose attention is bidirectional. */
static inline bool family_masked(const struct model_shape *m)
{
    return family_row(m)->task == MODEL_MASKED_LM;
}
/* Returns the name of the tensor of a head that is tied to the embedding. */
static inline const char *family_head(const struct model_shape *m)
{
    const char *head = family_row(m)->head;
    return head ? head : "lm_head.weight";
}
/* Returns the prefix of the names of tensors. Files of the base class do not have the prefix.
 * Returns "" if there is no prefix. */
static inline const char *family_base(const struct model_shape *m)
{
    const char *base = family_row(m)->base;
    return base ? base : family_diffusion(m) ? "" : "model.";
}
/* Returns the number of positions for which the table of a position_table has rows. */
static inline int64_t family_positions(const struct model_shape *m)
{
    return m->max_pos - m->first_pos;
}
/* Checks that the sizes that cannot be derived are given. Fails with ERR_INVALID; the error names
 * a missing size. */
int family_needs(const struct model_shape *m, struct err *e);
/* Derives the sizes that are not given (heads, their widths, the family's own sizes). Checks all
 * sizes. Call it before a shape is used. It does not change a complete shape. Fails with
 * ERR_INVALID or ERR_UNSUPPORTED; the error names the key. */
int family_complete(struct model_shape *m, struct err *e);
/* Returns the sizes of one rank's part if m->tp ranks divide every layer. Heads and columns are
 * divided by tp, but there is at least one KV head. */
struct model_shape family_slice(const struct model_shape *m);
/* Writes the programs of the family for this shape. m must be complete. */
void family_write(const struct model_shape *m, struct family *f);
/* Marks the weights of all programs, as store_mark does for one program. */
void family_store(struct family *f, enum weights_id format);
/* Does the same as family_write, in memory that it allocates. Free the result with family_free. */
struct family *family_new(const struct model_shape *m);
void family_free(struct family *f);
/* family_layer_kind returns the kind of layer l. family_own_kind returns the kind of layer l
 * without regard to frozen tensors. */
int family_layer_kind(const struct model_shape *m, int64_t l);
int family_own_kind(const struct model_shape *m, int64_t l);
/* The kinds of MLP in the layers of a model: dense MLPs (prog_is_mlp) and mixtures of experts. */
struct family_mlps {
    bool dense, experts;
};
struct family_mlps family_mlps(const struct model_shape *m);
bool family_rotates(const struct model_shape *m); /* tells whether layers rotate keys by RoPE */
/* Returns the program of layer l. */
const struct program *family_layer(const struct family *f, const struct model_shape *m, int64_t l);

#define FAMILY_ROW(WORD, name) extern const struct family_row family_##name;
FAMILIES(FAMILY_ROW)
#undef FAMILY_ROW

#endif
