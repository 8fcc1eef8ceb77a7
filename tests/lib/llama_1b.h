/* llama_1b.h: the sizes of Llama 3.2 1B (1.24 billion parameters), written as members of a struct
 * model_shape. */
#ifndef SEQD_TESTS_LLAMA_1B_H
#define SEQD_TESTS_LLAMA_1B_H

#define LLAMA_1B                                                                                   \
    .n_layers = 16, .width = 2048, .n_heads = 32, .n_kv_heads = 8, .head_dim = 64,                 \
    .ffn_width = 8192, .vocab = 128256, .tied = 1, .norm_eps = 1e-5, .rope_theta = 500000

#endif
