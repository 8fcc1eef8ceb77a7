/* version.c: returns the version, with the revision that the build passes in SEQD_REVISION. */
#include "api/core/version.h"

#ifndef SEQD_REVISION
#define SEQD_REVISION "unknown"
#endif

/* The revision is in a separate section of fixed size. If two commits have the same code, their
 * builds differ only in this section (tests/kept.sh). */
#define OF_REVISION __attribute__((section(".seqd.revision"), used))
static const char revision[64] OF_REVISION = SEQD_REVISION;
static const char text[96] OF_REVISION = SEQD_VERSION " (" SEQD_REVISION ")";

const char *version_revision(void)
{
    return revision;
}

const char *version_text(void)
{
    return text;
}
