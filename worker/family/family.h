/* family.h: the model families. A family has a line in FAMILIES, and its row at the end of a file
 * of this folder; related families may share a file. */
#ifndef SEQD_FAMILY_FAMILY_H
#define SEQD_FAMILY_FAMILY_H

#include <stddef.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"
#include "worker/program/program.h"

#define FAMILY_KINDS   4      /* kinds of layer in one model */
#define FAMILY_TENSORS 131072 /* tensors of one model: 85 layers of 512 experts */

/* Every family: its word in constants, and the name of its row, family_NAME, in its file. Jobs and
 * checkpoints identify a family by its position here, so new ones go last. */
/* clang-format off */
#define FAMILIES(X) \
    X(LLAMA, llama)     /* Mistral, Qwen2 and Qwen3, too */ \
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

/* The programs of a whole model. They take about 2 MB, too much for a stack (family_new). */
struct family {
    int n_kinds;
    struct program in, out, layer[FAMILY_KINDS];
};

enum task_id { MODEL_CAUSAL_LM, MODEL_MASKED_LM, MODEL_DIFFUSION };

struct family_row {
    char name[24]; /* model_type in jobs; config.json may have others (config_table.h) */
    const struct hf_family *config; /* keys of its config.json, its model_types (config_table.h) */
    enum task_id task;
    bool linear, softmax; /* the kinds of attention of its layers */
    /* The state after a chunk is not just a decayed state before it plus a summary. So ranks of a
     * ring compute one after the other, and other exchanges pass maps of states
     * (worker/sp/carry.h). */
    bool in_turn;
    /* Diffusion. published_on_noise: the published weights predict noise (iddpm), else the
     * velocity of rectified flow. guided: number of channels to which guidance applies when noise
     * is predicted; 0: all. */
    bool published_on_noise;
    int64_t guided;
    /* Diffusion: videos were encoded in clips of 17 frames to 5 latents each. */
    bool clips;
    bool shares_layers;    /* its program can be written for one rank of tensor parallelism */
    bool sinks;            /* its attention has sinks */
    bool text_of_pictures; /* its files also have RoPE's parameters for pictures */
    bool rope_kinds;       /* its files may have any rule of RoPE's frequencies (rope.h) */
    bool position_table;   /* positions are rows of a table of max_position_embeddings */
    bool residual_turns;   /* diffusion: the residual itself is switched between layers */
    bool flat_patches;     /* diffusion: the tensor of patches has no dimension of frames */
    /* Names of tensors in files. base: prefix of the tensors of the package's base class; files of
     * that class omit it; NULL: the usual prefix. head: name of a head that is tied to the
     * embedding; NULL: the usual name. beside: unused tensors, NULL-terminated: prefixes of names,
     * or suffixes, which begin with a dot. rename: converts names of older files; NULL: names are
     * not converted. */
    const char *base;
    const char *head;
    const char *const *beside;
    void (*rename)(const char *stored, char *name, size_t size);
    /* Prefixes of the tensors of a wrapper's other half (wrapper.h), which are copied from
     * directory to directory, NULL-terminated. NULL: no wrapper has this family. */
    const char *const *passed;
    /* Checks sizes that depend on each other; sets the sizes that config.json leaves out. NULL: no
     * check. fails: ERR_INVALID, ERR_UNSUPPORTED naming the key. */
    int (*check)(struct model_shape *m, struct err *e);
    void (*write)(const struct model_shape *m, struct family *f);
    int (*layer_kind)(const struct model_shape *m, int64_t l); /* NULL: all of kind 0 */
};

extern const char *const family_words[]; /* family names by enum model_family, NULL-terminated */

/* Returns the row of the shape's family; NULL: it is not a known family. */
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
/* Returns the prefix of the names of tensors, except in files of the base class; "": none. */
static inline const char *family_base(const struct model_shape *m)
{
    const char *base = family_row(m)->base;
    return base ? base : family_diffusion(m) ? "" : "model.";
}
/* Counts the positions for which a position_table has rows. */
static inline int64_t family_positions(const struct model_shape *m)
{
    return m->max_pos - m->first_pos;
}
/* Checks the sizes that are never derived. fails: ERR_INVALID naming a missing size. */
int family_needs(const struct model_shape *m, struct err *e);
/* Derives the sizes that are not given (heads, their widths, the family's own) and checks all
 * sizes. Every shape must be completed before it is used. A completed shape is not changed.
 * fails: ERR_INVALID, ERR_UNSUPPORTED naming the key. */
int family_complete(struct model_shape *m, struct err *e);
/* Returns the sizes of one rank's share if m->tp ranks split every layer: heads and columns
 * divided by tp, at least one KV head. */
struct model_shape family_slice(const struct model_shape *m);
/* Writes the programs of the family for this shape. m is complete. */
void family_write(const struct model_shape *m, struct family *f);
/* Marks the weights of all programs, as store_mark does. */
void family_store(struct family *f, enum weights_id format);
/* Writes the programs as family_write does, on the heap. Free them with family_free. */
struct family *family_new(const struct model_shape *m);
void family_free(struct family *f);
int family_layer_kind(const struct model_shape *m, int64_t l);
/* The kinds of MLP in the layers of a model: dense MLPs (prog_is_mlp), mixtures of experts. */
struct family_mlps {
    bool dense, experts;
};
struct family_mlps family_mlps(const struct model_shape *m);
bool family_rotates(const struct model_shape *m); /* tells whether layers turn keys by RoPE */
/* Returns the program of layer l. */
const struct program *family_layer(const struct family *f, const struct model_shape *m, int64_t l);

#define FAMILY_ROW(WORD, name) extern const struct family_row family_##name;
FAMILIES(FAMILY_ROW)
#undef FAMILY_ROW

#endif
