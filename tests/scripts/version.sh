#!/bin/sh
# The version is that of api/core/version.h in all five programs, which print it with the revision,
# in the newest entry of the changelog and in the tags of the images in deploy/.
#   BUILD=build/release
# tests: not kept: it reads the tags of git
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build/release} passed=0 failed=0
want=$(sed -n 's/^#define SEQD_VERSION "\(.*\)"$/\1/p' api/core/version.h)
same() { # NAME GOT WANT
    if [ -n "$3" ] && [ "$2" = "$3" ]; then passed=$((passed + 1)); echo "ok   $1"
    else failed=$((failed + 1)); echo "FAIL $1: \"$2\", want \"$3\""; fi
}
for p in seqd seqw seqgang seqrank seqctl; do
    said=$("$build/$p" --version)
    same "$p --version" "$(echo "$said" | sed 's/(..*)$/(revision)/')" "$p $want (revision)"
done
# The newest heading of the changelog: the number, and once it is a release the date.
entry=$(sed -n 's/^## //p' .github/CHANGELOG.md | head -n 1)
number() { echo "$1" | sed -E 's/^([0-9.]+) \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$/\1/'; }
same "the newest entry of the changelog" "$(number "$entry")" "$want"
dated() { # TAGS ENTRY: no, where a commit with the version's tag has an entry without a date
    if echo "$1" | grep -qx "v$want" && [ "$(number "$2")" = "$2" ]; then echo no; else echo yes; fi
}
same "a tagged version has its date" "$(dated "$(git tag --points-at HEAD 2>/dev/null)" "$entry")" yes
same "a tag without a date is found" "$(dated "v$want" "$want")" no
same "a tag with a date passes" "$(dated "v$want" "$want (2026-01-31)")" yes
same "tags of images" "$(grep -rhoE '(image: |-t |:ro )(seqd|seqw-cuda|seqw)[^ ]*' deploy | sed -E 's/.*(seqd|seqw-cuda|seqw):/:/' | sort -u)" ":$want"
echo "version: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
