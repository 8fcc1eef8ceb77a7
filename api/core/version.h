/* version.h: the version of all five programs. It is repeated only in the newest entry of
 * .github/CHANGELOG.md and in the image tags in deploy/. tests/scripts/version.sh compares
 * them. */
#ifndef SEQD_CORE_VERSION_H
#define SEQD_CORE_VERSION_H

#include <stdbool.h>
#include <stdint.h>

#define SEQD_VERSION "0.3.0"

/* Returns the git revision from which the program was compiled, or "unknown" if it was compiled
 * outside of a clone. */
const char *version_revision(void);
const char *version_text(void); /* version and revision: "0.3.0 (4bc71f3)" */

#define VERSION_BUILD_SIZE 24
/* Copies the build id, a digest of the whole program that the linker has written into it. Unused
 * bytes are zero. Returns false if the program has none. */
bool version_build(uint8_t out[VERSION_BUILD_SIZE]);

#endif
