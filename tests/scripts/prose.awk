# prose.awk: of comments (comments.awk), the sentences that begin with a relative clause or "Of", and the
# phrases "what is ...", "the one that ...", each with its file.
BEGIN { FS = "\t" }
function look(file, s,    low, rest) {
    if (length(s) <= 12) return
    low = tolower(s)
    if (low ~ /^(what|of|one that|those|that which|which|none of|nothing|where|whose)([^a-z]|$)/) print file ": " s
    for (rest = " " low " "; match(rest, /[^a-z](what (is|was|are|were|has|have|it|they|a|the|ranks|nodes|jobs|seqd)|the (thing|one|part)s? that|that which)[^a-z]/); rest = substr(rest, RSTART + RLENGTH - 1))
        print file ": ... " substr(rest, RSTART + 1, RLENGTH - 2) " ..."
}
length($2) > 25 {
    text = $2
    while (match(text, /[.;:][ ]+/)) {
        sentence = substr(text, 1, RSTART)
        text = substr(text, RSTART + RLENGTH) # before look(), which matches too
        look($1, sentence)
    }
    look($1, text)
}
