/* files.h: `seqrank --files [ROOT ...] [--writable=ROOT ...] --file=FIELD:FORMAT:PATH ...` checks
 * that each path has a file beneath the roots.
 *
 * It searches for files as a preparation does, so PATH may be a file or a pattern. If FORMAT is
 * RANK_WRITABLE, PATH is a directory beneath a writable root, in which files can be made. If each
 * path has a file, the program prints no text and exits with 0. Otherwise it prints the FIELD
 * of the first path that has no file, writes a sentence "FIELD: ..." about that path to
 * stderr, and exits with RANK_EXIT_REFUSED. It exits with 1 if the program itself fails, and
 * with 2 for wrong arguments. tested: tests/engine/test_rank.c */
#ifndef SEQD_RANK_FILES_H
#define SEQD_RANK_FILES_H

int files_main(const char *const *argv, int n);

#endif
