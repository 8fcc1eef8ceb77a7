/* adapter.h: the choices and limits of the fields `adapter` of a job. They are apart from choices.h
 * and limits.h because kernels, which include those, have no part in adapters. */
#ifndef SEQD_CORE_ADAPTER_H
#define SEQD_CORE_ADAPTER_H

enum adapter_id { ADAPTER_NONE, ADAPTER_LORA, ADAPTER_N };
/* Fields of an adapter that a submitted spec names, for those whose default is also a value. */
enum adapter_said { ADAPTER_SAID_TYPE = 1, ADAPTER_SAID_RSLORA = 2, ADAPTER_SAID_DROPOUT = 4 };

#define ADAPTER_RANK     8  /* the rank of adapters whose rank is not given */
#define SPEC_TARGETS     32 /* adapter.targets */
#define SPEC_TARGET_SIZE 64 /* bytes of one of them, with its NUL; names of weights are shorter */

#endif
