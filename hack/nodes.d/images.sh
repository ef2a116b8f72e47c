# shellcheck shell=bash
# Container images without a registry and without an engine. Sourced by hack/nodes.

# make_base_images ARCHIVE: what pods' sandboxes run, and a busybox for whoever needs a shell in a pod; as `docker save` would
# write them.
make_base_images() (
    local archive="$1" applet layer entry='' name command config
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/layer/bin" "$work/layer/etc" "$work/layer/tmp" "$work/image"
    cp "$(type -P busybox)" "$work/layer/bin/busybox"
    for applet in $(busybox --list); do
        [ "$applet" = busybox ] || ln -s busybox "$work/layer/bin/$applet"
    done
    echo 'root:x:0:0:root:/:/bin/sh' >"$work/layer/etc/passwd"
    chmod 1777 "$work/layer/tmp"
    tar -C "$work/layer" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/image/layer.tar" .
    layer="$(sha256sum <"$work/image/layer.tar")"
    for name in "$pause_image" "$busybox_image"; do
        # A sandbox sleeps until it is ended.
        command='["/bin/sh"]'
        [ "$name" != "$pause_image" ] || command='["/bin/sleep", "2147483647"]'
        config="$(printf '{"architecture": "%s", "os": "linux", "config": {"Env": ["PATH=/bin"], "Cmd": %s}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
            "$(dpkg --print-architecture)" "$command" "${layer%% *}")"
        printf '%s' "$config" >"$work/config"
        file="$(sha256sum <"$work/config")"
        mv "$work/config" "$work/image/${file%% *}.json"
        entry+="${entry:+, }{\"Config\": \"${file%% *}.json\", \"RepoTags\": [\"$name\"], \"Layers\": [\"layer.tar\"]}"
    done
    printf '[%s]' "$entry" >"$work/image/manifest.json"
    tar -C "$work/image" -cf "$archive" .
)

# import_images DIR ARCHIVE [NODE]: into containerd of a node or of all that are on. What gzip or zstd packed is unpacked.
import_images() {
    local dir="$1" archive="$2" only="$3" folder unpack=cat
    case "$archive" in
        *.gz | *.tgz) unpack='gzip -dc' ;;
        *.zst) unpack='zstd -dc' ;;
    esac
    for folder in "$dir"/nodes/*/; do
        folder="${folder%/}"
        if [ -n "$only" ] && [ "${folder##*/}" != "$only" ]; then continue; fi
        if [ -z "$only" ] && ! is_on "$folder"; then continue; fi
        $unpack <"$archive" | in_node "$folder" ctr --address /run/k3s/containerd/containerd.sock --namespace k8s.io images import -
    done
}
