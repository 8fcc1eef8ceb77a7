"""conditions.py: the conditions under which peers.py compares: both sides have the same cores, a
thread bound to each of them, and the same allocator; MKL takes every processor for Intel's.

MKL, which PyTorch's wheels link, asks mkl_serv_intel_cpu_true() and leaves AVX-512 unused on a
processor of another vendor. There a library that answers 1 is built and preloaded.

PEERS_ALLOCATOR   the allocator's library, or "libc"; by default tcmalloc, else jemalloc, as installed
CC                the C compiler, cc
"""
import glob
import os
import subprocess

CORES = 2
INTEL = "GenuineIntel"
MKL_SOURCE = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
ALLOCATORS = ("libtcmalloc_minimal.so", "libtcmalloc.so", "libjemalloc.so")
FOLDERS = ("/usr/lib/*-linux-gnu/", "/usr/lib64/", "/usr/lib/", "/usr/local/lib/")


def find_allocator():
    """The allocator's library; None: libc's."""
    named = os.environ.get("PEERS_ALLOCATOR")
    if named == "libc":
        return None
    if named:
        if not os.path.exists(named):
            raise SystemExit(f"peers.py: PEERS_ALLOCATOR: {named} does not exist")
        return os.path.abspath(named)
    for name in ALLOCATORS:
        for folder in FOLDERS:
            found = sorted(glob.glob(folder + name + "*"))
            if found:
                return found[0]
    return None


def find_vendor(cpuinfo):
    """The vendor_id of the first processor; None: it is not x86, and there is no MKL for it."""
    try:
        with open(cpuinfo) as f:
            for line in f:
                if line.startswith("vendor_id"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return None


def build_untied(scratch):
    """(the library that unties MKL, None), or (None, why there is none)."""
    source, library = (os.path.join(scratch, "untied" + end) for end in (".c", ".so"))
    with open(source, "w") as f:
        f.write(MKL_SOURCE)
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as e:
        return None, str(e)
    if done.returncode or not os.path.exists(library):
        return None, f"{' '.join(command)}: status {done.returncode} {' '.join(done.stdout.split())}"
    return library, None


class Conditions:
    """scratch: a folder, for as long as programs are run."""

    def __init__(self, scratch, cpuinfo):
        self.cores = sorted(os.sched_getaffinity(0))[:CORES]
        self.allocator, self.vendor = find_allocator(), find_vendor(cpuinfo)
        self.untied = self.why_tied = None
        if self.vendor not in (None, INTEL):
            self.untied, self.why_tied = build_untied(scratch)

    def confine(self):
        """Binds this process, and so every program that it starts, to the cores."""
        os.sched_setaffinity(0, self.cores)

    def environment(self):
        """The variables of a program of either side: its threads, each bound to a core, and the
        libraries that are loaded before its own."""
        cores, n = " ".join(map(str, self.cores)), str(CORES)
        env = {"OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, "GOMP_CPU_AFFINITY": cores,
               "BENCH_THREADS": n, "BENCH_CORES": cores}
        preload = [self.untied, self.allocator, os.environ.get("LD_PRELOAD")]
        if any(preload):
            env["LD_PRELOAD"] = ":".join(filter(None, preload))
        return env

    def facts(self):
        """The conditions that a kept result is of."""
        return {"threads": CORES, "cores": self.cores, "allocator": self.allocator or "libc",
                "untied": bool(self.untied), "vendor": self.vendor}

    def lines(self):
        """The same, for people."""
        yield f"both sides: {CORES} threads, bound to cores {' '.join(map(str, self.cores))}"
        none = "" if os.environ.get("PEERS_ALLOCATOR") else "; tcmalloc, jemalloc: not installed"
        yield f"both sides: allocator {self.allocator or 'of libc' + none}"
        if self.untied:
            yield (f"MKL of peers: untied; a preloaded library answers that this processor "
                   f"({self.vendor}) is Intel's")
        elif self.why_tied:
            yield (f"MKL of peers: TIED, so that ratios are too good; the library that unties it "
                   f"on this processor ({self.vendor}) cannot be built: {self.why_tied}")
        else:
            yield f"MKL of peers: as it is, on this processor ({self.vendor or 'not x86'})"
