/* act.h: the activation functions. */
#ifndef SEQD_CORE_ACT_H
#define SEQD_CORE_ACT_H

enum act_id {
    ACT_IDENTITY, /* in struct model_shape it stands for the family's activation */
    ACT_SILU,
    ACT_GELU, /* exact, with erf */
    ACT_GELU_TANH,
    ACT_RELU,
    ACT_ELU1, /* elu(x) + 1 */
    ACT_SIGMOID,
    ACT_TANH,
    ACT_N
};

#endif
