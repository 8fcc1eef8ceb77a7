#!/usr/bin/env bash
# The packages in a root of Debian, as root, outside CI: they install, the units' commands start under
# a stand-in for systemd, an ordinary user's job runs while the packages are upgraded, and purge leaves
# nothing. Real systemd is not used: what it would do at an upgrade (systemctl restart) is done by hand
# with the signals that the units name.
#   tests/scripts/packages.sh ROOT      ROOT: of debootstrap, with systemd and procps; it is not changed
# tests: not kept: it makes packages
set -u
cd "$(dirname "$0")/../.." || exit 2
[ "$(id -u)" = 0 ] && [ -x "${1:-}/usr/bin/apt-get" ] || { echo "usage: packages.sh ROOT, as root"; exit 2; }
if [ -z "${SEQD_PACKAGES_INSIDE:-}" ]; then SEQD_PACKAGES_INSIDE=1 exec unshare -m --propagation private "$0" "$@"; fi
. tests/lib/lib.sh
lib_start packages
ROOT=$T/root
mkdir -p "$ROOT" "$T/upper" "$T/lay"
mount -t tmpfs -o size=4g none "$T/lay" && mkdir "$T/lay/upper" "$T/lay/work" &&
    mount -t overlay -o "lowerdir=$1,upperdir=$T/lay/upper,workdir=$T/lay/work" none "$ROOT" || cp -a "$1/." "$ROOT"
for d in proc dev; do mount --rbind "/$d" "$ROOT/$d"; done
cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
inside() { chroot "$ROOT" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C HOME=/root "$@"; }
. "$ROOT/etc/os-release" && echo "$PRETTY_NAME"

${CC:-cc} -D_GNU_SOURCE -O1 -static -o "$ROOT/usr/local/bin/manager" tests/manager/manager.c || exit 1
for n in 1 2; do
    DEB_REVISION=$n deploy/deb >"$T/out" 2>&1 || { bad "packages are made" "$T/out"; lib_end; exit 1; }
    mkdir -p "$ROOT/tmp/$n" && cp build/deb/*.deb "$ROOT/tmp/$n"
done
ours() { # what of ours is in the root
    inside find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /sys \) -prune -o \
        \( -name 'seqd*' -o -name 'seqw*' -o -name 'seqctl*' -o -name 'seqgang*' -o -name 'seqrank*' \) -print
    inside getent passwd seqd seqw
    inside getent group seqd seqw
}
same "the root is clean" "$(ours)." .
inside apt-get update -q >"$T/out" 2>&1
check "apt-get installs them" inside sh -c 'apt-get install -y -q --no-install-recommends /tmp/1/*.deb'
[ "$FAILED" -eq 0 ] || { lib_end; exit 1; }
says "dpkg finds no fault" '^$' sh -c "chroot '$ROOT' dpkg --audit; echo"
# An image of a container leaves pages of manual out, so the package is asked.
for file in bash-completion/completions/seqctl fish/vendor_completions.d/seqctl.fish zsh/vendor-completions/_seqctl man/man1/seqctl.1.gz; do
    check "seqctl has $file" inside sh -c "dpkg -L seqctl | grep -qx /usr/share/$file"
done
for p in seqd seqw; do check "/etc/seqd/$p.toml is right" inside $p --config /etc/seqd/$p.toml --check-config; done

# ---- the units' commands. From here on with a network of its own: the port is free.
unit() { [ -e "$ROOT/usr/lib/systemd/system/$1.service" ] && echo "/usr/lib/systemd/system/$1.service" || echo "/lib/systemd/system/$1.service"; }
lone() { nsenter --net="$T/net" chroot "$ROOT" env -i PATH=/usr/bin:/bin LC_ALL=C "$@"; }
touch "$T/net" && unshare --net="$T/net" true && nsenter --net="$T/net" ip link set lo up || { bad "a network namespace"; lib_end; exit 1; }
declare -A MANAGER
as() { lone setpriv --reuid "$1" --regid "$1" --init-groups env HOME=/nonexistent "${@:2}"; }
service_start() {
    # Without systemd the library directories come from tmpfiles.d; seqw's from its own unit.
    inside install -d -m 700 -o "$1" -g "$1" "/var/lib/$1"
    inside install -d -m 755 -o seqd -g seqd /run/seqd
    as "$1" /usr/local/bin/manager "$(unit "$1")" "/var/lib/$1" /run/seqd 60 >"$T/$1.said" 2>>"$T/$1.log" &
    MANAGER[$1]=$!
    until_ok 200 grep -qx READY=1 "$T/$1.said"
}
service_stop() { # NAME SIGNAL: to the stand-in, which is a child of setpriv's exec
    kill "-$2" "$(sed -n 's/^started //p' "$T/$1.said")"
    wait "${MANAGER[$1]}"
    [ "$(tail -n 1 "$T/$1.said")" = "exit 0" ]
}
setting() { sed -n "s/^$2=//p" "$ROOT$(unit "$1")"; }
check "seqd.service is ready, as user seqd" service_start seqd
check "seqw.service is ready, as user seqw" service_start seqw
[ "$FAILED" -eq 0 ] || { tail -n 5 "$T"/seq?.log; lib_end; exit 1; }
same "the state is the coordinator's alone" "$(inside stat -c '%U %a' /var/lib/seqd)" "seqd 700"
refuse "and the agent's user cannot read it" 2 'denied' as seqw ls /var/lib/seqd

# ---- an ordinary user's job
inside useradd -m alice
install -m 600 /dev/null "$ROOT/home/alice/token"
nsenter --net="$T/net" curl -s --unix-socket "$ROOT/run/seqd/seqd.sock" -H 'Content-Type: application/json' \
    -d '{"user": "alice"}' http://localhost/v1/tokens | sed -n 's/.*"token":"\([^"]*\)".*/\1/p' >"$ROOT/home/alice/token"
