# shellcheck shell=bash
# Configuration of the programs of a node. Sourced by hack/nodes.

# Thresholds are low and garbage collection of images is off: nodes share a disk with the machine, and which images there
# are is what tests are about.
kubelet_configuration() {
    cat <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /$agent/client-ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /$agent/serving-kubelet.crt
tlsPrivateKeyFile: /$agent/serving-kubelet.key
address: $1
containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock
staticPodPath: /$agent/pod-manifests
clusterDomain: cluster.local
clusterDNS: [$control_plane_address]
resolvConf: /etc/resolv.conf
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
maxPods: 200
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 4s
syncFrequency: 10s
logging: {verbosity: 2}
EOF
}

# proxy_configuration KUBECONFIG NAME. It leaves the machine's connection tracking as it is.
proxy_configuration() {
    cat <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $1}
hostnameOverride: $2
clusterCIDR: $pod_network.0.0/16
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
oomScoreAdj: 0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
EOF
}

# As RKE2 has it, as far as paths go. A machine without CAP_SYS_RESOURCE cannot lower scores.
containerd_configuration() {
    cat <<EOF
version = 2
root = "/$agent/containerd"
state = "/run/k3s/containerd"
[grpc]
  address = "/run/k3s/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  restrict_oom_score_adj = true
  enable_selinux = false
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$cni_plugins"
    conf_dir = "/$agent/etc/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
EOF
}

# Pods are routed, not bridged: what one asks of a Service passes the rules of its node even if a neighbour answers.
cni_configuration() {
    cat <<EOF
{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "$pod_network.$1.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
EOF
}
