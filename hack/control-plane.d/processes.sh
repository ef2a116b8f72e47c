# shellcheck shell=bash
# The directory of one control plane and the processes in it: started, known by id and start time, ended. Sourced by
# hack/control-plane and hack/nodes.

# In a directory: a control plane was started here.
readonly marker='.control-plane'
# In a directory that is being stopped: nothing is started there any more.
readonly stopping='.stopping'
# A socket's path has room for 107 bytes, and ours are in the directory.
readonly longest_directory=90
# How long a program may take to end when asked to.
readonly patience_seconds=20

# The absolute path of a directory to start something in, without symbolic links. Its name becomes part of options of
# programs that know no quoting.
usable_directory() {
    local dir
    if [ -L "$1" ] && [ "$(stat -c %u "$1")" != "$(id -u)" ]; then
        say "$1 is a symbolic link of somebody else"
        return 2
    fi
    dir="$(realpath -m -- "$1")"
    if [[ ! "$dir" =~ ^[[:alnum:]/._@%+=~-]+$ ]]; then
        say "the path of a directory may have letters, digits and ._@%+=~- only, not: $dir"
        return 2
    fi
    if [ "${#dir}" -gt "$longest_directory" ]; then
        say "the path of a directory may have $longest_directory characters, for sockets in it; this has ${#dir}: $dir"
        return 2
    fi
    if [ -e "$dir" ] && { [ ! -d "$dir" ] || [ ! -O "$dir" ]; }; then
        say "$dir is there, and not a directory of this user"
        return 2
    fi
    if [ -e "$dir" ] && [ -n "$(ls -A "$dir")" ]; then
        say "$dir is not empty"
        return 1
    fi
    echo "$dir"
}

# make_directory DIR [KIND]: empty, for nobody else, and marked as ours before anything is in it.
make_directory() {
    mkdir -p "$1"
    if [ ! -O "$1" ]; then
        say "$1 belongs to somebody else"
        return 1
    fi
    chmod 700 "$1"
    echo "${2:-control-plane}" >"$1/$marker"
}

# When a process started, in ticks since boot: a process id that was reused shows by it.
start_time_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# run DIR NAME COMMAND...: in the background, in a session of its own so that a Ctrl-C at a test is not one for it. Whoever
# stops the directory at the same time waits until the process is recorded, or prevents it.
run() {
    local dir="$1" name="$2" pid code=0
    shift 2
    # Not with -p: a directory that was removed is not made again.
    [ -d "$dir/pids" ] || mkdir "$dir/pids" || return
    [ -d "$dir/logs" ] || mkdir "$dir/logs" || return
    exec 8>"$dir/.lock" || return
    flock 8
    if [ ! -f "$dir/$marker" ] || [ -e "$dir/$stopping" ]; then
        say "$dir is being stopped"
        code=1
    elif is_running "$dir" "$name"; then
        say "$name is already running in $dir"
        code=1
    else
        setsid "$@" >>"$dir/logs/$name.log" 2>&1 </dev/null 8>&- 9>&- &
        pid=$!
        # One that nobody could end later is ended now.
        if ! echo "$pid $(start_time_of "$pid")" >"$dir/pids/$name"; then
            say "the id of $name cannot be recorded"
            kill -KILL "$pid" "-$pid" 2>/dev/null || true
            code=1
        fi
    fi
    exec 8>&-
    return "$code"
}

# Has nothing be started in a directory any more.
begin_stop() {
    touch "$1/$stopping" 2>/dev/null || true
    if [ -d "$1/pids" ]; then
        flock "$1/.lock" true
    fi
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
    local dir="$1" name guard='' try
    begin_stop "$dir"
    for name in system-upgrade-controller kwok kube-scheduler kube-controller-manager kube-apiserver etcd \
        forwarder forwarder-inside forwarder-rke2 network; do
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
        # What was started there may still be writing.
        for try in 1 2 3; do
            ! rm -rf "$dir" || return 0
            sleep 0.2
        done
        return 1
    else
        rm -rf "$dir/$marker" "$dir/$stopping" "$dir/pids" "$dir/pki" "$dir/etcd"
    fi
}

# guard DIR OWNER SCRIPT: has a script stop everything when the owner has ended, however it ended.
guard() {
    local dir="$1" owner="$2" script="$3"
    # shellcheck disable=SC2016 # expanded by the inner shell
    run "$dir" guard bash -c 'tail --pid="$1" -s 0.2 -f /dev/null; exec "$2" stop "$3"' guard "$owner" "$script" "$dir"
}
