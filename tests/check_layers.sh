#!/usr/bin/env bash
# Who may include whom. Reads every #include of the tree and fails on one that the layers forbid, on
# an include cycle between headers, and on a third-party header outside its one file.
# One row a rule: directory prefix, then the prefixes it may include (itself is always allowed).
set -u
cd "$(dirname "$0")/.."
rules='
api/core        :
api             : api/core
kernels         : api/core
worker/family   : api/core
worker/plan     : api/core worker/family
worker/comm     : api/core worker/family worker/plan kernels
worker/sp       : api/core worker/family worker/plan kernels worker/comm
worker/model    : api/core worker/family worker/plan kernels worker/comm worker/sp
worker/data     : api/core worker/family worker/plan kernels worker/comm worker/sp worker/model
worker/train    : api/core worker/family worker/plan kernels worker/comm worker/sp worker/model worker/data
worker/rank     : api/core worker/family worker/plan kernels worker/comm worker/sp worker/model worker/data worker/train
worker/gang     : api/core
worker/agent    : api/core api
daemon          : api/core api worker/family worker/plan
client          : api/core
'
# header pattern : the only files that may include it
alone='
microhttpd.h      : daemon/http.c
sqlite3.h         : daemon/store.c daemon/store_check.c
jansson.h         : daemon/json.c client/json.c
grpc/             : api/rpc.c
protobuf-c/       : api/wire_part.h
cluster.pb-c.h    : api/wire_part.h
wire_part.h       : api/wire.c api/wire_gpu.c api/wire_spec.c
curl/             : client/http.c
nccl.h            : worker/comm/nccl.c
openssl/          : worker/comm/tls.c
'
bad=0
say() { echo "check-layers: $*"; bad=1; }

files=$(find api daemon worker kernels client -name '*.[ch]' | sort)
layer_of() { # longest prefix among the rules
    local f=$1 d; d=$(dirname "$f")
    while [ "$d" != . ]; do
        if printf '%s\n' "$rules" | grep -qE "^$d +:"; then echo "$d"; return; fi
        d=$(dirname "$d")
    done
}
edges=$(mktemp); trap 'rm -f "$edges"' EXIT
for f in $files; do
    from=$(layer_of "$f")
    [ -n "$from" ] || { say "$f belongs to no layer"; continue; }
    allowed=" $from $(printf '%s\n' "$rules" | sed -nE "s#^$from +: *##p") "
    while read -r h; do
        [ -f "$h" ] || [ "$h" = api/cluster.pb-c.h ] || case $h in schema_sql.h | openapi_yaml.h) continue ;;
            *) say "$f includes \"$h\", which does not exist (write paths from the root)"; continue ;; esac
        [ -f "$h" ] || continue
        to=$(layer_of "$h")
        case $allowed in *" $to "*) ;; *) say "$f ($from) may not include $h ($to)" ;; esac
        echo "$f $h" >>"$edges"
    done < <(sed -nE 's/^ *# *include *"([^"]+)".*/\1/p' "$f")
    while read -r h; do
        while IFS=: read -r pat owners; do
            pat=$(echo $pat); [ -n "$pat" ] || continue
            case $h in "$pat"* | */"$pat"*)
                case " $(echo $owners) " in *" $f "*) ;; *) say "$f may not include <$h>: only $(echo $owners)" ;; esac ;;
            esac
        done < <(printf '%s\n' "$alone")
    done < <(sed -nE 's/^ *# *include *[<"]([^>"]+)[>"].*/\1/p' "$f")
done
# Cycles: a topological sort of the header graph must succeed (tsort names the loop).
if ! grep -E '\.h [^ ]+\.h$' "$edges" | awk '$1 != $2' | tsort >/dev/null 2>"$edges.loop"; then
    say "include cycle: $(tr '\n' ' ' <"$edges.loop")"
fi
rm -f "$edges.loop"
# A cycle between directories that the rules allow would be a fault in the rules themselves.
if ! printf '%s\n' "$rules" | awk -F: 'NF==2 {gsub(/ /,"",$1); n=split($2,a," "); for(i=1;i<=n;i++) print $1, a[i]}' |
    tsort >/dev/null 2>&1; then say "the layer rules themselves have a cycle"; fi
if grep -rnE 'HAVE_(CUDA|NCCL)' --include='*.[ch]' api daemon worker client kernels | grep -vE '^(kernels/backend\.c|worker/comm/comm\.c):'; then
    say "device #ifdef outside the two tables"
fi
exit $bad
