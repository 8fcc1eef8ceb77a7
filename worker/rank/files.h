/* files.h: `seqrank --files [ROOT ...] --file=FIELD:FORMAT:PATH ...` checks that each path has a
 * file beneath the roots.
 *
 * It searches for files as a preparation does, so PATH may be a file or a pattern. If there is a
 * file for each path, it prints no text and exits with 0. Otherwise it prints FIELD of the first
 * path that has no file, writes the sentence "FIELD: ..." about this path to stderr, and exits
 * with RANK_EXIT_REFUSED. It exits with 1 after an error of its own, and with 2 for wrong
 * arguments.
 * tested: tests/engine/test_rank.c */
#ifndef SEQD_RANK_FILES_H
#define SEQD_RANK_FILES_H

int files_main(const char *const *argv, int n);

#endif
