/* assert.h: the macros assert and static_assert. assert(condition) is always compiled in, and
 * stops a program that has a bug.
 *
 * The macro of the C library contains the line number of the assert, so a new comment above an
 * assert would change the compiled program. The key of every kept test result (tests/kept.sh)
 * would then change, too. This macro names only the file and the condition. check_layers.sh
 * refuses <assert.h>. */
#ifndef SEQD_ASSERT_H
#define SEQD_ASSERT_H

#include <stdio.h>
#include <stdlib.h>

/* Prints one line on stderr and ends the program with SIGABRT. */
__attribute__((noreturn, cold, noinline, unused)) static void assert_failed(const char *file,
                                                                            const char *condition)
{
    fprintf(stderr, "%s: Assertion '%s' failed.\n", file, condition);
    abort();
}

#ifndef __cplusplus
#undef static_assert
#define static_assert _Static_assert
#endif
#undef assert
#define assert(condition) ((condition) ? (void)0 : assert_failed(__FILE__, #condition))

#endif
