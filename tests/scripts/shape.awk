# shape.awk: the shape of an answer of OpenAI's API, in one line: the path and the type of every value, each once,
# in the order of their letters. Events of a stream count together. Words that clients compare stay as they are.
#   awk -f tests/scripts/shape.awk <answer
# Types: s string, n number, b true or false, null, [] list, {} object without a member,
# any for a value that depends on the text.

function fail(why) {
    printf "shape.awk: line %d: %s at byte %d\n", NR, why, Q >"/dev/stderr"
    failed = 1
    exit 1
}
function add(path, type) { if (!within && !((path "=" type) in seen)) { seen[path "=" type] = 1; found[++n_found] = path "=" type } }
function blanks() { while (substr(S, Q, 1) ~ /[ \t]/) Q++ }
function string(    begin) {
    for (begin = ++Q; Q <= length(S) && substr(S, Q, 1) != "\""; Q++) if (substr(S, Q, 1) == "\\") Q++
    if (Q > length(S)) fail("a string has no end")
    return substr(S, begin, Q++ - begin)
}
function word(path) { return path ~ /[.](object|role|type|code|param)$/ }
# Members of such an object are named by tokens.
function by_token(path) { return path ~ /logprobs[.]top_logprobs\[\]$/ && path !~ /content\[\]/ }
function members(path, end_,    key, n) {
    for (Q++; ; Q++) {
        blanks()
        if (substr(S, Q, 1) == end_) break
        key = "[]"
        if (end_ == "}") {
            key = "." string()
            if (by_token(path)) key = ".*"
            blanks()
            if (substr(S, Q++, 1) != ":") fail("a colon is missing")
        }
        value(path key)
        n++
        blanks()
        if (substr(S, Q, 1) == end_) break
        if (substr(S, Q, 1) != ",") fail("a comma is missing")
    }
    Q++
    if (end_ == "]" || !n) add(path, end_ == "}" ? "{}" : "[]")
}
# Values that depend on the tokens that a model chooses.
function by_text(path) { return path ~ /[.](token_ids|bytes)$/ }
function value(path,    c, s) {
    blanks()
    c = substr(S, Q, 1)
    if (by_text(path)) {
        add(path, "any")
        within++
        value(path "[]")
        within--
    } else if (c == "{" || c == "[") {
        members(path, c == "{" ? "}" : "]")
    } else if (c == "\"") {
        s = string()
        add(path, word(path) ? s : "s")
    } else if (match(substr(S, Q), /^-?[0-9][0-9.eE+-]*/)) {
        Q += RLENGTH
        add(path, "n")
    } else if (match(substr(S, Q), /^(true|false|null)/)) {
        add(path, c == "n" ? "null" : "b")
        Q += RLENGTH
    } else fail("no value")
}
/^data: \[DONE\]/ { add("DONE", "s"); next }
/[^ \t\r]/ {
    S = $0
    sub(/^data: /, "", S)
    sub(/[ \t\r]*$/, "", S)
    Q = 1
    value("")
    if (Q <= length(S)) fail("more text")
}
END {
    if (failed) exit 1
    for (i = 2; i <= n_found; i++) { # sorted by insertion
        for (j = i; j > 1 && found[j - 1] > found[j]; j--) { t = found[j]; found[j] = found[j - 1]; found[j - 1] = t }
    }
    for (i = 1; i <= n_found; i++) printf "%s%s", (i > 1 ? " " : ""), found[i]
    print ""
}
