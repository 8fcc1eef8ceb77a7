# nets.sh: networks and certificates for scripts of several machines. Sourced by bash, beside lib.sh.
#
# A machine is a network namespace that a sleeping process holds open. They are made in a namespace of
# the script's own, without root; where that is not allowed the script reports it and counts nothing as
# passed.

# Begins the script again in a network namespace of its own.
own_network() { # SUITE [words of the script]
    local why
    [ "${NET_OF:-}" != "$1" ] || return 0
    if ! why=$(unshare -Urn sh -c 'ip link add v1 type veth peer name v2 && unshare -n true' 2>&1); then
        echo "$1: SKIPPED, NOTHING WAS TESTED: no network namespaces here: $why"
        echo "$1: 0 passed, 0 failed"
        exit 0
    fi
    NET_OF=$1 exec unshare -Urn "tests/scripts/$1.sh" "${@:2}"
}

HOLDERS='' # pids, for the trap of the script
namespace() { # NAME: starts one; NS_NAME is the pid of the process that holds it
    unshare -n sleep 900 &
    eval "NS_$1=$!"
    HOLDERS="$HOLDERS $!"
    until_ok 50 other_net "$!"
}
other_net() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ] && [ "$(cat "/proc/$1/comm")" = sleep ]; }

# A certificate that its own key signs, $T/NAME.pem and .key.
authority() { # NAME [options of openssl req]
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -keyout "$T/$1.key" -out "$T/$1.pem" "${@:2}" 2>/dev/null
}
