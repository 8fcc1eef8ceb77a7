/* sandbox.h: the parts of the sandbox that seqw, seqgang and seqrank share: the words of
 * --sandbox, the paths of the system, and the sentence about parts missing in a kernel.
 * landlock.h and seccomp.h have the two mechanisms. tested: tests/core/test_sandbox.c */
#ifndef SEQD_CORE_SANDBOX_H
#define SEQD_CORE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"
#include "api/core/landlock.h"

enum sandbox_mode {
    SANDBOX_OFF,
    SANDBOX_AUTO,    /* all that this kernel has, and nothing for ranks on GPUs */
    SANDBOX_REQUIRE, /* all of it, for all ranks, or none starts */
    SANDBOX_MODE_N
};
extern const char *const sandbox_modes[]; /* the words; ends with NULL */
enum { SANDBOX_TEXT = 400 };

/* Returns the mode of a word of sandbox_modes, or -1. */
int sandbox_mode(const char *word);
/* Writes as a sentence which parts of the sandbox this kernel lacks. Returns true if it lacks
 * one. */
bool sandbox_lacks(char *out, size_t size);
/* Allows the program, the programs and libraries of the system, the folders of libraries that the
 * environment names, /proc, /sys and a few files of /etc and /dev. */
int sandbox_allow_system(const struct landlock *l, const char *program, struct err *e);
/* Allows a root, without the private directories directly in it and without `state`, the state
 * directory of seqw, wherever it lies in it. If something is left out, the other entries that
 * are there now are allowed, and names can be listed everywhere beneath the root. Allows nothing
 * of a root that is private itself. */
int sandbox_allow_root(const struct landlock *l, const char *root, const char *state,
                       enum landlock_files what, struct err *e);

struct sandbox_reader {
    const char *program, *state;
    const char *const *roots, *const *paths; /* as sandbox_allow_root allows, and wholly */
    int n_roots, n_paths;
};
/* Confines this process, a seqrank that answers a question without a gang: it reads the system's
 * paths, the roots and the other paths, writes no file, and makes no socket. Fails as landlock_open
 * does, and as err_errno does. */
int sandbox_enter_reader(const struct sandbox_reader *r, struct err *e);

#endif
