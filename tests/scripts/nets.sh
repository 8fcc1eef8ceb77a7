# nets.sh: networks and certificates for scripts of several machines. Sourced by bash, beside lib.sh.
#
# A machine is a network namespace that a sleeping process holds open. They are made in a namespace of
# the script's own, without root; where that is not allowed the script reports it and counts nothing as
# passed.

# Begins the script again in a network namespace of its own.
own_network() { # SUITE [words of the script]
    local why
    [ "${NET_OF:-}" != "$1" ] || return 0
    why=$(unshare -Urn sh -c 'ip link add v1 type veth peer name v2 && unshare -n true' 2>&1) ||
        nothing_tested "$1" "no network namespaces here: $why"
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

# Connects a machine: 10.9.N.1 is the script's own end of the cable, cN, and 10.9.N.2 the machine's.
connected() { # NAME N
    local ns
    eval "ns=\$NS_$1"
    ip link add "c$2" type veth peer name eth0 netns "$ns" || return 1
    ip addr add "10.9.$2.1/24" dev "c$2" && ip link set "c$2" up || return 1
    nsenter -t "$ns" -n sh -c "ip link set lo up; ip addr add 10.9.$2.2/24 dev eth0; ip link set eth0 up; ip route add default via 10.9.$2.1"
}
# Starts an agent in a machine: W is its pid, W_LOG its log.
seqw_run() { # NAME, machine, address of seqd, options
    local name=$1 ns at=$3; eval "ns=\$NS_$2"; shift 3
    W_N=$((${W_N:-0} + 1)) W_LOG=$T/seqw.$W_N.log
    nsenter -t "$ns" -n "$BIN/seqw" --connect "$at" --name "$name" --state "$T/node-$name" --slots 2 --root "$T/data" "$@" >"$W_LOG" 2>&1 &
    W=$!
}

# A certificate that its own key signs, $T/NAME.pem and .key.
authority() { # NAME [options of openssl req]
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -keyout "$T/$1.key" -out "$T/$1.pem" "${@:2}" 2>/dev/null
}
