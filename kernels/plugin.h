/* plugin.h: a device in a separate shared library. backend.c opens the library when the device is
 * asked for by name, so that a rank that computes on the CPU needs neither CUDA's libraries nor a
 * driver. */
#ifndef SEQD_KERNELS_PLUGIN_H
#define SEQD_KERNELS_PLUGIN_H

#include "kernels/backend.h"

/* version of struct be, struct be_ops and all args structs */
#define KERNELS_ABI 17

/* Name of the struct kernels_plugin that the library exports. */
#define KERNELS_PLUGIN "seqd_kernels"
struct kernels_plugin {
    /* KERNELS_ABI in the library's build; a library whose value differs from the opener's value is
     * refused */
    int abi;
    /* sizeof(struct be_ops) in the library's build; a library whose value differs is refused */
    size_t ops_size;
    struct be *(*open)(const struct be_options *o, struct err *e);
};

#endif
