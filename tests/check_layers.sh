#!/usr/bin/env bash
# Checks which folders include from which. Reads every #include of the product's sources. Fails on an
# include that no rule allows, on a rule that no source uses, on a cycle of includes between headers,
# and on a library's header in a file that does not own it.
set -u
cd "${1:-$(dirname "$0")/..}" # tests/scripts/test_layers.sh gives the folder of a copy
# FOLDER or FILE : the other folders that it may include from. A file has a row where its rule is not
# that of its folder
rules='
api/core        :
api             : api/core
kernels         : api/core
worker/program  : api/core
worker/gguf     : api/core
worker/family   : api/core worker/program worker/gguf
worker/plan     : api/core worker/program worker/family
worker/comm     : api/core worker/plan kernels
worker/sp       : api/core worker/plan kernels worker/comm
worker/model    : api/core worker/program worker/plan kernels worker/comm worker/sp
worker/jinja    : api/core
worker/text     : api/core worker/gguf worker/jinja
worker/hf       : api/core worker/program worker/gguf worker/family worker/plan kernels worker/text
worker/data     : api/core worker/gguf worker/family worker/plan kernels worker/sp worker/model worker/hf worker/text
worker/infer    : api/core worker/family worker/plan kernels worker/comm worker/model worker/hf worker/data worker/text
worker/train    : api/core worker/plan kernels worker/comm worker/model worker/data
worker/ckpt     : api/core worker/program worker/family worker/plan kernels worker/hf worker/train
worker/verify   : api/core worker/family worker/plan kernels worker/comm worker/model worker/hf worker/data worker/train
worker/rank     : api/core worker/gguf worker/family worker/plan kernels worker/comm worker/model worker/hf worker/data worker/infer worker/train worker/ckpt worker/verify worker/text
worker/gang     : api/core
worker/agent    : api/core api
daemon/store    : api/core
daemon/sched    : api/core api
daemon/spec     : api/core worker/family worker/plan
daemon/mailbox  : api/core api
daemon/run      : api/core api
daemon/state    : api/core api worker/plan daemon/sched daemon/spec daemon/store
daemon/upload   : api/core daemon/mailbox daemon/state
daemon/access   : api/core daemon/mailbox daemon/state daemon/store daemon/upload
daemon/loop     : api/core api worker/plan daemon/access daemon/mailbox daemon/sched daemon/spec daemon/state daemon/store
daemon/http     : api/core worker/family worker/plan daemon/access daemon/loop daemon/spec daemon/state daemon/upload
daemon          : api/core api daemon/access daemon/http daemon/state
daemon/main.c   : api/core api daemon daemon/access daemon/http daemon/loop daemon/mailbox daemon/run daemon/spec daemon/upload
client          : api/core
'
# HEADER or FOLDER OF HEADERS : the only files that may include it. <HEADER>: the header of the system,
# where a header of ours has a name with the same end
owners='
microhttpd.h      : daemon/http/http.c daemon/http/streams.c
sqlite3.h         : daemon/store/backup.c daemon/store/carried.c daemon/store/late_check.c daemon/store/load.c daemon/store/query.c daemon/store/reader.c daemon/store/remove.c daemon/store/schema.c daemon/store/space.c daemon/store/store.c daemon/store/store_check.c daemon/store/wal.c daemon/store/writer.c
jansson.h         : daemon/spec/document.h daemon/spec/rule.h daemon/spec/scalar.h daemon/spec/write.c client/json.c
grpc/             : api/rpc_client.c api/rpc_creds.h api/rpc_endpoint.c api/rpc_server.c api/rpc_stream.c api/rpc_stream.h
rpc_creds.h       : api/rpc_client.c api/rpc_creds.c api/rpc_server.c
rpc_stream.h      : api/rpc_client.c api/rpc_endpoint.c api/rpc_server.c api/rpc_stream.c
protobuf-c/       : api/wire_pack.h
cluster.pb-c.h    : api/wire_pack.h
wire_pack.h       : api/wire.c api/wire_gpu.c api/wire_pack.c api/wire_spec.c
curl/             : client/http.c
toml++/           : api/toml.cc
<yaml.h>          : client/yaml.c
<assert.h>        : api/core/assert.h
nccl.h            : worker/comm/nccl.c
openssl/          : worker/comm/tls.c api/pki.c
gnutls/           : daemon/http/tls.c
pcre2.h           : worker/text/full_match.c worker/text/pattern.c
hwloc.h           : worker/agent/cores.c
'
generated=' api/cluster.pb-c.h schema_sql.h openapi_yaml.h page_html.h docs_html.h templates.h convert_py.h '
# The only files that may test HAVE_CUDA and HAVE_NCCL.
devices='^(kernels/backend\.c|worker/comm/comm\.c):'

