/* files.h: `seqrank --files [ROOT ...] --file=FIELD:FORMAT:PATH ...`: has each path a file beneath
 * the roots?
 *
 * As a preparation finds them: PATH is a file or a pattern. Prints nothing and exits with 0 when
 * all have; else prints the sentence "FIELD: ..." of the first that has none, and exits with
 * RANK_EXIT_REFUSED; 2 for wrong arguments. tested: tests/engine/test_rank.c */
#ifndef SEQD_RANK_FILES_H
#define SEQD_RANK_FILES_H

int files_main(const char *const *argv, int n);

#endif
