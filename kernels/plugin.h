/* plugin.h: a device in a shared library of its own. backend.c opens the library when the device
 * is asked for by name. So a rank that computes on the CPU needs neither CUDA's libraries nor a
 * driver. */
#ifndef SEQD_KERNELS_PLUGIN_H
#define SEQD_KERNELS_PLUGIN_H

#include "kernels/backend.h"

#define KERNELS_ABI 13 /* version of struct be, be_ops and their operations' arguments */

/* Name of the struct kernels_plugin that the library exports. */
#define KERNELS_PLUGIN "seqd_kernels"
struct kernels_plugin {
    int abi;         /* KERNELS_ABI of the library's build; refused if the opener's differs */
    size_t ops_size; /* sizeof(struct be_ops) of the library's build; refused if it differs */
    struct be *(*open)(const struct be_options *o, struct err *e);
};

#endif