inside chown alice: /home/alice/token
refuse "without a token she is refused" 1 'needs a token' as alice seqctl --url http://127.0.0.1:7433 ls
says "but the socket knows her" '^alice, user, at unix:' as alice seqctl whoami
make_text 20000 >"$ROOT/srv/seqd/text.txt"
chmod 644 "$ROOT/srv/seqd/text.txt"
cat >"$ROOT/home/alice/job.json" <<JSON
{"kind": "train", "model": {"config": $LLAMA}, "data": {"train": [{"path": "/srv/seqd/text.txt", "format": "text"}], "seq_len": 256},
 "train": {"steps": 4000}, "resources": {"ranks": 2}}
JSON
ctl() { as alice env HOME=/home/alice SEQD_TOKEN_FILE=/home/alice/token seqctl "$@"; }
up() { ctl nodes -o json 2>/dev/null | grep -q '"state": "up"'; }
check "the node is up" until_ok 100 up
ID=$(ctl submit /home/alice/job.json -o name -q 2>"$T/out")
if [ -n "$ID" ]; then ok "alice submits"; else bad "alice submits" "$T/out"; fi
stepped() { ctl metrics "$ID" -o jsonl 2>/dev/null | grep -q '"step"'; }
check "it runs" until_ok 300 stepped
[ "$FAILED" -eq 0 ] || { tail -n 5 "$T"/seq?.log; lib_end; exit 1; }
of() { ctl show "$ID" --field "$1" 2>/dev/null; }
epoch=$(of epoch) rank=$(pgrep -f "seqgang.*/$ID-e" | head -n 1)

# ---- an upgrade under it
check "dpkg upgrades them" inside sh -c 'dpkg -i /tmp/2/*.deb'
same "to the new revision" "$(inside dpkg-query -W -f '${Version} ' seqctl seqd seqw)" "$(for i in 1 2 3; do printf '%s-2 ' "$(sed -n 's/^#define SEQD_VERSION "\(.*\)"$/\1/p' api/core/version.h)"; done)"
signal=$(setting seqw RestartKillSignal)
check "restart: the agent leaves by $signal" service_stop seqw "${signal#SIG}"
check "restart: seqd stops" service_stop seqd TERM
check "restart: seqd is ready" service_start seqd
check "restart: seqw is ready" service_start seqw
if kill -0 "$rank" 2>/dev/null; then ok "the gang ran on (pid $rank)"; else bad "the gang ran on"; fi
ended() { [ "$(of state)" = succeeded ]; }
check "the job ends well" until_ok 1200 ended
same "in the same attempt" "$(of epoch)" "$epoch"
check "alice pulls the model" ctl pull "$ID" /home/alice/model --part hf
same "which is hers" "$(inside stat -c %U /home/alice/model/model.safetensors /home/alice/model/config.json | xargs)" "alice alice"

# ---- removal
check "seqw stops" service_stop seqw TERM
check "seqd stops" service_stop seqd TERM
rm "$ROOT/srv/seqd/text.txt"
inside userdel -r alice 2>/dev/null
check "dpkg purges them" inside dpkg --purge seqw seqd seqctl
same "purge leaves nothing" "$(ours)." .
check "no directory of ours either" sh -c "! ls -d '$ROOT/etc/seqd' '$ROOT/srv/seqd' '$ROOT/var/lib/seqd' '$ROOT/run/seqd' 2>/dev/null"
umount "$T/net" 2>/dev/null
lib_end
