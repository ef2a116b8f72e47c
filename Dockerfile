# The image of the toolkit: the manager, and everything that its Jobs run.
#
#   docker build $(package/release-args v1.8.2) .                                             for this machine
#   docker buildx build $(package/release-args v1.8.2) --platform linux/amd64,linux/arm64 .   for both
#   docker build $(package/release-args v1.8.2) --build-arg WITH_NGINX=false .                without nginx
#
# Base system, addons and CDI have no defaults: they are those of the release of Harvester that the image is for, and
# package/release-check holds them to it. `make docker-build` passes them, and version and time of the commit, so that the
# same commit gives the same image. A release (RELEASE=true, which `make` passes on a tag) is refused unless all that
# package/pinned lists is given by digest, commit or checksum. No line `# syntax=` loads a frontend that nobody pins.

ARG RELEASE=false
ARG RUST_IMAGE=registry.suse.com/bci/rust:1.95
ARG GOLANG_IMAGE=registry.suse.com/bci/golang:1.25
ARG BASE_IMAGE=registry.suse.com/bci/bci-base:16.0
ARG HARVESTER_VERSION
ARG BASE_OS_IMAGE
ARG ADDONS_BRANCH
ARG CDI_VERSION
# The commit of the addons, and those of the lines below as NAME=COMMIT,…; and the SHA-256 of CDI's file.
ARG ADDONS_COMMIT=
ARG ADDONS_COMMITS_BEFORE=
ARG CDI_SHA256=
# Lines of Harvester that are upgraded from: what their addons had by default is not the user's.
ARG ADDONS_BRANCHES_BEFORE="v1.7 v1.8"
ARG VERSION=dev
ARG GIT_COMMIT=unknown
ARG GIT_TREE_STATE=unknown

# Nothing is built for a release with what belongs to another one: everything below copies from here.
FROM ${BASE_IMAGE} AS release
ARG RELEASE
ARG HARVESTER_VERSION
ARG RUST_IMAGE
ARG GOLANG_IMAGE
ARG BASE_IMAGE
ARG BASE_OS_IMAGE
ARG ADDONS_BRANCH
ARG ADDONS_COMMIT
ARG ADDONS_BRANCHES_BEFORE
ARG ADDONS_COMMITS_BEFORE
ARG CDI_VERSION
ARG CDI_SHA256
ARG VERSION
ARG GIT_COMMIT
ARG GIT_TREE_STATE
RUN --mount=type=bind,source=package,target=/package /package/release-check && \
    echo "${HARVESTER_VERSION}" >/harvester-version

FROM ${RUST_IMAGE} AS builder
ARG VERSION
ARG GIT_COMMIT
ARG GIT_TREE_STATE
ARG SOURCE_DATE_EPOCH=0
ARG TARGETARCH
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY package package
# Paths of the builder stay out of the binary: they would differ from one machine to the next.
ENV CARGO_HOME=/cargo \
    CARGO_INCREMENTAL=0 \
    RUSTFLAGS="--remap-path-prefix=/src=. --remap-path-prefix=/cargo=cargo"
RUN --mount=type=cache,target=/cargo/registry \
    --mount=type=cache,target=/src/target,id=target-${TARGETARCH} \
    UPGRADE_TOOLKIT_VERSION="${VERSION}" \
    UPGRADE_TOOLKIT_GIT_COMMIT="${GIT_COMMIT}" \
    UPGRADE_TOOLKIT_GIT_TREE_STATE="${GIT_TREE_STATE}" \
    cargo build --profile image --locked -p cli && \
    package/layout target/image/upgrade-toolkit /rootfs && \
    find /rootfs -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +

# Manifests of the addons that a release brings, which the upgrade of the cluster compares with those that run.
FROM ${GOLANG_IMAGE} AS addons
ARG ADDONS_BRANCH
ARG ADDONS_COMMIT
ARG ADDONS_BRANCHES_BEFORE
ARG ADDONS_COMMITS_BEFORE
ARG SOURCE_DATE_EPOCH=0
COPY --from=release /harvester-version /harvester-version
RUN --mount=type=bind,source=package,target=/package /package/addons /addons && \
    find /addons -exec touch --date="@${SOURCE_DATE_EPOCH}" {} +

# Definitions of CDI: the Harvester chart brings CDI's operator, but Helm leaves definitions that exist as they are. The
# version is that of the chart in the release. The rest of the file would be a second operator.
FROM ${BASE_IMAGE} AS cdi
ARG CDI_VERSION
# Without it, what came is only printed.
ARG CDI_SHA256
ARG SOURCE_DATE_EPOCH=0
ADD https://github.com/kubevirt/containerized-data-importer/releases/download/${CDI_VERSION}/cdi-operator.yaml /cdi-operator.yaml
RUN --mount=type=bind,source=package,target=/package \
    sha256sum /cdi-operator.yaml && \
    if [ -n "${CDI_SHA256}" ]; then echo "${CDI_SHA256}  /cdi-operator.yaml" | sha256sum --check; fi && \
    mkdir /cdi && /package/definitions </cdi-operator.yaml >/cdi/cdi.yaml && \
    touch --date="@${SOURCE_DATE_EPOCH}" /cdi/cdi.yaml /cdi

FROM ${BASE_OS_IMAGE} AS baseos

FROM ${BASE_IMAGE}
ARG WITH_NGINX=true
# nginx is for plans that ask for it; the toolkit serves the repository itself.
# e2fsprogs and rsync are for the node: its own ones run with the libraries of this image where its C library is too old for
# elemental, and find only here what they are linked with.
RUN packages="coreutils util-linux e2fsprogs rsync" && \
    if [ "${WITH_NGINX}" = true ]; then packages="${packages} nginx"; fi && \
    zypper --non-interactive install --no-recommends ${packages} && \
    { zypper --non-interactive remove container-suseconnect || true; } && \
    zypper clean --all && \
    rm -rf /var/cache/zypp /var/log/zypp /var/log/zypper.log /var/lib/zypp/AnonymousUniqueId && \
    echo 'upgrade-toolkit:x:1000:' >>/etc/group && \
    echo 'upgrade-toolkit:x:1000:1000:Upgrade Toolkit:/:/sbin/nologin' >>/etc/passwd
# Installs the operating system of the release: newer than the one on a node that is to be upgraded.
COPY --from=baseos /usr/bin/elemental /usr/local/bin/elemental
COPY --from=addons /addons/ /usr/local/share/addons/
COPY --from=cdi /cdi/ /usr/local/share/extra_manifests/cdi/
COPY --from=release /harvester-version /usr/local/share/harvester-version
COPY --from=builder /rootfs/ /
RUN --mount=type=bind,source=package,target=/package /package/check

ARG VERSION
ARG GIT_COMMIT
LABEL org.opencontainers.image.title="harvester-upgrade-toolkit" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${GIT_COMMIT}" \
      org.opencontainers.image.licenses="Apache-2.0"
# The manager and most Jobs need no rights on the machine; those that do say so in their pod.
USER 1000:1000
ENTRYPOINT ["/usr/local/bin/upgrade-toolkit"]
CMD ["manager"]