edges=$(mktemp)
trap 'rm -f "$edges"' EXIT
find api daemon worker kernels client -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' -o -name '*.inc' \) |
    sort | xargs grep -nE '^[ \t]*#[ \t]*include[ \t]*["<]' /dev/null |
    awk -v rules="$rules" -v owners="$owners" -v generated="$generated" -v edges="$edges" '
function say(text) { print "check-layers: " text; bad = 1 }
function folder(file) { # the file itself, or the nearest folder above it, that has a rule
    if (file in known) return file
    while (sub(/\/[^\/]*$/, "", file)) if (file in known) return file
    return ""
}
BEGIN {
    n = split(rules, line, "\n")
    for (i = 1; i <= n; i++) {
        if (split(line[i], part, ":") < 2) continue
        gsub(/ /, "", part[1]); known[part[1]] = 1
        m = split(part[2], target, " ")
        for (k = 1; k <= m; k++) allowed[part[1] " " target[k]] = 1
    }
    n = split(owners, line, "\n")
    for (i = 1; i <= n; i++) {
        if (split(line[i], part, ":") < 2) continue
        gsub(/ /, "", part[1]); owned[part[1]] = " " part[2] " "
    }
}
{
    file = $0; sub(/:.*/, "", file)
    at = $0; sub(/^[^:]*:/, "", at); sub(/:.*/, "", at)
    quoted = $0 ~ /include[ \t]*"/
    header = $0; sub(/.*include[ \t]*["<]/, "", header); sub(/[">].*/, "", header)
    where = file ":" at
    for (h in owned)
        if ((index("/" header, "/" h) || (!quoted && h == "<" header ">")) && !index(owned[h], " " file " "))
            say(where " may not include " header ": only" owned[h])
    if (!quoted || index(generated, " " header " ")) next
    if ((getline text < header) < 0) { say(where " includes \"" header "\", which does not exist: paths begin at the root"); next }
    close(header)
    from = folder(file); to = folder(header)
    if (from == "") { say(file " is in no folder that has a rule"); next }
    if (from != to && !((from " " to) in allowed)) say(where ": " from " may not include " header)
    used[from " " to] = 1
    if (file ~ /\.c?u?h$/ && file != header) print file, header > edges
}
END {
    for (e in allowed) if (!(e in used)) { split(e, part, " "); say("no source of " part[1] " includes from " part[2] " any more: take it out of the rules") }
    for (e in allowed) print "rule:" e > (edges ".rules")
    exit bad
}'
bad=$?
loop=$(tsort <"$edges" 2>&1 >/dev/null) || { echo "check-layers: a cycle of includes:" $loop; bad=1; }
loop=$(sed 's/^rule://' "$edges.rules" | tsort 2>&1 >/dev/null) || { echo "check-layers: the rules have a cycle:" $loop; bad=1; }
rm -f "$edges.rules"
grep -rnE 'HAVE_(CUDA|NCCL)' --include='*.[ch]' api daemon worker client kernels | grep -vE "$devices" &&
    { echo "check-layers: #ifdef of a device outside its table"; bad=1; }
exit "$bad"
