# shellcheck shell=bash
# Keys, certificates and kubeconfigs of one control plane, valid for a month: the checks before an upgrade want a week.
# Sourced by hack/control-plane.

# sign DIR NAME SUBJECT CA [EXTENSIONS]: a key and a certificate.
sign() {
    local dir="$1/pki" name="$2" subject="$3" ca="$4" extensions="${5:-extendedKeyUsage=clientAuth}"
    openssl ecparam -name prime256v1 -genkey -noout -out "$dir/$name.key"
    openssl req -new -key "$dir/$name.key" -subj "$subject" -out "$dir/$name.csr"
    openssl x509 -req -in "$dir/$name.csr" -CA "$dir/$ca.crt" -CAkey "$dir/$ca.key" -CAcreateserial -days 30 \
        -extfile <(echo "$extensions") -out "$dir/$name.crt" 2>/dev/null
    rm "$dir/$name.csr"
}

# make_ca DIR NAME: a certificate authority.
make_ca() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=$2" \
        -keyout "$1/pki/$2.key" -out "$1/pki/$2.crt" 2>/dev/null
}

make_certificates() {
    local dir="$1" names='DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1'
    if is_networked "$dir"; then
        names+=",IP:$(cat "$dir/address"),IP:$first_service_address"
    fi
    (
        umask 077
        mkdir -p "$dir/pki"
        make_ca "$dir" ca
        make_ca "$dir" front-proxy-ca
        sign "$dir" apiserver /CN=kube-apiserver ca "extendedKeyUsage=serverAuth
subjectAltName=$names"
        sign "$dir" front-proxy-client /CN=front-proxy-client front-proxy-ca
        sign "$dir" admin /O=system:masters/CN=admin ca
        sign "$dir" kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client ca
        sign "$dir" kubelet /CN=kubelet ca "extendedKeyUsage=serverAuth
subjectAltName=IP:127.0.0.1"
        sign "$dir" kube-controller-manager /CN=system:kube-controller-manager ca
        sign "$dir" kube-scheduler /CN=system:kube-scheduler ca
        sign "$dir" kwok /O=system:masters/CN=kwok ca
        sign "$dir" system-upgrade-controller /O=system:masters/CN=system-upgrade-controller ca
        openssl ecparam -name prime256v1 -genkey -noout -out "$dir/pki/service-account.key"
        openssl ec -in "$dir/pki/service-account.key" -pubout -out "$dir/pki/service-account.pub" 2>/dev/null
    )
}

# write_kubeconfig DIR USER FILE [ADDRESS]: how a user reaches the API server, everything inline.
write_kubeconfig() {
    local dir="$1" user="$2" file="$3" address="${4:-127.0.0.1}"
    (
        umask 077
        cat >"$file" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: control-plane
  cluster:
    server: https://$address:$(cat "$dir/port")
    certificate-authority-data: $(base64 -w0 "$dir/pki/ca.crt")
users:
- name: $user
  user:
    client-certificate-data: $(base64 -w0 "$dir/pki/$user.crt")
    client-key-data: $(base64 -w0 "$dir/pki/$user.key")
contexts:
- name: control-plane
  context: {cluster: control-plane, user: $user}
current-context: control-plane
EOF
    )
}
