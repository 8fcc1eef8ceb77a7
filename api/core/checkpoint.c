/* checkpoint.c: the table of the members that describe a checkpoint. */
#include "api/core/checkpoint.h"

#include <float.h>
#include "api/core/record.h"

static bool is_timed(const void *record)
{
    return ((const struct checkpoint_record *)record)->save_ms;
}

/* clang-format off */
#define AT(member)        offsetof(struct checkpoint_record, member)
#define INT(m, w, h)      {#m, FIELD_INT, AT(m), 0, INT64_MAX, .help = h, .when = w}
#define TEXT(m, h)        {#m, FIELD_TEXT, AT(m), .size = sizeof ((struct checkpoint_record *)0)->m, .help = h, .when = record_always}
const struct field checkpoint_fields[] = {
    INT(step, record_always, "The step after which it was saved."),
    TEXT(path, "Its directory on the nodes."),
    INT(size, record_always, "Bytes of all its files."),
    TEXT(weights_sha256, "The digest of the bytes of its tensors, in the order of their names."),
    INT(save_ms, is_timed, "The time to write it. Not known if an earlier attempt wrote it."),
    {"mb_s", FIELD_DOUBLE, AT(mb_s), 0, DBL_MAX, .help = "MB of it written a second: size / save_ms.", .when = is_timed},
    {NULL}
};
/* clang-format on */
