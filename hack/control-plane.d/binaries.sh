# shellcheck shell=bash
# The programs of the control plane: where they are, and how they are built. Sourced by hack/control-plane.
#
# A program comes from KUBEBUILDER_ASSETS (the convention of envtest) if it is there, else from our cache, which `build`
# fills from the Go modules next to this file. go.mod states the versions, go.sum what exactly they are.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/upgrade-toolkit/control-plane"

# module directory, module that carries the version, programs
readonly modules=(
    'etcd go.etcd.io/etcd/server/v3 etcd'
    'kubernetes k8s.io/kubernetes kube-apiserver kube-controller-manager kube-scheduler'
    'kwok sigs.k8s.io/kwok kwok'
)

# The Go package a program is built from.
package_of() {
    case "$1" in
        etcd) echo go.etcd.io/etcd/server/v3 ;;
        kwok) echo sigs.k8s.io/kwok/cmd/kwok ;;
        *) echo "k8s.io/kubernetes/cmd/$1" ;;
    esac
}

# The version of a module as its go.mod has it.
version_of() { awk -v module="$2" '$1 == "require" { sub("require ", "") } $1 == module { print $2; exit }' "$parts/$1/go.mod"; }

# Where the cache keeps what is built from a module: by version, and by everything else its go.mod says.
shelf_of() {
    local digest
    digest="$(sha256sum <"$parts/$1/go.mod")"
    echo "$cache/$1-$(version_of "$1" "$2")-${digest:0:8}"
}

# The path of a program; nothing and a failure if it is nowhere.
find_program() {
    local program="$1" entry name module programs
    if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$program" ]; then
        echo "$KUBEBUILDER_ASSETS/$program"
        return
    fi
    for entry in "${modules[@]}"; do
        read -r name module programs <<<"$entry"
        if [[ " $programs " == *" $program "* ]] && [ -x "$(shelf_of "$name" "$module")/$program" ]; then
            echo "$(shelf_of "$name" "$module")/$program"
            return
        fi
    done
    return 1
}

# One module: its programs that are missing, built in a temporary place and moved there when complete.
build_module() (
    local name="$1" module="$2" version shelf work program flags
    shift 2
    version="$(version_of "$name" "$module")"
    shelf="$(shelf_of "$name" "$module")"
    flags='-s -w'
    if [ "$name" = kubernetes ]; then
        flags+=" -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/client-go/pkg/version.gitVersion=$version"
    fi
    work="$(mktemp -d "$cache/building.XXXXXX")"
    trap 'rm -rf "$work"' EXIT
    cp "$parts/$name/go.mod" "$parts/$name/go.sum" "$work"
    for program in "$@"; do
        find_program "$program" >/dev/null && continue
        say "building $program $version"
        (cd "$work" && nice -n 10 env CGO_ENABLED=0 GOWORK=off go build -mod=readonly -trimpath -p 2 -ldflags "$flags" -o "$program" "$(package_of "$program")")
        mkdir -p "$shelf"
        mv "$work/$program" "$shelf/$program"
    done
)

# All programs that are missing. One build at a time: a second one waits and finds them there.
build_all() {
    local entry name module programs
    missing_programs >/dev/null && return
    if ! command -v go >/dev/null; then
        explain_missing
        return 3
    fi
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    for entry in "${modules[@]}"; do
        read -r name module programs <<<"$entry"
        # shellcheck disable=SC2086 # the programs are words of their own
        build_module "$name" "$module" $programs
    done
    exec 9>&-
}

# Names of programs that are nowhere; succeeds if there are none.
missing_programs() {
    local entry name module programs program missing=()
    for entry in "${modules[@]}"; do
        read -r name module programs <<<"$entry"
        for program in $programs; do
            find_program "$program" >/dev/null || missing+=("$program")
        done
    done
    echo "${missing[*]}"
    [ "${#missing[@]}" = 0 ]
}

explain_missing() {
    say "there is no $(missing_programs || true), and no Go to build them." \
        "Install Go 1.25 or newer and run 'hack/control-plane build'," \
        "or point KUBEBUILDER_ASSETS at a directory that has them (setup-envtest gets etcd and kube-apiserver)." >&2
}
