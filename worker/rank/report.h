/* report.h: `seqrank --check` describes a model directory and lists all its faults. seqrank
 *   --check DIR [ROOT ...]
 *
 * Prints one JSON object on one line. Links of DIR stay beneath the ROOT it lies in.
 *
 *   path, model_type, family (null: not one of ours), parameters (null: not known), weights_bytes,
 *   weights_fault (why weights_bytes lacks files; null: it lacks none),
 *   blocks_bytes {int8, int4: bytes by model.weights, null: refused},
 *   dtypes; tokenizer {kind: "own" | "byte" | "none", size, loads, fault (why not even its
 *   kind is known, or null)}; chat_template {there, loads};
 *   generation_ends [ids] (null: not known); loads: its config.json and its weights have no fault;
 *   faults [sentences, the first ones]; n_faults: all of them
 *
 * The exit status is 0 without a fault, 1 with a fault or if the report cannot be written, and 2
 * for wrong arguments. */
#ifndef SEQD_RANK_REPORT_H
#define SEQD_RANK_REPORT_H

#include <stddef.h>
#include <stdint.h>

#define REPORT_SIZE 65536 /* bytes of a report with all faults */

/* Inspects dir, which the report names as path, and writes at most max_faults of its faults.
 * Returns the length, or -1 if the report does not fit. *n_faults gets the number of all
 * faults. */
int64_t report_write(const char *dir, const char *path, int max_faults, char *out, size_t size,
                     int *n_faults);
/* Writes the report of a directory that could not be inspected. */
void report_failed(const char *path, const char *why, char *out, size_t size);
int report_main(const char *dir, const char *const *roots, int n_roots);

#endif
