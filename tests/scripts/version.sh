#!/bin/sh
# The version is that of api/core/version.h in all five programs, which print it with the revision,
# in the newest entry of the changelog and in the tags of the images in deploy/.
#   BUILD=build/release
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
same "the newest entry of the changelog" "$(sed -n 's/^## //p' .github/CHANGELOG.md | head -n 1)" "$want"
same "tags of images" "$(grep -rhoE '(image: |-t |:ro )(seqd|seqw-cuda|seqw)[^ ]*' deploy | sed -E 's/.*(seqd|seqw-cuda|seqw):/:/' | sort -u)" ":$want"
echo "version: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
