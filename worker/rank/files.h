/* files.h: `seqrank --files [ROOT ...] --file=FIELD:FORMAT:PATH ...`: checks that each path has a
 * file beneath the roots.
 *
 * It looks as a preparation does: PATH is a file or a pattern. If each path has a file, it prints
 * no text and exits with 0. Else it writes the sentence "FIELD: ..." of the first path without one
 * to stderr, prints FIELD, and exits with RANK_EXIT_REFUSED. It exits with 1 after a fault of its
 * own, with 2 for wrong arguments.
 * tested: tests/engine/test_rank.c */
#ifndef SEQD_RANK_FILES_H
#define SEQD_RANK_FILES_H

int files_main(const char *const *argv, int n);

#endif
