# shellcheck shell=bash
# The programs of one control plane and how each is started. Sourced by hack/control-plane.

# How long the API server may take to be ready, and everything else after it.
readonly ready_seconds=180
# How often other ports are tried when another process was faster.
readonly port_attempts=5

# The programs of a list of parts.
programs_of() {
    local part
    for part in ${1//,/ }; do
        case "$part" in
            none) ;;
            kcm) echo kube-controller-manager ;;
            scheduler) echo kube-scheduler ;;
            kwok) echo kwok ;;
            suc) echo system-upgrade-controller ;;
            *) say "unknown part $part: kcm, scheduler, kwok, suc or none" && exit 2 ;;
        esac
    done
}

# How to get a program that is missing.
how_to_get() {
    if [ "$1" = system-upgrade-controller ]; then
        echo 'put it into the directory of KUBEBUILDER_ASSETS'
    else
        echo "run 'hack/control-plane build', or put it into the directory of KUBEBUILDER_ASSETS"
    fi
}

# A loopback port below the range that the system gives to clients, on which no process listens.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
}

start_etcd() {
    local dir="$1" client peer
    client="http://127.0.0.1:$(cat "$dir/etcd-port")"
    peer="http://127.0.0.1:$(cat "$dir/etcd-peer-port")"
    # What is in it matters as long as its processes live, so nothing has to reach the disk.
    run_inside "$dir" etcd "$(find_program etcd)" --name=test --data-dir="$dir/etcd" --unsafe-no-fsync \
        --listen-client-urls="$client" --advertise-client-urls="$client" \
        --listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" --initial-cluster="test=$peer" \
        --quota-backend-bytes=1073741824 --log-level=warn
}

# What the API server asks of kubelets and Services goes to a socket that a test may listen on, and nowhere else: HTTP
# CONNECT with the address of the node or the Service. It would refuse nodes on loopback addresses, and no node has another
# one here.
write_egress() {
    cat >"$1/egress.yaml" <<EOF
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: $1/kubelets.sock}}
EOF
}

start_kube_apiserver() {
    local dir="$1" pki="$1/pki" reach
    if is_networked "$dir"; then
        # It reaches nodes and Services itself, and they reach it.
        reach=(--bind-address=0.0.0.0 --advertise-address="$(cat "$dir/address")")
    else
        write_egress "$dir"
        reach=(--bind-address=127.0.0.1 --advertise-address=127.0.0.1 --endpoint-reconciler-type=none
            --egress-selector-config-file="$dir/egress.yaml")
    fi
    run_inside "$dir" kube-apiserver "$(find_program kube-apiserver)" \
        "${reach[@]}" --secure-port="$(cat "$dir/port")" --etcd-servers="http://127.0.0.1:$(cat "$dir/etcd-port")" \
        --service-cluster-ip-range="$service_range" --allow-privileged=true \
        --authorization-mode=Node,RBAC \
        --enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement,MutatingAdmissionWebhook,ValidatingAdmissionWebhook \
        --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
        --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
        --kubelet-preferred-address-types=InternalIP \
        --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$pki/service-account.pub" --service-account-signing-key-file="$pki/service-account.key" \
        --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
        --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
        --requestheader-extra-headers-prefix=X-Remote-Extra- \
        --proxy-client-cert-file="$pki/front-proxy-client.crt" --proxy-client-key-file="$pki/front-proxy-client.key" \
        --audit-policy-file="$parts/audit-policy.yaml" --audit-log-path="$dir/audit.log" --audit-log-mode=blocking
}

