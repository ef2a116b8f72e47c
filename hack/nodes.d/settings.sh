# shellcheck shell=bash
# Addresses, versions and names that all parts of hack/nodes share. Sourced by it.
# shellcheck disable=SC2034 # used where it is sourced

# The bridge, in a network namespace of the cluster's own: any number of clusters use the same addresses.
readonly node_network='10.54.0' node_network_bits=24
# The control plane's address on it; its DNS server is there as well.
readonly control_plane_address="$node_network.1"
# Node N has address node_network.(10+N), and its pods have pod_network.N.0/24.
readonly first_node=10
readonly pod_network='10.55'
readonly most_nodes=20

# The kubelets that a node can run, oldest first: one source, told apart by the version that is linked in. The control plane
# is not older than any of them.
readonly kubelet_versions=('v1.34.3+rke2r1' 'v1.35.2+rke2r1')
# What runs at first.
readonly default_os='Harvester v1.7.1'
# The file is sparse.
readonly default_disk='20G'
# The partition with the two systems.
readonly state_size='1G'

# Images that are on every node from the beginning, made of busybox.
readonly pause_image='localhost/upgrade-toolkit/pause:1'
readonly busybox_image='localhost/upgrade-toolkit/busybox:1'

# How long nodes may take to become Ready, and to do as they are told.
readonly node_ready_seconds=120
readonly node_obeys_seconds=30
