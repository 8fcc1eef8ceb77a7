/* convert.h: makes data of this machine readable by jobs before they are pushed. A Parquet file
 * becomes JSONL, and a compressed file is unpacked. A helper in Python (convert.py) reads the
 * files; this code opens them, bounds the helper's output, and stores it. All results lie in one
 * file of the temporary directory. That file has no name, so nothing of it is left when the process
 * ends, even by SIGKILL. tested: tests/client/test_client_convert.c, tests/scripts/convert.sh */
#ifndef SEQD_CLIENT_CONVERT_H
#define SEQD_CLIENT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/file.h"
#include "api/core/sha256.h"
#include "client/cli.h"

/* A result has at most CONVERT_GROWTH times the bytes of its file, or CONVERT_LEAST bytes if that
 * is more. The disk keeps CONVERT_SPARE free bytes. */
#define CONVERT_GROWTH 100
#define CONVERT_LEAST  ((int64_t)64 << 20)
#define CONVERT_SPARE  ((int64_t)256 << 20)

/* Tells whether a file is converted. Its suffix decides: .parquet, .gz, .zst or .zstd. */
bool convert_takes(const char *path);
bool convert_is_parquet(const char *path);
/* Writes the name of the result: a.parquet and a.json.gz become a.jsonl, and a.txt.gz becomes
 * a.txt. Fails with ERR_INVALID if the compressed file is a container, such as a.tar.gz, and with
 * ERR_TOO_LARGE if the name does not fit. `path` must be a file that is converted. */
int convert_name(const char *path, char out[FILE_PATH_SIZE], struct err *e);

struct converted {
    int64_t at, size; /* the range of the result in convert_fd */
    int64_t rows;     /* lines of JSONL; -1 for other formats */
    char sha256[SHA256_HEX];
};

struct convert;
/* Makes the file for results of `n` files, which together have `size` bytes. `columns` are the
 * columns of Parquet files to keep; if there are none, all are kept. `columns` must outlive the
 * object. If the disk does not have the room, prints a message and returns NULL. */
struct convert *convert_create(const struct cli *c, const struct cli_list *columns, int n,
                               int64_t size);
void convert_destroy(struct convert *v);
int convert_fd(const struct convert *v);
/* Converts the file `path` to a result that will be named `name`. Shows progress on a terminal.
 * Returns CLI_OK, or prints a message and returns CLI_ERROR; in that case nothing is added to
 * convert_fd's results. */
int convert_add(struct convert *v, const char *path, const char *name, struct converted *out);

#endif
