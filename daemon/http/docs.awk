# docs.awk: the reference of REST as one page of HTML, from api/openapi.yaml, with the style of page.html.
#   awk -f daemon/http/docs.awk api/openapi.yaml daemon/http/page.html
# It reads the part of YAML that the document uses: mappings and lists in blocks or in braces, scalars plain,
# quoted, folded (>-) or literal (|). It exits with status 1 and the line's number on a line that it does not
# understand, a member that it does not render, a reference that leads nowhere, and an operation without a tag of
# the list. So it leaves out nothing of the document. All text is escaped.
#
# A node of the tree is a number: kind[n] is map, list or text; size[n], name[n, i] and kid[n, i] its members.

function fail(n, why) {
    printf "docs.awk: line %d: %s\n", n, why >"/dev/stderr"
    failed = 1
    exit 1
}
FILENAME != document && document != "" { # page.html
    if ($0 == "</style>") inside = 0
    if (inside) style = style $0 "\n"
    if ($0 == "<style>") inside = 1
    next
}
{
    document = FILENAME
    raw[++n_raw] = $0
}

# ---- YAML ----------------------------------------------------------------------------------------

function node(k) { kind[++n_nodes] = k; at[n_nodes] = P; size[n_nodes] = 0; return n_nodes }
function scalar(s,    n) { n = node("text"); text[n] = s; return n }
function put(n, k, v) { name[n, ++size[n]] = k; kid[n, size[n]] = v; if (k != "") of[n, k] = v }
function depth(s) { match(s, /^ */); return RLENGTH }
function trim(s) { sub(/^ +/, "", s); sub(/ +$/, "", s); return s }
# Skips empty lines and comments.
function advance() { while (P <= n_raw && raw[P] ~ /^ *(#.*)?$/) P++ }
function key_end(s) { return match(s, /:( |$)/) ? RSTART : 0 }
function unquoted_key(s) { gsub(/^"|"$/, "", s); return s }

function block(d,    n, s, i) {
    n = node(substr(raw[P], d + 1, 2) == "- " ? "list" : "map")
    for (; P <= n_raw && depth(raw[P]) == d; advance()) {
        s = substr(raw[P], d + 1)
        if ((s ~ /^- /) != (kind[n] == "list")) break
        if (kind[n] == "list") {
            s = substr(s, 3)
            if (s ~ /^[[{"']/ || !key_end(s)) { put(n, "", inline(s)); P++; continue }
            raw[P] = substr(raw[P], 1, d) "  " s
            put(n, "", block(d + 2))
            continue
        }
        if (!(i = key_end(s))) fail(P, "\"" s "\" has no key")
        put(n, unquoted_key(substr(s, 1, i - 1)), value(trim(substr(s, i + 1)), d))
    }
    if (P <= n_raw && depth(raw[P]) > d) fail(P, "it is too far to the right")
    return n
}
function value(s, d,    n) {
    if (s ~ /^[>|]-?$/) return lines(substr(s, 1, 1) == "|", d)
    if (s != "") { n = inline(s); P++; return n }
    P++
    advance()
    if (depth(raw[P]) <= d && raw[P] !~ /^ *- /) fail(P, "a value is missing before it")
    return block(depth(raw[P]))
}
function lines(literal, d,    out, s, first) {
    for (P++; P <= n_raw && (raw[P] ~ /^ *$/ || depth(raw[P]) > d); P++) {
        s = trim(raw[P])
        out = out (out == "" ? "" : s == "" || first || literal ? "\n" : " ") s
        first = s == "" # the line before ends a paragraph
    }
    return scalar(out)
}
function inline(s,    n) {
    if (s !~ /^[[{"']/) {
        if (s ~ / #|: /) fail(P, "quote \"" s "\"")
        return scalar(s)
    }
    S = s; Q = 1
    n = flow()
    blanks()
    if (Q <= length(S)) fail(P, "\"" substr(S, Q) "\" follows a value")
    return n
}
function blanks() { while (substr(S, Q, 1) == " ") Q++ }
function quoted(    c, out, q) {
    q = substr(S, Q++, 1)
    for (;; Q++) {
        if (Q > length(S)) fail(P, "a quotation has no end")
        c = substr(S, Q, 1)
        if (q == "\"" && c == "\\") c = substr(S, ++Q, 1)
        else if (c == q) {
            if (q == "\"" || substr(S, Q + 1, 1) != q) break
            Q++
        }
        out = out c
    }
    Q++
    return out
}
function plain(stop,    i) {
    if (!(i = match(substr(S, Q), stop))) fail(P, "braces have no end")
    Q += i - 1
    return trim(substr(S, Q - i + 1, i - 1))
}
function flow(    c, n, k, close_) {
    blanks()
    c = substr(S, Q, 1)
    if (c == "\"" || c == "'") return scalar(quoted())
    if (c != "{" && c != "[") return scalar(plain("[],}]"))
    n = node(c == "{" ? "map" : "list")
    close_ = c == "{" ? "}" : "]"
    for (Q++; ; ) {
        blanks()
        if (substr(S, Q, 1) == close_) break
        k = ""
        if (c == "{") {
            if (substr(S, Q, 1) == "\"") k = quoted()
            else k = plain(": ?")
            if (substr(S, Q, 1) != ":") fail(P, "a colon is missing after " k)
            Q++
        }
        put(n, k, flow())
        blanks()
        if (substr(S, Q, 1) == ",") Q++
        else if (substr(S, Q, 1) != close_) fail(P, "braces have no end")
    }
    Q++
    return n
}

# ---- the document --------------------------------------------------------------------------------

function has(n, k) { return (n, k) in of }
function get(n, k) { return has(n, k) ? of[n, k] : 0 }
function str(n, k) { return has(n, k) ? text[of[n, k]] : "" }
# Returns the node that a reference leads to; a node without a reference is returned itself.
function follow(n,    path, parts, i, m) {
    if (!has(n, "$ref")) return n
    path = str(n, "$ref")
    if (sub(/^#\//, "", path)) {
        m = root
        for (i = split(path, parts, "/"); i; i--) part_of[i] = parts[i]
        for (i = 1; (i in parts) && m; i++) m = get(m, parts[i])
    }
    if (!m) fail(at[n], path " leads nowhere")
    return m
}
function last(path) { sub(/.*\//, "", path); return path }
# Fails on a member that is not in the list `known` of rendered ones.
function only(n, known, what,    i) {
    for (i = 1; i <= size[n]; i++)
        if (index(" " known " ", " " name[n, i] " ") == 0) fail(at[n], what " has " name[n, i] ", which is not rendered")
}

# ---- HTML ----------------------------------------------------------------------------------------

function esc(s) {
    gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); gsub(/"/, "\\&quot;", s)
    return s
}
function code(s) { return "<code>" esc(s) "</code>" }
# Returns a description as HTML: text in `backticks` is code, an empty line begins a paragraph.
function prose(s,    out, open_) {
    s = esc(s)
    while (match(s, /`/)) {
        out = out substr(s, 1, RSTART - 1) (open_ ? "</code>" : "<code>")
        open_ = !open_
        s = substr(s, RSTART + 1)
    }
    out = out s (open_ ? "</code>" : "")
    gsub(/\n\n/, "</p><p>", out)
    return out
}
function para(s) { if (s != "") print "<p>" prose(s) "</p>" }
function join(n, sep,    i, out) {
    for (i = 1; i <= size[n]; i++) out = out (i > 1 ? sep : "") esc(text[kid[n, i]])
    return out
}
function between(n, low, high, unit) {
    if (!has(n, low) && !has(n, high)) return ""
    if (!has(n, low)) return ", at most " esc(str(n, high)) unit
    if (!has(n, high)) return ", at least " esc(str(n, low)) unit
    return ", " esc(str(n, low)) " to " esc(str(n, high)) unit
}
function type(n,    out, t, i) {
    only(n, schema_words, "a schema")
    if (has(n, "$ref")) {
        follow(n)
        t = last(str(n, "$ref"))
        return "<a href=\"#schema-" esc(t) "\">" esc(t) "</a>"
    }
    if (has(n, "oneOf")) {
        t = get(n, "oneOf")
        for (i = 1; i <= size[t]; i++) out = out (i > 1 ? " or " : "") type(kid[t, i])
        return out
    }
    if (has(n, "allOf")) return "object"
    if (!size[n]) return "any value" # {}: also a line that test_seqd_schema --write has still to fill
    if (!has(n, "type")) fail(at[n], "a schema has no type")
    t = get(n, "type")
    out = kind[t] == "list" ? join(t, " or ") : esc(text[t])
    if (has(n, "items")) sub(/array/, "array of " type(get(n, "items")), out)
    t = get(n, "additionalProperties")
    if (t && kind[t] == "map") out = out ", each member " type(t)
    if (has(n, "enum")) out = out ": " join(get(n, "enum"), ", ")
    out = out between(n, "minimum", "maximum", "") between(n, "minLength", "maxLength", " characters")
    out = out between(n, "minItems", "maxItems", " items") between(n, "minProperties", "maxProperties", " members")
    if (has(n, "format")) out = out ", " esc(str(n, "format"))
    if (has(n, "pattern")) out = out ", " code(str(n, "pattern"))
    if ((t = get(n, "propertyNames"))) { only(t, "pattern", "propertyNames"); out = out ", names " code(str(t, "pattern")) }
    if (has(n, "default")) out = out ", default " code(str(n, "default"))
    if (has(n, "example")) out = out ", as " code(str(n, "example"))
    return out
}
function row(label, kind_, words) { print "<tr><td>" label "</td><td>" kind_ "</td><td>" prose(words) "</td></tr>" }
function requires(n, member,    r, i) {
    r = get(n, "required")
    for (i = 1; r && i <= size[r]; i++) if (text[kid[r, i]] == member) return 1
    return 0
}
# Tells whether rows() prints members of a schema.
function deep(n,    i, t) {
    if (has(n, "$ref")) return 0
    if (has(n, "properties") || has(n, "allOf")) return 1
    if (has(n, "items")) return deep(get(n, "items"))
    t = get(n, "additionalProperties")
    return t && kind[t] == "map" && deep(t)
}
# Prints a row for each member of a schema, and for the members of members, by their paths.
function rows(n, prefix,    i, p, t, key) {
    if ((t = get(n, "allOf")))
        for (i = 1; i <= size[t]; i++) {
            if (has(kid[t, i], "$ref")) row("", "the members of " type(kid[t, i]), "")
            else rows(kid[t, i], prefix)
        }
    if (has(n, "items")) rows(get(n, "items"), prefix "[]")
    t = get(n, "additionalProperties")
    if (t && kind[t] == "map" && deep(t)) rows(t, prefix (prefix == "" ? "" : ".") "*")
    p = get(n, "properties")
    for (i = 1; p && i <= size[p]; i++) {
        key = prefix (prefix == "" ? "" : ".") name[p, i]
        t = kid[p, i]
        row(code(key) (requires(n, name[p, i]) ? " <b>required</b>" : ""), type(t), str(t, "description"))
        if (deep(t)) rows(t, key)
    }
}
function table(head) { print "<div class=\"scroll\"><table><tr>" head "</tr>" }
function end_table() { print "</table></div>" }
function members(n) {
    if (!deep(n)) return
    table("<th>member</th><th>type</th><th></th>")
    rows(n, "")
    end_table()
}
function content(n,    i, t) {
    for (i = 1; n && i <= size[n]; i++) {
        only(kid[n, i], "schema", "a content")
        t = get(kid[n, i], "schema")
        print "<p>" code(name[n, i]) " " type(t) "</p>"
        para(str(t, "description"))
        members(t)
    }
}
function parameters(list,    i, p, t) {
    if (!list) return
    print "<h4>Parameters</h4>"
    table("<th>name</th><th>in</th><th>type</th><th></th>")
    for (i = 1; i <= size[list]; i++) {
        p = follow(kid[list, i])
        only(p, "name in required description schema allowEmptyValue", "a parameter")
        print "<tr><td>" code(str(p, "name")) (str(p, "required") == "true" ? " <b>required</b>" : "") "</td><td>" \
            esc(str(p, "in")) "</td><td>" type(get(p, "schema")) "</td><td>" prose(str(p, "description")) "</td></tr>"
    }
    end_table()
}
function body(n) {
    if (!n) return
    n = follow(n)
    only(n, "required content", "a body")
    print "<h4>Body" (str(n, "required") == "true" ? " <b>required</b>" : "") "</h4>"
    content(get(n, "content"))
}
function headers(n,    i) {
    for (i = 1; n && i <= size[n]; i++) {
        only(kid[n, i], "description schema", "a header")
        print "<p>Header " code(name[n, i]) " " type(get(kid[n, i], "schema")) ". " prose(str(kid[n, i], "description")) "</p>"
    }
}
# Prints the answers of an operation. All errors have one form, which is printed once after their statuses.
function answers(n,    i, r, k, errors) {
    print "<h4>Answers</h4>"
    for (i = 1; i <= size[n]; i++) {
        k = name[n, i]
        r = follow(kid[n, i])
        only(r, "description headers content", "an answer")
        if (has(kid[n, i], "$ref")) {
            errors = errors (errors == "" ? "" : ", ") (k == "default" ? "every other status" : esc(k))
            errors_of = r
            continue
        }
        print "<div class=\"answer\"><b>" esc(k) "</b> " prose(str(r, "description"))
        headers(get(r, "headers"))
        content(get(r, "content"))
        print "</div>"
    }
    if (errors == "") return
    print "<div class=\"answer\"><b>Errors</b> " errors ": " prose(str(errors_of, "description"))
    content(get(errors_of, "content"))
    print "</div>"
}
function operation(path, method, n) {
    only(n, "operationId tags summary description security parameters requestBody responses", "an operation")
    print "<section class=\"card op\" id=\"op-" esc(str(n, "operationId")) "\">"
    print "<h3><b>" toupper(method) "</b> " code(path) "</h3>"
    para(str(n, "summary"))
    para(str(n, "description"))
    if (has(n, "security")) print "<p class=\"dim\">It needs no token.</p>"
    parameters(get(n, "parameters"))
    body(get(n, "requestBody"))
    answers(get(n, "responses"))
    print "</section>"
}
# Prints the operations of a tag: each as a line of the contents, or whole.
function of_tag(tag, whole,    paths, i, j, p, o, n) {
    paths = get(root, "paths")
    for (i = 1; i <= size[paths]; i++) {
        p = kid[paths, i]
        for (j = 1; j <= size[p]; j++) {
            o = kid[p, j]
            if (text[kid[get(o, "tags"), 1]] != tag) continue
            n++
            if (whole) operation(name[paths, i], name[p, j], o)
            else print "<li><a href=\"#op-" esc(str(o, "operationId")) "\"><b>" toupper(name[p, j]) "</b> " esc(name[paths, i]) "</a></li>"
        }
    }
    return n
}
function check_tags(    tags, i, j, paths, p, t, known, found) {
    tags = get(root, "tags")
    for (i = 1; i <= size[tags]; i++) known[str(kid[tags, i], "name")] = 1
    paths = get(root, "paths")
    for (i = 1; i <= size[paths]; i++)
        for (j = 1; j <= size[kid[paths, i]]; j++) {
            p = kid[kid[paths, i], j]
            t = get(p, "tags")
            if (!t || size[t] != 1 || !(text[kid[t, 1]] in known)) fail(at[p], "an operation needs one tag of the list")
            if (str(p, "operationId") in found) fail(at[p], "operationId " str(p, "operationId") " is there twice")
            found[str(p, "operationId")] = 1
        }
}
function schemas(n,    i) {
    for (i = 1; i <= size[n]; i++) {
        print "<section class=\"card op\" id=\"schema-" esc(name[n, i]) "\"><h3>" esc(name[n, i]) "</h3>"
        para(str(kid[n, i], "description"))
        print "<p class=\"dim\">" type(kid[n, i]) (str(kid[n, i], "additionalProperties") == "false" ? ", no other member" : "") "</p>"
        members(kid[n, i])
        print "</section>"
    }
}
function contents(tags, all,    i, t) {
    print "<nav class=\"card toc\" aria-label=\"contents\">"
    for (i = 1; i <= size[tags]; i++) {
        t = str(kid[tags, i], "name")
        print "<div><h2><a href=\"#tag-" esc(t) "\">" esc(t) "</a></h2><ul>"
        of_tag(t, 0)
        print "</ul></div>"
    }
    print "<div><h2><a href=\"#schemas\">schemas</a></h2><ul>"
    for (i = 1; i <= size[all]; i++) print "<li><a href=\"#schema-" esc(name[all, i]) "\">" esc(name[all, i]) "</a></li>"
    print "</ul></div></nav>"
}

END {
    if (failed) exit 1
    schema_words = "type enum description items properties required additionalProperties minimum maximum minLength maxLength " \
        "minItems maxItems minProperties maxProperties propertyNames pattern format default example oneOf allOf $ref"
    P = 1
    advance()
    root = block(0)
    if (P <= n_raw) fail(P, "it does not belong to the document")
    only(root, "openapi info servers security tags paths components", "the document")
    info = get(root, "info")
    tags = get(root, "tags")
    all = get(get(root, "components"), "schemas")
    check_tags()
    print "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">"
    print "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    print "<meta name=\"color-scheme\" content=\"light dark\">"
    print "<title>" esc(str(info, "title")) ": REST</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>"
    printf "%s", style
    print ".toc { columns: 3 260px; } .toc div { break-inside: avoid; margin: 0 0 12px; } .toc ul { margin: 0; padding: 0; list-style: none; }"
    print ".toc li { overflow-wrap: anywhere; } .op { scroll-margin-top: 8px; } .op:target { border-color: var(--accent); }"
    print "h3 { font-size: 15px; margin: 0 0 6px; } h4 { font-size: 12px; color: var(--dim); margin: 12px 0 4px; }"
    print "main > h2 { font-size: 17px; margin: 22px 0 4px; } p { max-width: 100ch; } td { overflow-wrap: anywhere; }"
    print ".answer { margin: 6px 0 6px; padding-left: 10px; border-left: 3px solid var(--line); } td b { color: var(--wait); font-size: 12px; }"
    print "</style>\n</head>\n<body>"
    print "<header class=\"top\"><div><b>" esc(str(info, "title")) "</b><nav aria-label=\"views\"><a href=\"/\">Jobs</a>" \
        "<a href=\"/docs\" aria-current=\"page\">API</a></nav></div></header>\n<main>"
    print "<h1>REST " esc(str(info, "version")) "</h1>"
    para(str(info, "summary"))
    para(str(info, "description"))
    print "<p>This page is made of <a href=\"/openapi.yaml\">openapi.yaml</a>.</p>"
    contents(tags, all)
    for (i = 1; i <= size[tags]; i++) {
        only(kid[tags, i], "name description", "a tag")
        t = str(kid[tags, i], "name")
        print "<h2 id=\"tag-" esc(t) "\">" esc(t) "</h2>"
        para(str(kid[tags, i], "description"))
        if (!of_tag(t, 1)) fail(at[kid[tags, i]], "no operation has the tag " t)
    }
    print "<h2 id=\"schemas\">schemas</h2>"
    schemas(all)
    print "</main>\n</body>\n</html>"
}
