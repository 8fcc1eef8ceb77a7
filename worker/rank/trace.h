/* trace.h: `seqrank --trace` lists the parts of files from which a step of a job learnt.
 *   seqrank --trace DIR KEY=VALUE ...     DIR: a prepared directory, <prepared_dir>/<prepared_id>
 *     seq_len=N          data.seq_len, or the stage's                   required
 *     seed=N             the job's                                      default 0
 *     packing=WORD       data.packing                                   default concat
 *                        "+pairs" follows the word if the job learns preferences
 *     overlong=WORD      data.overlong                                  default auto
 *     set=train|eval     eval is in order                               default train
 *     step=N             counted from 1, as metrics count it; with
 *     global_batch=N     it means samples [(step - 1) * global_batch, step * global_batch)
 *     first=N count=N    or these samples, counted from 0               default count 1
 *     max_fragments=N    largest number of fragments listed for a sample  default 1000
 * It prints one JSON object on one line: {"prepared_id", "set", "seq_len", "first", "count",
 * "samples": [as data_trace]}. Weights of the mixture are read from DIR itself. The exit
 * status is 0 after a success, RANK_EXIT_REFUSED if the data or the samples are refused, 1 if
 * the program itself fails, and 2 for wrong arguments. With RANK_EXIT_REFUSED and 1, stderr
 * has a sentence. The program reads only DIR, and no model. */
#ifndef SEQD_RANK_TRACE_H
#define SEQD_RANK_TRACE_H

int trace_main(int argc, char **argv); /* argv[0]: DIR */

#endif
