# shellcheck shell=bash
# The programs of nodes: which there are, how those that Debian lacks are built, and why there can be no nodes. Sourced by
# hack/nodes.
#
# kubelet and kube-proxy come from the same version of Kubernetes as the control plane, in a Go module of their own: what the
# control plane needs is built without them. They are kept in our cache.

node_cache="${XDG_CACHE_HOME:-$HOME/.cache}/upgrade-toolkit/nodes"

# Commands of Debian packages that nodes and their scripts call; hack/prepare installs them. Some are in sbin.
readonly node_commands=(containerd ctr runc ip nft iptables busybox dnsmasq socat mkfs.ext4 nsenter unshare pivot_root
    losetup openssl curl kubectl grub-editenv)
readonly cni_plugins='/usr/lib/cni'

# Where the cache keeps what is built: by everything the go.mod says.
node_shelf() {
    local digest version
    digest="$(sha256sum <"$pieces/kubernetes/go.mod")"
    version="$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' "$pieces/kubernetes/go.mod")"
    echo "$node_cache/kubernetes-$version-${digest:0:8}"
}

# What the cache should have.
node_programs() {
    local version
    echo kube-proxy
    for version in "${kubelet_versions[@]}"; do
        echo "kubelet-$version"
    done
}

missing_node_programs() {
    local program shelf
    shelf="$(node_shelf)"
    for program in $(node_programs); do
        [ -x "$shelf/$program" ] || echo "$program"
    done
}

missing_commands() {
    local command
    for command in "${node_commands[@]}"; do
        PATH="$PATH:/usr/sbin:/sbin" type -P "$command" >/dev/null || echo "$command"
    done
    [ -x "$cni_plugins/ptp" ] || echo "$cni_plugins/ptp"
}

# Prints in one line why nodes cannot be started here, and succeeds; fails if they can.
why_not() {
    local missing
    if why_never; then
        return
    fi
    missing="$({ "$hack/control-plane" missing | tr ' ' '\n' | grep -vx kwok; missing_node_programs; "$hack/crictl" path >/dev/null 2>&1 || echo crictl; } | paste -sd' ')"
    [ -n "$missing" ] || return 1
    echo "there is no $missing: run 'hack/nodes build' (needs Go)"
}

# The same for what no build can change.
why_never() {
    local missing folder
    if [ "$(id -u)" != 0 ]; then
        echo 'nodes need root: for namespaces, mounts and cgroups'
    elif missing="$(missing_commands | paste -sd' ')" && [ -n "$missing" ]; then
        echo "there is no $missing: run 'hack/prepare'"
    elif [ "$(readlink /bin)" != usr/bin ] && [ "$(readlink /bin)" != /usr/bin ]; then
        echo 'the programs of this machine are not all under /usr'
    elif [[ "$(ldd /usr/bin/busybox 2>&1)" != *'not a dynamic'* ]]; then
        echo "busybox is not static: install Debian's busybox-static"
    elif ! grep -q ' - cgroup ' /proc/self/mountinfo; then
        echo 'this machine has cgroup v2 only; nodes are made for v1 (kernel argument systemd.unified_cgroup_hierarchy=0)'
    elif ! folder="$(mktemp -d)"; then
        echo 'there is no room for temporary files'
    elif ! missing="$(try_kernel "$folder" 2>&1)"; then
        rm -rf "$folder"
        echo "the kernel or its guards do not allow it: $(tail -n 1 <<<"$missing")"
    else
        rm -rf "$folder"
        return 1
    fi
}

# Does once, in namespaces that end with it, what nodes need of the kernel.
try_kernel() {
    truncate -s 2M "$1/disk"
    PATH="$PATH:/usr/sbin:/sbin" unshare --mount --net --uts --ipc --pid --fork --kill-child --cgroup --propagation private bash -euc '
        mount -t tmpfs tmpfs /mnt
        mkdir /mnt/{up,work,root,disk}
        mount -t overlay -o lowerdir=/usr,upperdir=/mnt/up,workdir=/mnt/work overlay /mnt/root
        mkfs.ext4 -q "$1/disk"
        mount -o loop "$1/disk" /mnt/disk
        ip link add name bridge0 type bridge
        ip link add name cable0 type veth peer name cable1
        nft add table ip t' bash "$1"
}

# Builds what is missing, of the control plane as well. One build at a time: a second one waits and finds it there.
build_programs() {
    local missing
    if missing="$(why_never)"; then
        say "$missing"
        return 3
    fi
    "$hack/control-plane" build
    "$hack/crictl" build
    missing="$(missing_node_programs)"
    [ -n "$missing" ] || return 0
    if ! command -v go >/dev/null; then
        say "there is no ${missing//$'\n'/ }, and no Go to build them"
        return 3
    fi
    mkdir -p "$node_cache"
    exec 9>"$node_cache/lock"
    flock 9
    # shellcheck disable=SC2046 # words of their own
    build_node_programs $(missing_node_programs)
    exec 9>&-
}

build_node_programs() (
    local program version flags shelf
    shelf="$(node_shelf)"
    work="$(mktemp -d "$node_cache/building.XXXXXX")"
    trap 'rm -rf "$work"' EXIT
    cp "$pieces/kubernetes/go.mod" "$pieces/kubernetes/go.sum" "$work"
    cd "$work"
    for program in "$@"; do
        version="${program#kubelet-}"
        [ "$version" != "$program" ] || version="$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' go.mod)"
        flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/client-go/pkg/version.gitVersion=$version"
        say "building $program"
        nice -n 10 env CGO_ENABLED=0 GOWORK=off go build -mod=readonly -trimpath -p 2 -ldflags "$flags" -o built \
            "k8s.io/kubernetes/cmd/${program%%-v[0-9]*}"
        mkdir -p "$shelf"
        mv built "$shelf/$program"
    done
)
