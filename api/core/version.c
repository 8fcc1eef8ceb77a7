/* version.c: returns the version, with the revision that the build passes in SEQD_REVISION. */
#include "api/core/version.h"

#ifndef SEQD_REVISION
#define SEQD_REVISION "unknown"
#endif

const char *version_revision(void)
{
    return SEQD_REVISION;
}

const char *version_text(void)
{
    return SEQD_VERSION " (" SEQD_REVISION ")";
}
