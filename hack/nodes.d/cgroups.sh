# shellcheck shell=bash
# The control groups of nodes: one folder per node in every hierarchy of the machine (cgroup v1), and a namespace in which
# that folder is the root. Sourced by hack/nodes and by the supervisor of a node.

# The hierarchies of the machine, one per line: where it is mounted, and the options to mount it with.
cgroup_hierarchies() {
    local line at kind rest options
    while read -r line; do
        kind="${line##* - }"
        [ "${kind%% *}" = cgroup ] || continue
        read -r _ _ _ _ at _ <<<"$line"
        read -r _ _ rest <<<"$kind"
        options="${rest#rw,}"
        case "$options" in
            *name=*) options="none,$options" ;;
        esac
        echo "$at $options"
    done </proc/self/mountinfo
}

# The name that the folders of a cluster have, by its directory.
cgroup_name() {
    local digest
    digest="$(sha256sum <<<"$1")"
    echo "upgrade-toolkit-${digest:0:12}"
}

# make_cgroups DIR NODE: empty ones. A cpuset takes nobody in before it knows which processors there are.
make_cgroups() {
    local at path
    while read -r at _; do
        path="$at/$(cgroup_name "$1")"
        mkdir -p "$path"
        if [ -f "$path/cpuset.cpus" ]; then
            echo 1 >"$path/cgroup.clone_children"
            cat "$at/cpuset.cpus" >"$path/cpuset.cpus"
            cat "$at/cpuset.mems" >"$path/cpuset.mems"
        fi
        mkdir -p "$path/$2"
    done < <(cgroup_hierarchies)
}

# enter_cgroups DIR NODE PID
enter_cgroups() {
    local at
    while read -r at _; do
        echo "$3" >"$at/$(cgroup_name "$1")/$2/cgroup.procs"
    done < <(cgroup_hierarchies)
}

# remove_cgroups DIR [NODE]: of one node or of all. Processes that were killed leave theirs a moment later. Fails if one stays.
remove_cgroups() {
    local at path tick code=0
    while read -r at _; do
        path="$at/$(cgroup_name "$1")${2:+/$2}"
        for ((tick = 0; tick < 200; tick++)); do
            [ -d "$path" ] || break
            find "$path" -depth -type d -exec rmdir {} \; 2>/dev/null || true
            [ -d "$path" ] || break
            sleep 0.05
        done
        if [ -d "$path" ]; then
            echo "the control group $path cannot be removed; processes in it or below: $(find "$path" -name cgroup.procs -exec cat {} + | paste -sd' ')" >&2
            code=1
        fi
    done < <(cgroup_hierarchies)
    return "$code"
}
