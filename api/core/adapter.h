/* adapter.h: the choices and limits of the fields `adapter` of a job. They are apart from choices.h
 * and limits.h because kernels, which include those, have no part in adapters. */
#ifndef SEQD_CORE_ADAPTER_H
#define SEQD_CORE_ADAPTER_H

enum adapter_id { ADAPTER_NONE, ADAPTER_LORA, ADAPTER_N };
/* Fields of an adapter that a submitted spec names, for those whose default is also a value. */
enum adapter_said {
    ADAPTER_SAID_TYPE = 1,
    ADAPTER_SAID_RSLORA = 2,
    ADAPTER_SAID_DROPOUT = 4,
    ADAPTER_SAID_SAVED = 8
};
/* Modules that are trained whole beside adapters (adapter.modules_to_save). */
enum adapter_saves { ADAPTER_SAVES_EMBEDDING = 1, ADAPTER_SAVES_HEAD = 2 };

#define ADAPTER_RANK     8    /* the rank of adapters whose rank is not given */
#define SPEC_TARGETS     32   /* adapter.targets */
#define SPEC_SAVED       2    /* adapter.modules_to_save */
#define SPEC_TARGET_SIZE 64   /* bytes of a name, with its NUL; names of weights are shorter */
#define SPEC_ADAPTERS    8    /* model.adapters */
#define ADAPTER_BASE     (-1) /* in the place of an adapter's index, the model without one */
#define SPEC_ADAPTER     65   /* bytes of a name in model.adapters, with its NUL */

#endif
