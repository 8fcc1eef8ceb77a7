/* assert.h: assert(condition), which is compiled in always and stops a wrong program; and
 * static_assert.
 *
 * The C library's macro contains its line number: a comment above it would change the program, and
 * with it the key of every kept test result (tests/kept.sh). This macro names the file and the
 * condition alone. check_layers.sh refuses <assert.h>. */
#ifndef SEQD_ASSERT_H
#define SEQD_ASSERT_H

#include <stdio.h>
#include <stdlib.h>

/* Ends the program with SIGABRT, after one line on stderr. */
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
