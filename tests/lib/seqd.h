/* seqd.h: the setup that all tests of the daemon's parts have in common. */
#ifndef SEQD_TESTS_SEQD_H
#define SEQD_TESTS_SEQD_H

#include <stdlib.h>
#include "api/core/log.h"
#include "daemon/spec/json.h"

static inline void seqd_test_init(void)
{
    setenv("SEQD_LOG", "error", 0);
    log_init("test");
    json_init();
}

#endif
