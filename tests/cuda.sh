#!/usr/bin/env bash
# tests/cuda.digest is of the CUDA kernels as they were last compiled for every architecture.
#   tests/cuda.sh [JOBS]    reports that nothing has changed since, or compiles them for one
#                           architecture: 9.0a for Hopper's files, 8.0 for the others
#   tests/cuda.sh --write   after make cuda: writes the digest. Fails when it changes: commit it
set -u
cd "$(dirname "$0")/.."
# Every file of ours that nvcc reads, and how it is called.
digest() {
    {
        ${CXX:-c++} -MM -MG -std=c++17 -I. -x c++ kernels/cuda/*.cu | tr -s ' \\' '\n\n' | grep -E '^(kernels|api)/' |
            LC_ALL=C sort -u | xargs sha256sum
        make -s print-nvccflags
    } | sha256sum | cut -d ' ' -f 1
}
kept=$(cat tests/cuda.digest 2>/dev/null)
now=$(digest)
if [ "${1:-}" = --write ]; then
    [ "$now" = "$kept" ] && exit 0
    echo "$now" >tests/cuda.digest
    echo "kernels/cuda has changed since tests/cuda.digest: it is written again, commit it"
    exit 1
elif [ "$now" = "$kept" ]; then
    echo "kernels/cuda is as make check-all last compiled it"
else
    make -s -j"${1:-$(nproc)}" B=build/sm80 CUDA_ARCHS=80 CUDA_PTX= cuda
fi
