#!/usr/bin/env bash
# The page of seqd: what it is without a browser, and what a browser makes of it.
#   tests/scripts/page.sh        what needs no browser; the rest where chromium and python3 are
#   PICTURES=DIR                 also leaves pictures of every view there, light and dark, wide and narrow
# tests: needs daemon/http/page.html daemon/http/docs.awk api/openapi.yaml libfake_nvml.so page @curl @openssl @python3 @node @chromium @chromium-browser @google-chrome
set -u
cd "$(dirname "$0")/../.."
. tests/lib/lib.sh
lib_start page
page=daemon/http/page.html

# ---- the file ----
cut_out() { sed -n "/^<$1>\$/,/^<\/$1>\$/{//!p}" "$page"; } # what stands in the page's script or style
cut_out script >"$T/page.js"
bounded() { [ "$(wc -c <"$page")" -le 81920 ]; }
check "the page is at most 80 KiB" bounded
# No address of another server, and nothing that makes markup of text or code of data.
outside() { ! grep -nE "(https?:)?//[A-Za-z0-9]|@import|url\(|\bsrc=|<(iframe|object|embed|form|base)\b" "$page"; }
check "nothing in it is from elsewhere" outside
raw() { ! grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|localStorage|document\.cookie' "$T/page.js"; }
check "it makes no markup and no code of text" raw
once() { [ "$(grep -cE '<(script|style)\b' "$page")" -eq 2 ] && ! grep -nE ' (style|on[a-z]+)=' "$page"; }
check "one script, one style, no attribute that is either" once
# Its paths, less their operands, are paths of the document.
paths() {
    sed -nE 's#^  (/[^ ]*):$#\1#p' api/openapi.yaml | sed -E 's/\{[a-z]+\}/{}/g' | sort -u >"$T/known"
    grep -oE "[\`'](/v1/|/openai/v1/|/version)[^\`'?]*" "$T/page.js" | cut -c 2- | sed -E 's/\$\{[^}]*\}/{}/g' | sort -u >"$T/used"
    [ "$(wc -l <"$T/used")" -ge 9 ] || { echo "only these were found:"; cat "$T/used"; return 1; }
    ! comm -13 "$T/known" "$T/used" | grep .
}
check "its paths are in openapi.yaml" paths
# Names in it for what the API gives, and where the document has their members: schemas, or a path.
names='job Job Step Serving|serving Serving|progress Job|place Job|node Node|gpu Node|step Step|got Step|last Step Job|flow Step|event Event|file Artifact
ckpt Checkpoint|page Page|plan Planned|way Planned|problem Problem|me /v1/me'
section() { # lines beneath it; of the parts with one name, the last: schemas come after all others
    awk -v at="$1" '{ n = match($0, /[^ ]/) - 1 } on && n <= deep { on = 0 } on { text = text $0 "\n" }
        $0 ~ "^ +" at ":$" { deep = n; on = 1; text = "" } END { printf "%s", text }' api/openapi.yaml
}
members() {
    local name where member bad=0 n=0
    while read -r name where; do
        for member in $where; do section "$member"; done >"$T/section"
        for member in $(grep -oE "(^|[^A-Za-z_'-])$name(\??\.[A-Za-z_0-9]+)+" "$T/page.js" | sed -E 's/^[^A-Za-z]//; s/^[^.]*\.//' | tr '?.' '\n\n' | grep -xE '[a-z_0-9]+' |
            grep -vxE 'length|map|filter|some|at|reduce|push|shift|find|join' | sort -u); do
            n=$((n + 1))
            grep -qw -- "$member" "$T/section" || { echo "$name.$member: $where of openapi.yaml has no such thing"; bad=1; }
        done
    done < <(tr '|' '\n' <<<"$names")
    [ "$n" -ge 60 ] || { echo "only $n were found"; return 1; }
    return "$bad"
}
check "what it reads is in openapi.yaml" members
planted() { # a member and a path that are not
    local found
    cp "$T/page.js" "$T/kept"
    echo 'get(`/v1/jobs/${id}/nonsense`); job.nonsense;' >>"$T/page.js"
    ! paths && ! members; found=$?
    mv "$T/kept" "$T/page.js"
    return "$found"
}
check "a path and a member that are not there are found out" planted
if command -v node >/dev/null; then check "node reads its script" node --check "$T/page.js"
else echo "left out: there is no node to read the script"; fi

# ---- the reference, of openapi.yaml ----
docs() { awk -f daemon/http/docs.awk "$1" "$page"; }
check "the reference is made" docs api/openapi.yaml
docs api/openapi.yaml >"$T/docs.html"
runs_nothing() { ! grep -nE "<script|(https?:)?//[A-Za-z0-9]|@import|url\(|\bsrc=|<(iframe|object|embed|form|base)\b| (style|on[a-z]+)=" "$T/docs.html"; }
check "it runs nothing, and nothing in it is from elsewhere" runs_nothing
lead() { # every link of its own to one place
    grep -oE 'href="#[^"]*"' "$T/docs.html" | sed 's/href="#//; s/"//' | sort -u >"$T/links"
    grep -oE ' id="[^"]*"' "$T/docs.html" | sed 's/ id="//; s/"//' | sort >"$T/places"
    [ "$(wc -l <"$T/links")" -ge 60 ] && [ -z "$(uniq -d "$T/places")" ] && ! comm -23 "$T/links" "$T/places" | grep .
}
check "its links lead somewhere" lead
# Every member and every description is in it, as its own text.
whole() {
    awk '/^    Node:$/ { on = 1; next } on && /^    [A-Z]/ { exit } on && match($0, /^        [a-z_]+:/) { print substr($0, 9, RLENGTH - 9) }' api/openapi.yaml >"$T/members"
    [ "$(wc -l <"$T/members")" -ge 15 ] || return 1
    sed -n '/id="schema-Node"/,/<\/section>/p' "$T/docs.html" >"$T/section"
    while read -r m; do grep -q "<td><code>$m</code>" "$T/section" || { echo "$m is not in it"; return 1; }; done <"$T/members"
}
check "it has the members of a schema" whole
changed() { sed "$1" api/openapi.yaml >"$T/changed.yaml"; ! cmp -s api/openapi.yaml "$T/changed.yaml" && docs "$T/changed.yaml"; }
changed 's#summary: This document\.#summary: "<script>x()</script> \&amp; \\"q\\""#' >"$T/hostile.html"
says "text enters as text" '<p>&lt;script&gt;x\(\)&lt;/script&gt; &amp;amp; &quot;q&quot;</p>' cat "$T/hostile.html"
check "and not as markup" sh -c "! grep -q '<script' '$T/hostile.html'"
refuse "a keyword that it does not render" 1 'line [0-9]+: a schema has multipleOf' changed 's/{type: integer, minimum: 1}/{type: integer, multipleOf: 2}/'
refuse "a reference that leads nowhere" 1 'schemas/Jab leads nowhere' changed 's#schemas/Job"#schemas/Jab"#'
refuse "an operation without a tag" 1 'needs one tag' changed '/tags: \[uploads\]/d'
refuse "a text that its comma cuts" 1 'braces have no end' changed 's/description: The node of rank 0\./description: The node, of rank 0./'

# ---- as seqd serves it ----
# Two GPUs of the tests' own library, one of them broken, where that is built.
if cp "${BUILD:-build/release}/libfake_nvml.so" "$BIN" 2>/dev/null; then
    export SEQD_NVML=$BIN/libfake_nvml.so FAKE_NVML=$T/nvml
    printf '%s\n' 'gpu GPU-aa H100 81559 free=20000' 'gpu GPU-bb A30 24576 ecc=2' >"$FAKE_NVML"
    : >"$BIN/libkernels_cuda.so"
else echo "left out: libfake_nvml.so is not built: no GPUs to look at"; fi
seqd_start || { lib_end; exit 1; }
url=$(cat "$STATE/address")
head_of() { curl -sS -D - -o "$T/served" "$@" "$url/" | tr -d '\r'; }
head_of >"$T/head"
says "it is served to everyone" '^HTTP/1.1 200' cat "$T/head"
check "byte for byte" cmp "$page" "$T/served"
for h in 'content-type: text/html; charset=utf-8' 'x-content-type-options: nosniff' 'referrer-policy: no-referrer' \
    'cache-control: no-cache' 'etag: "[0-9a-f]{32}"' "content-security-policy: default-src 'none';.*connect-src 'self'.*frame-ancestors 'none'; base-uri 'none'; form-action 'none'"; do
    says "header ${h%%:*}" "^$h" tr A-Z a-z <"$T/head"
done
once_said() { [ "$(grep -ci '^cache-control:' "$T/head")" -eq 1 ]; }
check "one Cache-Control" once_said
tag=$(sed -n 's/^ETag: //Ip' "$T/head")
says "not sent again while it is the same" '^HTTP/1.1 304' head_of -H "If-None-Match: $tag"
says "nothing but the page is at /" '^HTTP/1.1 40[45]' curl -sS -D - -o "$T/out.body" "$url/index.html"
docs_head() { curl -sS -D - -o "$T/docs.served" "$@" "$url/docs" | tr -d '\r'; }
docs_head >"$T/docs.head"
says "the reference is served to everyone" '^HTTP/1.1 200' cat "$T/docs.head"
check "byte for byte" cmp "$T/docs.html" "$T/docs.served"
says "under a policy that runs nothing" "^Content-Security-Policy: default-src 'none'; style-src 'sha256-[^']*'; img-src data:; frame-ancestors" cat "$T/docs.head"
says "and not again while it is the same" '^HTTP/1.1 304' docs_head -H "If-None-Match: $(sed -n 's/^ETag: //Ip' "$T/docs.head")"
refuse "REST needs a token as before" 22 401 curl -sSf "$url/v1/jobs"
if command -v openssl >/dev/null; then
    digest() { { echo; cut_out "$1"; } | openssl dgst -sha256 -binary | openssl base64; }
    says "the reference's policy names its style's digest" "style-src 'sha256-$(page=$T/docs.html; digest style | sed 's/[+/]/\\&/g')'" cat "$T/docs.head"
    for part in script style; do says "the policy names the $part's digest" "$part-src 'sha256-$(digest $part | sed 's/[+/]/\\&/g')'" cat "$T/head"; done
else echo "left out: there is no openssl to compute digests"; fi
token=$(cat "$STATE/token")
same "seqctl page prints its address" "$(seqctl page 2>/dev/null)" "$url/#token=$token"
refuse "seqctl page says what a browser cannot reach" 1 'no Unix socket' seqctl --url "unix:$STATE/seqd.sock" page
refuse "seqctl page of no job" 3 'no job' seqctl page nameless
says "seqd --dev says how to get it" 'dev.page .*seqctl' cat "$SEQD_LOG"
secret() { ! grep -F "$token" "$SEQD_LOG"; }
check "its log has no token" secret

# ---- in a browser ----
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ]; then echo "left out: there is no chromium here (deploy/deps --browser)"
elif ! command -v python3 >/dev/null; then echo "left out: there is no python3 to drive chromium"
else
    make_text 300000 >"$T/data/text.txt"
    sources='[{"path": "text.txt", "format": "text"}]'
    spec() { # NAME STEPS MORE: a training of a small model on 2 ranks
        printf '{"kind": "train", "name": "%s", "model": {"config": %s}, "data": {"train": %s, "seq_len": 128}, "train": {"steps": %d},
          "parallel": {"sp": 2}, "resources": {"ranks": 2, "threads": 1}%s}' "$1" "$LLAMA" "$sources" "$2" "$3"
    }
    spec tiny 300 ", \"eval\": {\"data\": $sources, \"every_steps\": 50, \"max_tokens\": 512}, \"checkpoint\": {\"every_steps\": 100}" >"$T/data/tiny.json"
    spec '<img src=x onerror=document.title=1>' 2000000 ', "labels": {"team": "<i>x</i>"}' >"$T/data/hostile.json"
    spec waits 10 '' | sed 's/"ranks": 2/"ranks": 8/; s/"sp": 2/"sp": 8/' >"$T/data/waits.json"
    seqctl submit tiny.json >/dev/null && succeeds "a training" 1 && seqctl submit hostile.json >/dev/null ||
        bad "jobs for the browser"
    wait_step 2 100 # it has its slots: the next one waits
    seqctl submit waits.json >/dev/null || bad "a job that waits"
    # A log that is long and not seqd's.
    { for ((i = 1; i <= 5000; i++)); do echo "line $i <b>"; done; printf '\033[31m<script>last()</script>\n'; } >>"$STATE/jobs/1/logs/e2-rank1.log"
    seqctl tokens create --user ann >"$T/ann" 2>/dev/null
    echo "$SEQD_PID" >"$T/pid"; disown "$SEQD_PID"
    timeout 300 python3 tests/page/check.py "$browser" "$url" "$STATE" "$T/ann" ${FAKE_NVML:+gpus} ${PICTURES:+"pictures=$PICTURES"} >"$T/browser" 2>&1
    rc=$?
    SEQD_PID=$(cat "$T/pid") # it was killed and started again
    cat "$T/browser"
    PASSED=$((PASSED + $(grep -c '^ok ' "$T/browser"))) FAILED=$((FAILED + $(grep -c '^FAIL ' "$T/browser")))
    if [ "$rc" -gt 1 ] || ! grep -q '^ok ' "$T/browser"; then bad "the browser's checks end (status $rc)"; fi
    same "what the page cancelled is cancelled" "$(field 2 state)" cancelled
    check "no token is in the log of seqd" secret
fi
kill -INT "$SEQD_PID" && until_ok 150 gone "$SEQD_PID"
check "nothing is left running" nothing_left
lib_end
