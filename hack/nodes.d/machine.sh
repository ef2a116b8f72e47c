# shellcheck shell=bash
# What a node is made of: two disks, and the layer of files that all nodes of a cluster share. Sourced by hack/nodes.
#
# The disks are files with file systems of their own. Of the machine's file systems a node has /usr only, as the lowest layer of
# an overlay that is read-only, so that whatever is remounted, filled or removed in a node is the node's.

# What survives a reboot, as on a Harvester node. All else is as the installed system has it.
readonly persistent='oem usr/local etc/rancher var/lib/rancher var/lib/kubelet var/lib/longhorn var/log home root opt'
# Where RKE2 keeps what belongs to the node.
readonly agent='var/lib/rancher/rke2/agent'

address_of() { echo "$node_network.$((first_node + $1))"; }

# The files that nodes have beside those of the machine's /usr: stand-ins for programs of Harvester, and Kubernetes.
make_layer() {
    local dir="$1" root="$1/layer/root" usr="$1/layer/usr" folder shelf file
    mkdir -p "$root" "$usr"
    cp -R "$pieces/root/usr/." "$usr"
    cp -R "$pieces/root/etc" "$root/etc"
    for folder in dev proc sys run tmp var/lib var/tmp etc/rancher usr mnt srv $persistent; do
        mkdir -p "$root/$folder"
    done
    for folder in bin sbin lib lib32 lib64 libx32; do
        [ ! -L "/$folder" ] || cp -P "/$folder" "$root/$folder"
    done
    ln -s ../run "$root/var/run"
    cp -R /etc/alternatives "$root/etc/alternatives"
    cp /etc/passwd /etc/group /etc/protocols /etc/services "$root/etc/" 2>/dev/null || true
    echo "nameserver $control_plane_address" >"$root/etc/resolv.conf"
    ln -s "$(type -P grub-editenv)" "$usr/bin/grub2-editenv"
    shelf="$(node_shelf)"
    for file in $(node_programs); do
        link_or_copy "$shelf/$file" "$usr/lib/nodes/$file"
    done
    link_or_copy "$("$hack/crictl" path)" "$usr/lib/nodes/crictl"
    make_base_images "$dir/layer/base-images.tar"
}

link_or_copy() { ln -L "$1" "$2" 2>/dev/null || cp "$1" "$2"; }

# make_disks DIR FOLDER NUMBER COUNT OS KUBELET SIZE: a node that was installed and never booted.
make_disks() {
    local dir="$1" folder="$2" number="$3" count="$4" os="$5" kubelet="$6" size="$7" seed="$2/seed" path
    mkdir -p "$folder" "$seed"
    echo "$number" >"$folder/number"
    echo "$count" >"$folder/count"
    openssl rand -hex 16 >"$folder/machine-id"
    for path in $persistent; do
        mkdir -p "$seed/$path"
    done
    printf 'os:\n  hostname: %s\n  externalstorage:\n    enabled: false\n' "${folder##*/}" >"$seed/oem/harvester.config"
    : >"$seed/oem/grubcustom"
    write_node_files "$dir" "$folder" "$number" "$seed"
    mkdir -p "$seed/$agent/images" "$seed/$agent/pod-manifests" "$seed/var/lib/rancher/rke2/server/manifests"
    cp "$dir/layer/base-images.tar" "$seed/$agent/images/base-images.tar"
    ln -s "/var/lib/rancher/rke2/data/$kubelet/bin" "$seed/var/lib/rancher/rke2/bin"
    for path in "${kubelet_versions[@]}"; do
        write_programs "$seed/var/lib/rancher/rke2/data/$path/bin" "$path"
    done
    make_file_system "$folder/data.img" "$size" COS_PERSISTENT "$seed"
    rm -rf "$seed"
    make_state "$folder" "$os"
}

# make_file_system FILE SIZE LABEL CONTENT
make_file_system() {
    truncate -s "$2" "$1"
    mkfs.ext4 -q -m 0 -L "$3" -E lazy_itable_init=1,lazy_journal_init=1 -d "$4" "$1"
}

# The partition of systems: two, of which the first boots, and a record of them.
make_state() {
    local folder="$1" os="$2" seed="$1/seed" system="$1/system"
    mkdir -p "$seed/cOS" "$system/etc" "$system/usr/lib"
    printf 'NAME="Harvester"\nID=harvester\nPRETTY_NAME="%s"\nVERSION_ID="%s"\n' "$os" "${os##* }" >"$system/usr/lib/os-release"
    ln -s ../usr/lib/os-release "$system/etc/os-release"
    "$pieces/root/usr/lib/nodes/make-system" "$system" "$seed/cOS/active.img"
    cp --sparse=always "$seed/cOS/active.img" "$seed/cOS/passive.img"
    printf 'state:\n  label: COS_STATE\n  active:\n    label: COS_ACTIVE\n  passive:\n    label: COS_PASSIVE\n' >"$seed/state.yaml"
    make_file_system "$folder/state.img" "$state_size" COS_STATE "$seed"
    rm -rf "$seed" "$system"
    echo active >"$folder/next-boot"
}

# RKE2's programs of one version, of which only the kubelet differs here.
write_programs() {
    local bin="$1" version="$2" program
    mkdir -p "$bin"
    ln -s "/usr/lib/nodes/kubelet-$version" "$bin/kubelet"
    ln -s /usr/lib/nodes/crictl "$bin/crictl"
    for program in ctr containerd; do
        ln -s "/usr/bin/$program" "$bin/$program"
    done
}

# Keys, kubeconfigs and configuration of a node's programs.
write_node_files() {
    local dir="$1" node="${2##*/}" number="$3" to="$4/$agent" address
    address="$(address_of "$number")"
    mkdir -p "$to/etc/containerd" "$to/etc/cni"
    sign "$dir" "$node" "/O=system:nodes/CN=system:node:$node" ca
    sign "$dir" "$node-serving" "/O=system:nodes/CN=system:node:$node" ca "extendedKeyUsage=serverAuth
subjectAltName=DNS:$node,IP:$address"
    write_kubeconfig "$dir" "$node" "$to/kubelet.kubeconfig" "$control_plane_address"
    write_kubeconfig "$dir" kube-proxy "$to/kubeproxy.kubeconfig" "$control_plane_address"
    cp "$dir/pki/ca.crt" "$to/client-ca.crt"
    mv "$dir/pki/$node-serving.crt" "$to/serving-kubelet.crt"
    mv "$dir/pki/$node-serving.key" "$to/serving-kubelet.key"
    printf 'runtime-endpoint: unix:///run/k3s/containerd/containerd.sock\n' >"$to/etc/crictl.yaml"
    kubelet_configuration "$address" >"$to/etc/kubelet.yaml"
    proxy_configuration "/$agent/kubeproxy.kubeconfig" "$node" >"$to/etc/kube-proxy.yaml"
    containerd_configuration >"$to/etc/containerd/config.toml"
    cni_configuration "$number" >"$to/etc/cni/10-pods.conflist"
}
