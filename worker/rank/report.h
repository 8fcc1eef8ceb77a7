/* report.h: `seqrank --check` describes a model directory and lists all its faults.
 *   seqrank --check DIR [ROOT ...]
 *
 * It prints one JSON object on one line. A symbolic link in DIR is followed only if its target is
 * beneath that ROOT which contains DIR.
 *
 *   path, model_type
 *   family           null if seqd does not support the model
 *   parameters       null if the count is not known
 *   weights_bytes
 *   weights_fault    reason why weights_bytes does not count all files; null if it does
 *   blocks_bytes     {int8, int4}: bytes with this model.weights; null if it is refused
 *   dtypes
 *   tokenizer        {kind: "own" | "byte" | "none", size, loads, fault}; fault is the reason why
 *                    not even the kind is known, or null
 *   chat_template    {there, loads}
 *   generation_ends  [ids]; null if they are not known
 *   loads            true if config.json and the weights have no fault
 *   faults           [sentences]: the first faults
 *   n_faults         number of all faults
 *
 * The exit status is 0 if there is no fault. It is 1 if there is a fault or the report cannot be
 * written, and 2 for wrong arguments. */
#ifndef SEQD_RANK_REPORT_H
#define SEQD_RANK_REPORT_H

#include <stddef.h>
#include <stdint.h>

#define REPORT_SIZE 65536 /* bytes of a report with all faults */

/* Inspects dir, and writes a report. The report states the parameter `path` as the path of the
 * directory, and lists at most max_faults of the directory's faults. Returns the length, or -1
 * if the report does not fit. *n_faults gets the number of all faults. */
int64_t report_write(const char *dir, const char *path, int max_faults, char *out, size_t size,
                     int *n_faults);
/* Writes the report of a directory that could not be inspected. */
void report_failed(const char *path, const char *why, char *out, size_t size);
int report_main(const char *dir, const char *const *roots, int n_roots);

#endif
