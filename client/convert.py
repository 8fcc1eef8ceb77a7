"""convert.py: reads a file of data from stdin and writes it to stdout as jobs read it.

seqctl push --convert runs this text as `python3 -I -c TEXT HOW WHAT [COLUMN ...]`. HOW is gz, zst or
parquet. WHAT is json if the unpacked file is JSON, which becomes a record a line, and bytes if it stays
as it is. If columns are given, other columns of a Parquet file are left out. seqctl bounds the output,
and gives the file no other name than stdin. The exit status is 0 if all of the file was written.
Otherwise stderr has the rest of a sentence that begins with the file's name.
"""
import codecs
import json
import os
import re
import shlex
import sys

PIECE = 1 << 20  # bytes that are read at a time
FRAME_PIECE = 1 << 10  # of Zstandard, which may make 32 MiB of them
BATCH = 64  # rows of a Parquet file that are in memory at a time
RECORD_MAX = 64 << 20  # characters of an element of a JSON array
MEMORY_MAX = 4 << 30  # bytes of memory
SHOWN = 8  # columns that a sentence names


class Refused(Exception):
    """The rest of a sentence that begins with the file's name."""


def pieces_of(f, size=PIECE):
    while True:
        piece = f.read(size)
        if not piece:
            return
        yield piece


# ---- compressed files -----------------------------------------------------------------------------


def unpack_gz():
    import gzip
    import zlib

    try:
        with gzip.open(sys.stdin.buffer) as f:
            yield from pieces_of(f)
    except (OSError, EOFError, zlib.error) as e:
        raise Refused("is no whole gzip file: %s" % e)


def unpack_zst():
    import shutil

    if shutil.which("zstd"):
        return unpack_by_program()
    try:
        import zstandard

        return unpack_by_zstandard(zstandard)
    except ImportError:
        pass
    try:
        import pyarrow

        return unpack_by_pyarrow(pyarrow)
    except ImportError:
        raise Refused("needs zstd, zstandard or pyarrow, and python3 finds none of them: apt install zstd")


