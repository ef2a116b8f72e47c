# shellcheck shell=bash
# A network of its own for one control plane: a network namespace with a bridge, to which nodes are connected. Nothing of
# the machine's own network is changed; it all ends with the process that holds the namespace. Sourced by hack/control-plane.

# The bridge.
readonly bridge='nodes'
# The addresses of Services, and the first of them: that of `kubernetes`.
readonly service_range='10.53.0.0/16'
readonly first_service_address='10.53.0.1'

# Where RKE2's API servers listen.
readonly rke2_port=6443

# Whether a control plane has a network of its own.
is_networked() { [ -f "$1/address" ]; }

# What a command is prefixed with to run in the network of a control plane.
entering() {
    local pid
    if is_networked "$1"; then
        read -r pid _ <"$1/pids/network"
        echo "nsenter --net=/proc/$pid/ns/net"
    fi
}

# run_inside DIR NAME COMMAND...: as run, in the network of the control plane.
run_inside() {
    local dir="$1" name="$2"
    shift 2
    # shellcheck disable=SC2046 # words of their own
    run "$dir" "$name" $(entering "$dir") "$@"
}

# make_network DIR ADDRESS/PREFIX
make_network() {
    local dir="$1" cidr="$2" pid tick
    run "$dir" network unshare --net sleep infinity
    read -r pid _ <"$dir/pids/network"
    for ((tick = 0; tick < 200; tick++)); do
        [ "$(readlink "/proc/$pid/ns/net")" = "$(readlink /proc/self/ns/net)" ] || break
        sleep 0.05
    done
    if ! is_running "$dir" network || [ "$(readlink "/proc/$pid/ns/net")" = "$(readlink /proc/self/ns/net)" ]; then
        say "there is no network namespace to be had: $(tail -n 1 "$dir/logs/network.log")"
        exit 1
    fi
    echo "${cidr%/*}" >"$dir/address"
    # shellcheck disable=SC2046
    $(entering "$dir") bash -euc '
        ip link set lo up
        ip link add "$1" type bridge
        ip address add "$2" dev "$1"
        ip link set "$1" up
        # Rules lead from the address of a Service to a pod, but only what has a route gets as far as to rules.
        ip route add "$3" dev "$1"' bash "$bridge" "$cidr" "$service_range"
}

# Clients on the machine reach the API server by its port on loopback: a socket in the file system leads into the namespace.
start_forwarder() {
    local dir="$1" port tick
    is_networked "$dir" || return 0
    port="$(cat "$dir/port")"
    rm -f "$dir/api.sock"
    run_inside "$dir" forwarder-inside socat "UNIX-LISTEN:$dir/api.sock,fork" "TCP:127.0.0.1:$port"
    # In the cluster it is where RKE2's API servers are as well: some clients know no other port.
    run_inside "$dir" forwarder-rke2 socat "TCP-LISTEN:$rke2_port,bind=$(cat "$dir/address"),fork,reuseaddr" "TCP:127.0.0.1:$port"
    run "$dir" forwarder socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr" "UNIX-CONNECT:$dir/api.sock"
    for ((tick = 0; tick < 200; tick++)); do
        if [ -S "$dir/api.sock" ] && listens "$dir" forwarder "$port" && listens "$dir" forwarder-rke2 "$rke2_port"; then
            return 0
        fi
        is_running "$dir" forwarder && is_running "$dir" forwarder-inside && is_running "$dir" forwarder-rke2 || break
        sleep 0.05
    done
    say "the API server's port is not forwarded: $(tail -qn 1 "$dir"/logs/forwarder*.log | paste -sd' ')"
    return 1
}

# listens DIR NAME PORT: whether a program is there, and somebody listens on the port in its network.
listens() {
    local pid
    is_running "$1" "$2" || return 1
    read -r pid _ <"$1/pids/$2"
    awk -v port="$(printf ':%04X$' "$3")" '$2 ~ port && $4 == "0A" { found = 1 } END { exit !found }' "/proc/$pid/net/tcp" 2>/dev/null
}

end_forwarder() {
    end_program "$1" forwarder KILL
    end_program "$1" forwarder-inside KILL
    end_program "$1" forwarder-rke2 KILL
}
