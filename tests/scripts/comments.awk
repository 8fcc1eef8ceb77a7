# comments.awk: a file of C, C++ or CUDA without its comments, or its comments without the code.
#   awk -v want=code -f comments.awk FILE...       its name, then its lines of code, runs of blanks as one
#   awk -v want=comments -f comments.awk FILE...   a comment a line, after its file's name and a tab
function begin_comment() { text = ""; inside = 1 }
function end_comment() {
    inside = 0
    gsub(/[ \t]+/, " ", text); sub(/^[ *]+/, "", text); sub(/[ *]+$/, "", text)
    if (want == "comments" && text != "") print FILENAME "\t" text
}
# Appends to the comment; the star that begins a line is none of its words.
function add(line) { sub(/^[ \t]*\*?[ \t]?/, "", line); text = text " " line }
FNR == 1 { inside = 0; if (want == "code") print "file " FILENAME }
{
    line = $0; code = ""
    for (;;) {
        if (inside) {
            i = index(line, "*/")
            if (!i) { add(line); break }
            add(substr(line, 1, i - 1)); end_comment()
            line = substr(line, i + 2)
        } else if (match(line, /"([^"\\]|\\.)*"|'([^'\\]|\\.)*'|\/\*|\/\//)) {
            token = substr(line, RSTART, RLENGTH)
            code = code substr(line, 1, RSTART - 1)
            line = substr(line, RSTART + RLENGTH)
            if (token == "/*") begin_comment()
            else if (token == "//") { begin_comment(); add(line); end_comment(); break }
            else code = code token
        } else { code = code line; break }
    }
    if (want != "code") next
    gsub(/[ \t]+/, " ", code); sub(/ $/, "", code)
    if (code != "") print code
}