start_program() {
    local dir="$1" program="$2" path
    path="$(find_program "$program")"
    case "$program" in
        etcd) start_etcd "$dir" ;;
        kube-apiserver) start_kube_apiserver "$dir" ;;
        kube-controller-manager)
            write_kubeconfig "$dir" "$program" "$dir/pki/$program.kubeconfig"
            run_inside "$dir" "$program" "$path" --kubeconfig="$dir/pki/$program.kubeconfig" --secure-port=0 \
                --leader-elect=false --use-service-account-credentials=true --root-ca-file="$dir/pki/ca.crt" \
                --service-account-private-key-file="$dir/pki/service-account.key" \
                --cluster-signing-cert-file="$dir/pki/ca.crt" --cluster-signing-key-file="$dir/pki/ca.key"
            ;;
        kube-scheduler)
            write_kubeconfig "$dir" "$program" "$dir/pki/$program.kubeconfig"
            run_inside "$dir" "$program" "$path" --kubeconfig="$dir/pki/$program.kubeconfig" --secure-port=0 --leader-elect=false
            ;;
        kwok)
            write_kubeconfig "$dir" "$program" "$dir/pki/$program.kubeconfig"
            run_inside "$dir" "$program" "$path" --kubeconfig="$dir/pki/$program.kubeconfig" --config="$parts/kwok.yaml"
            ;;
        system-upgrade-controller)
            write_kubeconfig "$dir" "$program" "$dir/pki/$program.kubeconfig"
            run_inside "$dir" "$program" "$path" --kubeconfig="$dir/pki/$program.kubeconfig" \
                --name=system-upgrade-controller --namespace=cattle-system
            ;;
        *) say "unknown program $program" && exit 2 ;;
    esac
}

# Asks the API server as the administrator; fails unless it answers with success.
ask() {
    local dir="$1" path="$2"
    curl --silent --fail --max-time 5 --output /dev/null --cacert "$dir/pki/ca.crt" \
        --cert "$dir/pki/admin.crt" --key "$dir/pki/admin.key" "https://127.0.0.1:$(cat "$dir/port")$path"
}

# etcd and the API server, on ports that are free. Whoever picks the same port at the same moment tries others.
start_api() {
    local dir="$1" attempt
    for ((attempt = 1; attempt <= port_attempts; attempt++)); do
        free_port >"$dir/port"
        free_port >"$dir/etcd-port"
        free_port >"$dir/etcd-peer-port"
        if start_forwarder "$dir" && start_program "$dir" etcd && start_program "$dir" kube-apiserver && wait_until_ready "$dir"; then
            write_kubeconfig "$dir" admin "$dir/kubeconfig"
            return
        fi
        end_program "$dir" kube-apiserver KILL
        end_program "$dir" etcd KILL
        end_forwarder "$dir"
        rm -rf "$dir/etcd"
    done
    say "the API server did not start:"
    tail -n 5 "$dir/logs/etcd.log" "$dir/logs/kube-apiserver.log" >&2 || true
    exit 1
}

# Until /readyz says yes; fails when one of the two has ended or time is up.
wait_until_ready() {
    local dir="$1" tick
    for ((tick = 0; tick < ready_seconds * 10; tick++)); do
        is_running "$dir" etcd && is_running "$dir" kube-apiserver || return 1
        ask "$dir" /readyz && return
        sleep 0.1
    done
    return 1
}

# Until pods can be created: a real controller manager makes the default ServiceAccount.
wait_until_usable() {
    local dir="$1" with="$2" tick program
    for ((tick = 0; tick < ready_seconds * 10; tick++)); do
        for program in $(programs_of "$with"); do
            if ! is_running "$dir" "$program"; then
                say "$program has ended:"
                tail -n 5 "$dir/logs/$program.log" >&2
                exit 1
            fi
        done
        if [[ ",$with," != *,kcm,* ]] || ask "$dir" /api/v1/namespaces/default/serviceaccounts/default; then
            return
        fi
        sleep 0.1
    done
    say "there is no default ServiceAccount after $ready_seconds s:"
    tail -n 5 "$dir/logs/kube-controller-manager.log" >&2
    exit 1
}

# Starts a program again on the same ports; an API server is waited for.
restart_program() {
    local dir="$1" program="$2"
    end_program "$dir" "$program" KILL
    start_program "$dir" "$program"
    case "$program" in
        etcd | kube-apiserver) wait_until_ready "$dir" ;;
    esac
}
