# shellcheck shell=bash
# The power button of nodes, and ways into them. Sourced by hack/nodes. FOLDER is that of a node: DIR/nodes/NAME.

cluster_of() { (cd "$1/../.." && pwd -P); }

# Whether a node is on. It may still be booting.
is_on() { is_running "$(cluster_of "$1")" "supervisor-${1##*/}"; }

# The id of a node's first process, as the machine has it; nothing and a failure where there is none.
init_of() {
    local pid since
    [ -f "$1/init" ] || return 1
    read -r pid since <"$1/init"
    [ -n "$since" ] && [ "$(start_time_of "$pid")" = "$since" ] || return 1
    echo "$pid"
}

# in_node FOLDER COMMAND...
in_node() {
    local pid
    if ! pid="$(init_of "$1")"; then
        say "${1##*/} is off"
        return 1
    fi
    shift
    nsenter --target "$pid" --mount --uts --ipc --net --pid --cgroup --root --wd \
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/var/lib/rancher/rke2/bin \
        HOME=/root TERM="${TERM:-dumb}" CRI_CONFIG_FILE="/$agent/etc/crictl.yaml" "$@"
}

# until_true SECONDS COMMAND...
until_true() {
    local tick ticks="$(($1 * 10))"
    shift
    for ((tick = 0; tick < ticks; tick++)); do
        ! "$@" || return 0
        sleep 0.1
    done
    return 1
}

# Whether a node has put its root together: only then is its init at work.
has_booted() { init_of "$1" >/dev/null && in_node "$1" test -p /run/init.pipe 2>/dev/null; }
booted_since() { [ "$(cat "$1/boot-id")" != "$2" ] && has_booted "$1"; }

power_on() {
    local folder="$1" dir node="${1##*/}"
    dir="$(cluster_of "$folder")"
    if is_on "$folder"; then
        return
    fi
    rm -f "$folder/off"
    run "$dir" "supervisor-$node" "$pieces/supervisor" "$dir" "$node"
    if ! until_true "$node_obeys_seconds" has_booted "$folder"; then
        say "$node does not boot:"
        tail -n 5 "$dir/logs/supervisor-$node.log" >&2
        return 1
    fi
}

# Everything in the node dies at once.
cut_power() {
    local folder="$1" dir pid
    dir="$(cluster_of "$folder")"
    touch "$folder/off"
    if pid="$(init_of "$folder")"; then
        kill -KILL "$pid"
    fi
    until_true "$node_obeys_seconds" is_off "$folder" || end_program "$dir" "supervisor-${folder##*/}" KILL
}

is_off() { ! is_on "$1"; }

reboot_node() {
    local folder="$1" before
    before="$(cat "$folder/boot-id")"
    if ! init_of "$folder" >/dev/null; then
        say "${folder##*/} is off"
        return 1
    fi
    # Whoever tells it ends with it.
    { in_node "$folder" reboot || true; } 2>/dev/null
    if ! until_true "$node_obeys_seconds" booted_since "$folder" "$before"; then
        say "${folder##*/} does not come back"
        return 1
    fi
}

# From which of its systems the node boots from now on: a boot loader that falls back takes the passive one.
set_next_boot() {
    case "$2" in
        active | passive) echo "$2" >"$1/next-boot" ;;
        *) usage ;;
    esac
}

# Has the stand-in for Rancher's system agent install and start another version, unless the upgrade holds it back.
set_kubelet_version() {
    local folder="$1" version="$2"
    # shellcheck disable=SC2016 # for the shell in the node
    in_node "$folder" bash -euc 'test -d "/var/lib/rancher/rke2/data/$1/bin" || { echo "nodes: there is no kubelet $1" >&2; exit 1; }
        mkdir -p /var/lib/rancher/agent; echo "$1" >/var/lib/rancher/agent/wanted-version' bash "$version"
    if ! until_true "$node_obeys_seconds" runs_kubelet "$folder" "$version"; then
        say "${folder##*/} does not take $version: its rancher-system-agent is held back, or has ended"
        return 1
    fi
}

runs_kubelet() { [ "$(in_node "$1" readlink /var/lib/rancher/rke2/bin)" = "/var/lib/rancher/rke2/data/$2/bin" ]; }

show_logs() {
    local log
    log="$(cluster_of "$1")/logs/supervisor-${1##*/}.log"
    if [ -n "$2" ]; then
        sed -n "s/^$2: //p" "$log"
    else
        cat "$log"
    fi
}
