# shellcheck shell=bash
# A control plane with nodes: started together, stopped together. Sourced by hack/nodes.

# start_cluster DIR OPTIONS...
start_cluster() {
    local dir="${1:-}" count=3 os="$default_os" kubelet="${kubelet_versions[0]}" disk="$default_disk" with='kcm,scheduler' owner='' why number
    need "$dir"
    shift
    while [ "$#" -gt 0 ]; do
        need "${2:-}"
        case "$1" in
            --count) count="$2" ;;
            --os) os="$2" ;;
            --kubelet) kubelet="$2" ;;
            --disk) disk="$2" ;;
            --with) with="$2" ;;
            --owner) owner="$2" ;;
            *) usage ;;
        esac
        shift 2
    done
    dir="$(usable_directory "$dir")"
    if ! [[ "$count" =~ ^[1-9][0-9]?$ ]] || [ "$count" -gt "$most_nodes" ]; then
        say "1 to $most_nodes nodes can be had, not $count"
        exit 2
    fi
    if [[ " ${kubelet_versions[*]} " != *" $kubelet "* ]]; then
        say "there is no kubelet $kubelet: ${kubelet_versions[*]}"
        exit 2
    fi
    if why="$(why_not)"; then
        say "$why"
        exit 3
    fi
    "$hack/control-plane" start "$dir" --with "$with" --network "$control_plane_address/$node_network_bits" \
        ${owner:+--owner "$owner" --guard "$hack/nodes"} >/dev/null
    # Whatever fails from here on leaves nothing behind. Expanded now: where the script ends, this function has no variables.
    # shellcheck disable=SC2064
    trap "stop_cluster $(printf %q "$dir")" EXIT
    mkdir "$dir/nodes"
    sign "$dir" kube-proxy /CN=system:kube-proxy ca
    make_layer "$dir"
    start_dns "$dir"
    for ((number = 1; number <= count; number++)); do
        make_disks "$dir" "$dir/nodes/node-$number" "$number" "$count" "$os" "$kubelet" "$disk"
        touch "$dir/nodes/node-$number/off"
    done
    for ((number = 1; number <= count; number++)); do
        power_on "$dir/nodes/node-$number"
    done
    wait_for_nodes "$dir" "$count"
    start_control_plane_proxy "$dir"
    trap - EXIT
    echo "$dir/kubeconfig"
}

# The cluster's DNS server, and what tells it which Services there are.
start_dns() {
    local dir="$1"
    : >"$dir/dns-hosts"
    run_inside "$dir" dns "$(type -P dnsmasq)" --keep-in-foreground --conf-file=/dev/null --pid-file= --user=root \
        --no-resolv --no-hosts --addn-hosts="$dir/dns-hosts" --local=/#/ --port=53 --bind-interfaces \
        --listen-address="$control_plane_address" --except-interface=lo --log-facility=-
    run "$dir" dns-names "$pieces/dns-names" "$dir"
}

# The API server calls webhooks by their Services.
start_control_plane_proxy() {
    local dir="$1"
    write_kubeconfig "$dir" kube-proxy "$dir/pki/kube-proxy.kubeconfig"
    # It wants to be on a node, and takes from it nothing that matters here.
    proxy_configuration "$dir/pki/kube-proxy.kubeconfig" node-1 >"$dir/kube-proxy.yaml"
    run_inside "$dir" kube-proxy "$dir/layer/usr/lib/nodes/kube-proxy" --config="$dir/kube-proxy.yaml"
}

# serve_socket DIR PORT SOCKET
serve_socket() {
    if ! [[ "$2" =~ ^[1-9][0-9]{0,4}$ ]] || [ "$2" -gt 65535 ] || ! [[ "$3" =~ ^[[:alnum:]/._@%+=~-]{1,107}$ ]]; then
        say "this is no port, or no path of a socket: $2 $3"
        exit 2
    fi
    run_inside "$1" "serve-$2" socat "TCP-LISTEN:$2,bind=$control_plane_address,fork,reuseaddr" "UNIX-CONNECT:$3"
    if ! until_true 10 answers_or_ended "$1" "serve-$2" "$2" || ! is_running "$1" "serve-$2"; then
        say "nobody can listen on port $2: $(tail -n 1 "$1/logs/serve-$2.log")"
        end_program "$1" "serve-$2" KILL
        return 1
    fi
    echo "$control_plane_address"
}

answers_or_ended() { listens "$@" || ! is_running "$1" "$2"; }

cluster_kubectl() { kubectl --kubeconfig "$1/kubeconfig" --cache-dir "$1/kubectl-cache" "${@:2}"; }

ready_nodes() {
    cluster_kubectl "$1" get nodes -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' 2>/dev/null |
        grep -c True || true
}

wait_for_nodes() {
    local dir="$1" count="$2" tick
    for ((tick = 0; tick < node_ready_seconds * 2; tick++)); do
        [ "$(ready_nodes "$dir")" != "$count" ] || break
        sleep 0.5
    done
    if [ "$(ready_nodes "$dir")" != "$count" ]; then
        say "not all nodes are Ready after $node_ready_seconds s:"
        cluster_kubectl "$dir" get nodes >&2 || true
        tail -n 5 "$dir"/logs/supervisor-*.log >&2
        return 1
    fi
    # What Harvester labels its nodes with.
    cluster_kubectl "$dir" label nodes --all harvesterhci.io/managed=true node-role.kubernetes.io/control-plane=true \
        node-role.kubernetes.io/etcd=true >/dev/null
}

list_nodes() {
    local folder state
    for folder in "$1"/nodes/*/; do
        folder="${folder%/}"
        state=off
        ! is_on "$folder" || state=on
        printf '%s %s %s %s\n' "${folder##*/}" "$state" "$(address_of "$(cat "$folder/number")")" "$(cat "$folder/boot-id" 2>/dev/null)"
    done | sort -V
}

# Nodes first, then what they talk to, then the control plane with its network; and nothing is left of it.
stop_cluster() {
    local dir="$1" file name guard='' code=0
    begin_stop "$dir"
    touch "$dir"/nodes/*/off 2>/dev/null || true
    for file in "$dir"/pids/supervisor-* "$dir"/pids/serve-* "$dir/pids/kube-proxy" "$dir/pids/dns-names" "$dir/pids/dns"; do
        name="${file##*/}"
        [ ! -f "$file" ] || end_program "$dir" "$name" KILL
    done
    remove_cgroups "$dir" || code=1
    # The guard may be who does this.
    if [ -f "$dir/pids/guard" ]; then
        read -r guard _ <"$dir/pids/guard"
        [ "$guard" != "$$" ] || rm "$dir/pids/guard"
    fi
    rm -rf "$dir/nodes" "$dir/layer"
    if [ -f "$dir/$marker" ]; then
        "$hack/control-plane" stop "$dir"
    elif [ -z "${CONTROL_PLANE_KEEP:-}" ]; then
        # The guard has stopped it meanwhile, while this was still writing.
        rm -rf "$dir"
    fi
    return "$code"
}
