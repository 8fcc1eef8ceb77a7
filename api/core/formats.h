/* formats.h: the formats of numbers that a job can choose. They are apart from choices.h, because
 * kernels include them and do not depend on the other fields of a job. */
#ifndef SEQD_CORE_FORMATS_H
#define SEQD_CORE_FORMATS_H

enum precision_id { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16, PRECISION_N };
/* The format in which the weights of matrix products are stored (quant.h). */
enum weights_id {
    WEIGHTS_MODEL, /* stored in the format precision.params, like the weights of other layers */
    WEIGHTS_INT8,  /* blocks of 8 bits */
    WEIGHTS_INT4,  /* blocks of 4-bit codes; a head or tied embedding has 8-bit codes */
    WEIGHTS_N,
    WEIGHTS_PANELS = WEIGHTS_N /* numbers in panels (kernels/panels.h); never used in files */
};

#endif
