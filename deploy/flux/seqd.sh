#!/bin/sh
# Runs one job of seqd in one job of Flux, with a process on each node. No cluster has run this script.
#   (umask 077; head -c 32 /dev/urandom >key)
#   flux batch -N2 --exclusive deploy/flux/seqd.sh spec.json key
# Both files lie on a disk that all nodes share, as does the state, which must keep locks of files.
set -eu
spec=$1 key=$2
host=$(flux hostlist --nth=0 local)
state=$PWD/seqd-$FLUX_ENCLOSING_ID.state
flux run -N"$(flux resource list -n -o '{nnodes}' -s up)" --tasks-per-node=1 --exclusive \
    sh -c 'exec seqd run "$0" --auto=flux --master "$1" --join-key "$2" --state "$3" --output "$3.results"' \
    "$spec" "$host" "$key" "$state"
