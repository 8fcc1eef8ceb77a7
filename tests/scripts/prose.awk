# prose.awk: counts, in each file's comments (comments.awk), sentences that begin with a relative clause
# or "Of", and the phrases "what is ...", "the one that ...". A line: file, the two counts, sentences.
#   -v list=1: prints these sentences instead
BEGIN { FS = "\t" }
function count(file, s,    low, k, rest) {
    if (length(s) <= 12) return
    sentences[file]++
    low = tolower(s)
    if (low ~ /^(what|of|one that|those|that which|which|none of|nothing|where|whose)([^a-z]|$)/) {
        begins[file]++
        if (list) print file ": " s
    }
    for (rest = " " low " "; match(rest, /[^a-z](what (is|was|are|were|has|have|it|they|a|the|ranks|nodes|jobs|seqd)|the (thing|one|part)s? that|that which)[^a-z]/); rest = substr(rest, RSTART + RLENGTH - 1)) {
        phrases[file]++
        if (list) print file ": ... " substr(rest, RSTART + 1, RLENGTH - 2) " ..."
    }
}
length($2) > 25 {
    files[$1] = 1
    text = $2
    while (match(text, /[.;:][ ]+/)) {
        sentence = substr(text, 1, RSTART)
        text = substr(text, RSTART + RLENGTH) # before count(), which matches too
        count($1, sentence)
    }
    count($1, text)
}
END {
    if (list) exit
    for (f in files) printf "%s %d %d %d\n", f, begins[f], phrases[f], sentences[f]
}
