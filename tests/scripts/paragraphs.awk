# paragraphs.awk: prints the prose of documents, a paragraph a line, after its file's name and a tab, as
# comments.awk prints comments. A Markdown file gives its paragraphs, entries of lists and cells of tables,
# without code blocks; `code` is a word. An OpenAPI file gives titles, summaries and descriptions. Rows that
# tables of C have as well are left out of both: they are those tables' (test_manual compares them).
#   awk -f paragraphs.awk FILE...
function flush() {
    gsub(/[ \t]+/, " ", text); sub(/^ /, "", text); sub(/ $/, "", text)
    if (text != "") print from "\t" text
    text = ""
}
function plain(s) {
    gsub(/`[^`]*`/, "code", s)
    gsub(/\]\([^)]*\)/, "", s); gsub(/[[*]/, "", s)
    return s
}
FNR == 1 { flush(); fence = 0; folded = 0; written = 0; from = FILENAME; yaml = FILENAME ~ /\.ya?ml$/ }
yaml && /^    [A-Za-z]+:$/ { flush(); folded = 0; written = /^    (Hardware|Source|Stage|Spec):$/ }
!yaml && /^<!-- Written by / { flush(); written = 1 }
/^<!-- To here/ { written = 0; next }
written { next }
yaml {
    match($0, /^ */); deep = RLENGTH
    if (folded && (deep > folded || NF == 0)) { if (NF) text = text " " $0; else flush(); next }
    flush(); folded = 0
    line = $0
    while (match(line, /(^|[ {])(title|summary|description): /)) {
        line = substr(line, RSTART + RLENGTH)
        if (line ~ /^[>|]-?$/) { folded = deep ? deep : 1; break }
        if (line ~ /^"/ && match(line, /^"([^"\\]|\\.)*"/)) {}
        else if (line ~ /^'/ && match(line, /^'([^']|'')*'/)) {}
        else if (!match(line, /^[^,}]*[,}]/) || $0 !~ /[{]/) match(line, /.*/)
        text = plain(substr(line, 1, RLENGTH)); gsub(/^["']|["'},]+$/, "", text)
        flush()
    }
    next
}
/^ *```/ { flush(); fence = !fence; next }
fence { next }
/^ *$/ { flush(); next }
/^#+ / { flush(); text = plain($0); sub(/^#+ /, "", text); flush(); next }
/^ *\|/ { flush(); n = split(plain($0), cell, "|"); for (i = 2; i < n; i++) { text = cell[i]; flush() } next }
/^ *([-*]|[0-9]+\.) / { flush(); sub(/^ *([-*]|[0-9]+\.) /, "") }
{ text = text " " plain($0) }
END { flush() }