def unpack_by_program():
    import subprocess

    command = ["zstd", "-d", "-c", "-q", "--long=31"]
    with subprocess.Popen(command, stdin=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        yield from pieces_of(p.stdout)
        fault = p.stderr.read(200).decode("utf-8", "replace").strip()
        if p.wait():
            raise Refused("is no whole Zstandard file: %s" % (fault.splitlines() or ["zstd failed"])[0])


def unpack_by_zstandard(zstandard):
    frame = None
    try:
        for piece in pieces_of(sys.stdin.buffer, FRAME_PIECE):
            while piece:
                if frame is None:
                    frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
                out = frame.decompress(piece)
                piece = b""
                if frame.eof:
                    piece, frame = frame.unused_data, None
                if out:
                    yield out
    except zstandard.ZstdError as e:
        raise Refused("is no whole Zstandard file: %s" % e)
    if frame is not None:
        raise Refused("is no whole Zstandard file: it ends within a frame")


def unpack_by_pyarrow(pyarrow):
    try:
        f = pyarrow.CompressedInputStream(pyarrow.PythonFile(sys.stdin.buffer), "zstd")
        yield from pieces_of(f)
    except (OSError, pyarrow.ArrowException) as e:
        raise Refused("is no whole Zstandard file: %s" % e)


# ---- JSON -----------------------------------------------------------------------------------------


def gathered(pieces):
    """Joins small pieces, because each is followed by another look at all that is not yet used."""
    room = bytearray()
    for piece in pieces:
        room += piece
        if len(room) >= PIECE:
            yield bytes(room)
            room.clear()
    if room:
        yield bytes(room)


def json_lines(pieces):
    """Yields lines as they are, and each element of an array as a line."""
    head = next(pieces, b"")
    head = (head[3:] if head.startswith(b"\xef\xbb\xbf") else head).lstrip()
    while not head:
        head = next(pieces, None)
        if head is None:
            raise Refused("has no record")
        head = head.lstrip()
    return array_lines(head, pieces) if head[:1] == b"[" else same_lines(head, pieces)


def same_lines(head, pieces):
    first = bytearray(head)
    while b"\n" not in head and len(first) < RECORD_MAX:
        head = next(pieces, b"")
        if not head:
            break
        first += head
    try:
        found = isinstance(json.loads(bytes(first).split(b"\n", 1)[0]), dict)
    except ValueError:
        found = False
    if not found:
        raise Refused(
            "has no record in its first line: want an object on every line or an array of objects; one document "
            "is unpacked by hand, then jq -c '.MEMBER[]' makes lines of a member"
        )
    yield bytes(first)
    yield from pieces


SPACE = re.compile(r"[ \t\r\n]*")


def array_lines(head, pieces):
    decoder = json.JSONDecoder()
    utf8 = codecs.getincrementaldecoder("utf-8")()
    text, at, n, want = utf8.decode(head), 1, 0, "{]"
    while True:
        at = SPACE.match(text, at).end()
        c = text[at : at + 1]
        if c and c not in want:
            raise Refused("has %r where element %d of its array begins or ends: want objects alone" % (c, n))
        if c == "]":
            if text[at + 1 :].strip() or any(piece.strip() for piece in pieces):
                raise Refused("has text after its array")
            return
        end = object_end(decoder, text, at) if c == "{" else 0
        if end:
            # A line feed of valid JSON stands between tokens.
            yield text[at:end].replace("\n", " ").replace("\r", " ").encode() + b"\n"
            at, n, want = end, n + 1, ",]"
        elif c == ",":
            at, want = at + 1, "{"
        else:
            more = next(pieces, None)
            if more is None or len(text) - at > RECORD_MAX:
                raise Refused("has an array whose element %d is not whole within %d MiB" % (n, RECORD_MAX >> 20))
            text, at = text[at:] + utf8.decode(more), 0


def object_end(decoder, text, at):
    """Returns the position after the object that begins at `at`, or 0 if it is not whole."""
    try:
        return decoder.raw_decode(text, at)[1]
    except ValueError:
        return 0


# ---- Parquet --------------------------------------------------------------------------------------


def fault_of(types, t, name):
    """Returns the name and the type of the first value that JSON does not have, or None."""
    if types.is_dictionary(t):
        return fault_of(types, t.value_type, name)
    if types.is_list(t) or types.is_large_list(t) or types.is_fixed_size_list(t):
        return fault_of(types, t.value_type, name + "[]")
    if types.is_struct(t):
        for i in range(t.num_fields):
            found = fault_of(types, t.field(i).type, name + "." + t.field(i).name)
            if found:
                return found
        return None
    plain = ("is_string", "is_large_string", "is_boolean", "is_integer", "is_floating", "is_null")
    if any(getattr(types, test)(t) for test in plain):
        return None
    return name, str(t)


def chosen_of(types, schema, wanted):
    """Returns the names of the columns to read; None means all of them."""
    names = list(schema.names)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise Refused('has no column "%s": it has %s' % (missing[0], ", ".join(names[:SHOWN])))
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise Refused('has several columns "%s": rename one of them' % twice[0])
    faults = {name: fault_of(types, schema.field(name).type, name) for name in names}
    good = [name for name in names if not faults[name]]
    for name in wanted or names:
        if faults[name]:
            fix = " ".join("--column " + shlex.quote(name) for name in good[:SHOWN])
            raise Refused(
                'has %s of type %s in column "%s", which JSON does not have: %s'
                % (*faults[name], name, "take others, by " + fix if fix else "convert the file yourself")
            )
    return wanted or None


def without_nulls(value):
    """A null stands for an absent member: Parquet gives every row all members of all rows."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


def line_of(row):
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=float).encode() + b"\n"
    except TypeError:
        for name, value in row.items():
            json.dumps(value, default=lambda inner: number_of(name, inner))
        raise


def number_of(name, value):
    """Turns a number of a type that json does not know, such as that of 16 bits, into one that it does."""
    try:
        return float(value)
    except TypeError:
        raise Refused('has a %s in column "%s", which JSON does not have' % (type(value).__name__, name))


def parquet_lines(columns):
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Refused(
            "needs pyarrow, which python3 does not have: python3 -m venv ~/arrow && ~/arrow/bin/pip install pyarrow, "
            "then run this again with PATH=~/arrow/bin:$PATH"
        )
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    n = 0
    try:
        f = pyarrow.parquet.ParquetFile(pyarrow.PythonFile(sys.stdin.buffer))
        names = chosen_of(pyarrow.types, f.schema_arrow, columns)
        for batch in f.iter_batches(batch_size=BATCH, columns=names, use_threads=False):
            for row in batch.to_pylist():
                # pyarrow reads a column "user.at", too, where "user" is chosen.
                row = {name: value for name, value in row.items() if names is None or name in names}
                yield line_of(without_nulls(row))
                n += 1
    except MemoryError:  # pyarrow's is an ArrowException, too
        raise MemoryError
    except UnicodeError:
        raise Refused("has text that is not UTF-8 in row %d or after it" % n)
    except (OSError, ValueError, pyarrow.ArrowException) as e:
        raise Refused("cannot be read past row %d: %s" % (n, (str(e).splitlines() or ["?"])[0]))


# ---- the program ----------------------------------------------------------------------------------


def write_all(how, what, columns):
    if how == "parquet":
        pieces = parquet_lines(columns)
    else:
        pieces = unpack_gz() if how == "gz" else unpack_zst()
        if what == "json":
            pieces = json_lines(gathered(pieces))
    size = 0
    for piece in pieces:
        size += sys.stdout.buffer.write(piece)
    if how != "parquet" and not size:
        raise Refused("has no record")
    sys.stdout.buffer.flush()


def main():
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
    except (ImportError, ValueError, OSError):
        pass  # a lower limit holds
    try:
        write_all(sys.argv[1], sys.argv[2], sys.argv[3:])
        return 0
    except Refused as e:
        fault = str(e)
    except UnicodeError:
        fault = "has bytes that are not UTF-8"
    except BrokenPipeError:
        fault = "is not read further"
    except MemoryError:
        fault = "needs more than %d GiB of memory: divide it into smaller files" % (MEMORY_MAX >> 30)
    except RecursionError:
        fault = "is nested too deeply"
    except Exception as e:
        fault = "cannot be converted: %s: %s" % (type(e).__name__, e)
    sys.stderr.write(fault)
    sys.stderr.flush()
    return 1


# Nothing is finalized: after a fault no buffered byte may follow, and threads of pyarrow that are still there can
# abort the process.
os._exit(main())
