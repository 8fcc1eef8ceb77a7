#!/usr/bin/env python3
"""What the compiler makes of the hot loops of kernels/cuda, compared with tests/sass.txt. Compiled, not run.

usage: tests/sass.py PLUGIN NVCC [--write]

A row is a kernel of PLUGIN (libkernels_cuda.so) that HOT names, on one architecture:

  regs    registers of a thread
  stack   bytes of local memory of a thread
  local   loads and stores of it in the whole kernel: spilled registers, arrays
  loop    instructions of the hot loop: the one with the most products, or accesses to global memory where
          there are none; the smallest that has as many. All of the kernel where there is no loop
  inner   loops within it, each of which counts once
  prod    products in it: HGMMA, HMMA, or FFMA
  mem     accesses to global memory in it: LDG, STG, LDGSTS, UTMALDG

A row fails when its loop differs from the table by more than a tenth of its instructions, its registers by
more than 8, or anything else at all. Less fails as well as more: a table that is out of date would hide the
next regression. After an intended change --write makes the table again, and the commit shows it. Another
nvcc makes other code: the table is compared only with code of the version that it names.

The machine code is read here, because cuobjdump is not part of every installation: ELF files lie in the
plugin's fat binaries, as they are or compressed, instructions of 8.0 to 10.0 have 16 bytes, whose first 9 bits say what they are."""
import collections
import ctypes
import re
import struct
import subprocess
import sys

TABLE = "tests/sass.txt"
COLUMNS = ["regs", "stack", "local", "loop", "inner", "prod", "mem"]
LOOP_MARGIN, REGS_MARGIN = 0.1, 8

HOT = re.compile(
    r"gemm_|angle_kernel|attn_(fwd|dkv|dq)_|hopper_|walk_kernel|apply_kernel|norm_|xent_|rope_|sum_pieces|"
    r"each_kernel<8,"
)
HMMA, HGMMA, FFMA, BRA = 0x03C, 0x1F0, 0x023, 0x147
GLOBAL = {0x181, 0x186, 0x1AE, 0x1B4}  # LDG, STG, LDGSTS, UTMALDG
LOCAL = {0x183, 0x187}  # LDL, STL
FATBIN, CUBIN, ZSTD = b"\x50\xed\x55\xba", 2, 0x8000  # a fat binary: magic, kind of an entry, flag
REGCOUNT, FRAME_SIZE = 0x2F, 0x11  # of .nv.info


def unpacked(packed, size):
    """Decompresses an ELF file: nvcc packs large ones with zstd, which Python cannot read before 3.14."""
    try:
        zstd = ctypes.CDLL("libzstd.so.1")
    except OSError:
        print("left out: machine code is compressed, and libzstd.so.1 is not here")
        sys.exit(0)
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    zstd.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(size)
    if zstd.ZSTD_decompress(out, size, packed, len(packed)) != size:
        sys.exit("sass: compressed machine code cannot be read: " + str(len(packed)) + " bytes")
    return out.raw


def cubins(data):
    """Yields (architecture, ELF file) of each source for each architecture."""
    at = data.find(FATBIN)
    while at >= 0:
        head, size = struct.unpack_from("<HQ", data, at + 6)
        entry, end = at + head, at + head + size
        while entry < end:
            kind, _, head, size, packed = struct.unpack_from("<HHIQI", data, entry)
            arch, = struct.unpack_from("<I", data, entry + 28)
            flags, = struct.unpack_from("<Q", data, entry + 40)
            whole, = struct.unpack_from("<Q", data, entry + 56)
            elf = data[entry + head : entry + head + size]
            if kind == CUBIN:
                yield arch, unpacked(elf[:packed], whole) if flags & ZSTD else elf
            entry += head + size
        at = data.find(FATBIN, end)


def sections(elf):
    """Yields name, contents and number of each section."""
    shoff, = struct.unpack_from("<Q", elf, 40)
    n, names = struct.unpack_from("<HH", elf, 60)
    heads = [struct.unpack_from("<IIQQQQ", elf, shoff + 64 * i) for i in range(n)]
    for i, (name, kind, _, _, offset, size) in enumerate(heads):
        at = heads[names][4] + name
        yield elf[at:elf.index(b"\0", at)].decode(), elf[offset:offset + size], i


def attributes(info, which):
    """Returns {symbol: value} of the attribute `which`, which a kernel has once."""
    at, out = 0, {}
    while at < len(info):
        form, attr, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != 4:
            continue  # the value is in the head of the attribute
        if attr == which:
            symbol, value = struct.unpack_from("<II", info, at)
            out[symbol] = value
        at += size
    return out


def target(arch, at, low, high):
    """Returns where the branch at byte `at` goes. Its offset counts words of 4 bytes from the next
    instruction. It has 48 bits on architectures 8.x; later ones have 8 more, which are the lowest."""
    words, bits = low >> 34 | (high & 0x3FFFF) << 30, 48
    if arch >= 90:
        words, bits = words << 8 | (low >> 16 & 0xFF), 56
    if words >> (bits - 1):
        words -= 1 << bits
    return at + 16 + 4 * words


