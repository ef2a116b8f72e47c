# shellcheck shell=bash
# Processes of one control plane: started, known by id and start time, ended. Sourced by hack/control-plane.

# In a directory: a control plane was started here.
readonly marker='.control-plane'
# How long a program may take to end when asked to.
readonly patience_seconds=20

# When a process started, in ticks since boot: a process id that was given to somebody else shows by it.
start_time_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# run DIR NAME COMMAND...: in the background, in a session of its own so that a Ctrl-C at a test is not one for it.
run() {
    local dir="$1" name="$2" pid
    shift 2
    mkdir -p "$dir/pids" "$dir/logs"
    setsid "$@" >>"$dir/logs/$name.log" 2>&1 </dev/null 9>&- &
    pid=$!
    echo "$pid $(start_time_of "$pid")" >"$dir/pids/$name"
}

# Whether a program that was started here still runs.
is_running() {
    local pid since
    [ -f "$1/pids/$2" ] || return 1
    read -r pid since <"$1/pids/$2"
    [ -n "$since" ] && [ "$(start_time_of "$pid")" = "$since" ] && ! grep -q '^State:[[:space:]]Z' "/proc/$pid/status" 2>/dev/null
}

# end_program DIR NAME [SIGNAL]: and waits until it is gone; after a while without asking.
end_program() {
    local dir="$1" name="$2" signal="${3:-TERM}" pid tick
    is_running "$dir" "$name" || return 0
    read -r pid _ <"$dir/pids/$name"
    # The whole session that was started for it, and only that: its id is the program's.
    kill "-$signal" -- "-$pid" 2>/dev/null || true
    for ((tick = 0; tick < patience_seconds * 20; tick++)); do
        is_running "$dir" "$name" || return 0
        sleep 0.05
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
}

# Ends everything that was started in a directory: clients first, the store last. Then removes it.
stop_all() {
    local dir="$1" name guard=''
    for name in system-upgrade-controller kwok kube-scheduler kube-controller-manager kube-apiserver etcd \
        forwarder forwarder-inside network; do
        # Nothing of it is to be kept, so nobody has to tidy up before it ends.
        end_program "$dir" "$name" KILL
    done
    # The guard may be who does this.
    if [ -f "$dir/pids/guard" ]; then
        read -r guard _ <"$dir/pids/guard"
    fi
    if [ "$guard" != "$$" ]; then
        end_program "$dir" guard KILL
    fi
    if [ -z "${CONTROL_PLANE_KEEP:-}" ]; then
        rm -rf "$dir"
    else
        rm -rf "$dir/$marker" "$dir/pids" "$dir/pki" "$dir/etcd"
    fi
}

# guard DIR OWNER SCRIPT: has a script stop everything when the owner has ended, however it ended.
guard() {
    local dir="$1" owner="$2" script="$3"
    # shellcheck disable=SC2016 # expanded by the inner shell
    run "$dir" guard bash -c 'tail --pid="$1" -s 0.2 -f /dev/null; exec "$2" stop "$3"' guard "$owner" "$script" "$dir"
}
