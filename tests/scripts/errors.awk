# errors.awk: of code (comments.awk), the texts of errors that begin as no sentence does: "bad value", "no such
# file". An error is a sentence with a verb, the field, its value and the fix.
BEGIN { begins = "^(bad|wrong|invalid|illegal|malformed|unexpected|missing|failed|error|no such|not an?|more than) " }
/^file / { file = substr($0, 6); in_call = 0; next }
file ~ /^tests\// { next }
{
    line = $0
    if (!in_call && match(line, /(err_set|err_field|cli_fail|refuse)\(/)) {
        in_call = 1
        line = substr(line, RSTART)
    }
    if (!in_call) next
    while (match(line, /"([^"\\]|\\.)*"/)) {
        text = substr(line, RSTART + 1, RLENGTH - 2)
        line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
        if (tolower(text) ~ begins) print file ": an error that is no sentence: " text
    }
    if (line ~ /;/) in_call = 0
}