def measure(arch, code):
    """Returns [local, loop, inner, prod, mem] of a kernel."""
    ops, loops = [], []
    for at in range(0, len(code), 16):
        low, high = struct.unpack_from("<QQ", code, at)
        ops.append(low & 0x1FF)
        if ops[-1] == BRA and 0 <= target(arch, at, low, high) < at:
            loops.append((target(arch, at, low, high) // 16, at // 16 + 1))
    matrix = HGMMA if HGMMA in ops else HMMA if HMMA in ops else FFMA

    def count(span):
        n = collections.Counter(ops[span[0]:span[1]])
        return n[matrix], sum(n[x] for x in GLOBAL)

    def rank(span):
        products, memory = count(span)
        return products, memory if not products else 0, span[0] - span[1]

    hot = max(loops, key=rank, default=(0, len(ops)))
    inner = sum(1 for x in loops if x != hot and hot[0] <= x[0] and x[1] <= hot[1])
    return [sum(1 for x in ops if x in LOCAL), hot[1] - hot[0], inner, *count(hot)]


def kernels(path):
    """Returns {(architecture, kernel): row} of a plugin."""
    rows = {}
    with open(path, "rb") as f:
        data = f.read()
    for arch, elf in cubins(data):
        parts = {name: (contents, i) for name, contents, i in sections(elf)}
        if ".nv.info" not in parts:
            continue  # no kernel in it
        info, symbols = parts[".nv.info"][0], parts[".symtab"][0]
        regs, frames = attributes(info, REGCOUNT), attributes(info, FRAME_SIZE)
        at_section = {struct.unpack_from("<H", symbols, 24 * i + 6)[0]: i for i in regs}
        for name, (code, i) in parts.items():
            if not name.startswith(".text.") or len(code) <= 256:
                continue  # an empty body: the kernel is not made for this architecture
            symbol = at_section[i]
            row = [regs[symbol], frames.get(symbol, 0), *measure(arch, code)]
            rows[arch, name[len(".text."):]] = row
    return named(rows)


def named(rows):
    """Returns the rows of hot kernels, with readable names as keys."""
    text = "\n".join(name for _, name in rows)
    out = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout
    hot = {}
    for (arch, _), name, row in zip(rows, out.split("\n"), rows.values()):
        name = re.sub(r"^void |\(.*|[ ]", "", name).replace("false", "0").replace("true", "1")
        if HOT.match(name):
            hot[arch, name] = row
    return hot


def version(nvcc):
    out = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V[0-9.]+", out).group()


def read():
    rows, made_by = {}, ""
    with open(TABLE, encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if line.startswith("# nvcc "):
                made_by = words[2]
            elif words and not line.startswith("#"):
                rows[int(words[0]), words[1]] = [int(x) for x in words[2:]]
    return rows, made_by


def write(rows, nvcc):
    with open(TABLE, "w", encoding="utf-8") as f:
        f.write("# What tests/sass.py says of make cuda; compiled, not run. Made by --write.\n")
        f.write(f"# nvcc {version(nvcc)}\n#\n")
        f.write("# arch kernel".ljust(58) + " ".join(f"{x:>6}" for x in COLUMNS) + "\n")
        for (arch, name), row in sorted(rows.items()):
            f.write(f"{arch:<6} {name}".ljust(58) + " ".join(f"{x:>6}" for x in row) + "\n")


def differs(column, now, was):
    """Returns how a value differs from the table's, in words; None where it does not."""
    margin = {"loop": was * LOOP_MARGIN, "regs": REGS_MARGIN}.get(column, 0)
    if abs(now - was) <= margin:
        return None
    better = now > was if column == "prod" else now < was
    return f"{column} {now}, {'better than' if better else 'was'} {was}"


def main():
    args = [x for x in sys.argv[1:] if x != "--write"]
    if len(args) != 2:
        sys.exit("usage: tests/sass.py PLUGIN NVCC [--write]")
    rows = kernels(args[0])
    if not rows:
        sys.exit(f"{args[0]}: no kernel found: its code is compressed, or it is not a plugin of CUDA")
    if "--write" in sys.argv:
        write(rows, args[1])
        return
    table, made_by = read()
    if version(args[1]) != made_by:
        print(f"left out: {TABLE} is of nvcc {made_by}, this is {version(args[1])}")
        return
    known, built = {arch for arch, _ in table}, {arch for arch, _ in rows}
    for arch in sorted(built - known):
        print(f"left out: {TABLE} has no rows of compute capability {arch / 10}")
    bad = [f"{arch} {name}: not in the table"
           for arch, name in rows.keys() - table.keys() if arch in known]
    bad += [f"{arch} {name}: not in the plugin"
            for arch, name in table.keys() - rows.keys() if arch in built]
    for key in sorted(rows.keys() & table.keys()):
        said = [differs(*x) for x in zip(COLUMNS, rows[key], table[key])]
        if any(said):
            bad.append(f"{key[0]} {key[1]}: " + "; ".join(x for x in said if x))
    print("\n".join(sorted(bad)))
    if bad:
        sys.exit(f"{len(bad)} kernels differ from {TABLE}; if they are meant to: tests/sass.py PLUGIN NVCC --write")


main()
