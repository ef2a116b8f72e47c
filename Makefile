# Everything a developer does here. `make` alone lists it.

CARGO ?= cargo
KUBECTL ?= kubectl
# More arguments of the manager for `make run`, e.g. ARGS='--repo-host localhost:8443'.
ARGS ?=
# Arguments of `cargo test` for `make test`, e.g. TEST_ARGS='-p plan'.
TEST_ARGS ?= --workspace

CARGO_DENY_VERSION ?= 0.20.2
CARGO_MUTANTS_VERSION ?= 27.1.0
# More arguments of cargo-mutants for `make mutants`, e.g. MUTANTS_ARGS='--shard 1/20' or MUTANTS_ARGS='--file crates/plan/src/retry.rs'.
MUTANTS_ARGS ?=
# Which checks `make deny` runs.
DENY ?= licenses bans sources advisories

# The image, as REPOSITORY[:TAG] or REPOSITORY@DIGEST. Without it, commands that build one tag it by REPO and the branch; those that install
# take the released one.
IMG ?=
REPO ?= rancher
CONTAINER_TOOL ?= docker
PLATFORMS ?= linux/amd64,linux/arm64
BRANCH = $(subst /,-,$(shell git rev-parse --abbrev-ref HEAD))
OUR_IMAGE = $(or $(IMG),$(REPO)/harvester-upgrade-toolkit:$(BRANCH)-head)
# A colon behind the last slash begins the tag; one before it, the port of a registry.
IMAGE_DIGEST = $(word 2,$(subst @, ,$(IMG)))
IMAGE_PATH = $(word 1,$(subst @, ,$(IMG)))
IMAGE_TAG = $(or $(word 2,$(subst :, ,$(notdir $(IMAGE_PATH)))),$(if $(IMAGE_DIGEST),,latest))
IMAGE_NAME = $(patsubst %:$(IMAGE_TAG),%,$(IMAGE_PATH))
# The same source gives the same image: time and version come from the commit.
IMAGE_ARGS = --build-arg SOURCE_DATE_EPOCH=$(shell git log -1 --format=%ct) \
	--build-arg VERSION=$(shell git describe --tags --always) --build-arg GIT_COMMIT=$(shell git rev-parse HEAD) \
	--build-arg GIT_TREE_STATE=$(if $(shell git status --porcelain),dirty,clean) \
	$(foreach name,CDI_SHA256 WITH_NGINX,$(if $($(name)),--build-arg $(name)=$($(name))))
# The release of Harvester that the image is for, as in package/releases. On a tag the image is a release: all of it is pinned
# (package/pins), and unfinished changes are refused.
HARVESTER_VERSION ?=
# What is attached to an image that is pushed: how it was built, and of what it is made.
ATTESTATIONS ?= --provenance=mode=max --sbom=true
RELEASE_ARGS = release_args="$$(package/release-args "$(HARVESTER_VERSION)" "$$(git describe --tags --exact-match 2>/dev/null)")"

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/upgrade-toolkit
# Tests that drive the embedded API with the Python client run this interpreter.
export PYTHON ?= $(CACHE)/python/bin/python3

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binary into bin/, as it ships
	$(CARGO) build --profile image
	mkdir -p bin
	cp "$${CARGO_TARGET_DIR:-target}/image/upgrade-toolkit" bin/upgrade-toolkit

.PHONY: prepare
prepare: ## Install what the tests need and the machine lacks
	@hack/prepare

# The real definitions of foreign kinds, if the folder next to the checkout has them; tests use our own ones otherwise.
test all-other-tests cluster-tests simulations sweep test-cluster test-nodes: export UPGRADE_TOOLKIT_CRDS ?= $(realpath ../shared/crds)

.PHONY: test
test: prepare control-plane crictl tools node-programs ## Run all tests but those of `make test-nodes`
ifeq ($(TEST_ARGS),--workspace)
	hack/timed 'the build of the tests' $(CARGO) test --workspace --no-run
	@echo 'Now side by side, each shown when it has ended: the tests on a real control plane with real nodes, and all others (minutes)'
	@$(MAKE) --no-print-directory --output-sync=target -j2 cluster-tests all-other-tests
else
	$(CARGO) test $(TEST_ARGS)
endif

.PHONY: all-other-tests
all-other-tests:
	CLUSTER_TESTS=later NODE_TESTS=later hack/timed 'tests of the workspace' $(CARGO) test --workspace
	@$(MAKE) --no-print-directory simulations

# Of the upgrades of real nodes one is enough here: `make test-nodes` runs all.
SHORT_NODE_TESTS = --skip nodes::broken:: --skip nodes::upgrade::a_single

# These mostly wait, so they run in parallel to all others.
.PHONY: cluster-tests
cluster-tests:
	@$(CARGO) build --quiet --workspace --bin upgrade-toolkit
	hack/timed 'tests on a real control plane' $(CARGO) test --workspace --test cluster -- $(SHORT_NODE_TESTS)

# All of them in a profile that is worth its build, and only there.
.PHONY: simulations
simulations: ## Run simulated upgrades, and the sweep
	hack/timed 'simulated upgrades with the sweep, and their build,' nice -n 5 $(CARGO) test --profile simulation -p cli --test simulation -- --show-output

.PHONY: sweep
sweep: ## Perturb every write of simulated upgrades, thousands of times, and continue from every failure in every way
	hack/timed 'the sweep, with its build,' nice -n 19 $(CARGO) test --profile simulation -p cli --test simulation -- sweep:: --show-output

.PHONY: test-cluster
test-cluster: prepare ## Run the tests on a real control plane; fail where there is none
	@hack/control-plane build
	@hack/tool build helm
	CLUSTER_TESTS=required NODE_TESTS=later $(CARGO) test -p testbed

.PHONY: test-nodes
test-nodes: prepare ## Upgrade real nodes on this machine, whole and broken, as root; fail where there can be none
	@hack/nodes build
	@hack/tool build helm
	hack/timed 'the check of hack/nodes' hack/nodes check
	@$(CARGO) build --quiet --workspace --bin upgrade-toolkit
	NODE_TESTS=required hack/timed 'upgrades of real nodes' $(CARGO) test --workspace --test cluster -- nodes::

# A cluster for development. With IMG_TAR, an archive of the toolkit's image, the manager is installed as well.
DEV_CLUSTER ?= /tmp/upgrade-toolkit-dev
NODES ?= 3
IMG_TAR ?=

.PHONY: dev-cluster
dev-cluster: prepare ## Start NODES real nodes on this machine, as root, and print their KUBECONFIG; with the manager of IMG_TAR
	@hack/nodes build
	@hack/dev-cluster start $(DEV_CLUSTER) --count $(NODES) $(if $(IMG_TAR),--image $(IMG_TAR))

.PHONY: dev-cluster-stop
dev-cluster-stop: ## Stop what make dev-cluster started
	@hack/nodes stop $(DEV_CLUSTER)

# What these tests need is built once. Where that is impossible they are skipped and say why.
.PHONY: control-plane
control-plane:
	@if command -v go >/dev/null; then hack/control-plane build || true; fi

# Without it the tests of image clean-up on a real containerd use ctr alone.
.PHONY: crictl
crictl:
	@if command -v go >/dev/null; then hack/crictl build || true; fi

# kubelet and kube-proxy, for upgrades of real nodes.
.PHONY: node-programs
node-programs: control-plane
	@if command -v go >/dev/null; then hack/nodes build || true; fi

# The same for the programs that tests of the chart and of the installer call.
.PHONY: tools
tools:
	@if command -v go >/dev/null; then hack/tool build helm || true; hack/installer >/dev/null || true; fi

.PHONY: lint
lint: ## Check format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -p cli --test simulation -- -D warnings

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: manifests
manifests: ## Generate the CRD, roles and webhook configurations into config/ and charts/
	$(CARGO) run -p cli -- manifests .

.PHONY: install
install: ## Install the CRD into the cluster of KUBECONFIG
	$(KUBECTL) apply -f config/crd/bases

.PHONY: uninstall
uninstall: ## Remove the CRD, and with it all UpgradePlans
	$(KUBECTL) delete --ignore-not-found -f config/crd/bases

.PHONY: deploy
deploy: ## Install CRD, roles, webhooks and manager with the image IMG
	hack/installer $(IMG) | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: ## Remove what `make deploy` installed, and with it all UpgradePlans
	hack/installer | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: build-installer
build-installer: ## Write all that `make deploy` applies into dist/installer.yaml and dist/install.yaml
	@mkdir -p dist
	hack/installer $(IMG) >dist/installer.yaml
	cp dist/installer.yaml dist/install.yaml

.PHONY: chart
chart: ## Check the chart, bring its README up to date and pack it into dist/
	hack/chart-readme
	hack/tool run helm lint charts/harvester-upgrade-manager
	hack/tool run helm package --destination dist charts/harvester-upgrade-manager

.PHONY: helm-deploy
helm-deploy: ## Install or upgrade the chart of this tree with the image IMG
	hack/tool run helm upgrade --install harvester-upgrade-manager charts/harvester-upgrade-manager \
		--namespace harvester-system $(if $(IMG),--set-string manager.image.repository=$(IMAGE_NAME) --set-string manager.image.tag=$(IMAGE_TAG) --set-string manager.image.digest=$(IMAGE_DIGEST))

# What package/image reads beside this is given here or in the environment: BINARY, PROFILE, RELEASE, ELEMENTAL, ADDONS, CDI, …
OUTPUT ?= dist/image.tar

.PHONY: image
image: ## Build the image on Debian packages into OUTPUT, without a registry or a daemon
	IMG=$(OUR_IMAGE) package/image $(OUTPUT)

.PHONY: image-check
image-check: ## Build it twice and compare
	IMG=$(OUR_IMAGE) hack/image-check

.PHONY: docker-build
docker-build: ## Build the image for this machine and HARVESTER_VERSION, tagged IMG
	$(RELEASE_ARGS) && $(CONTAINER_TOOL) build $(IMAGE_ARGS) $$release_args --tag $(OUR_IMAGE) .

.PHONY: docker-push
docker-push: ## Push the image IMG
	$(CONTAINER_TOOL) push $(OUR_IMAGE)

.PHONY: docker-buildx
docker-buildx: ## Build the image for all PLATFORMS and HARVESTER_VERSION, and push it with provenance and bill of materials
	$(RELEASE_ARGS) && $(CONTAINER_TOOL) buildx build $(IMAGE_ARGS) $$release_args --platform $(PLATFORMS) --tag $(OUR_IMAGE) \
		$(ATTESTATIONS) --output type=image,push=true,rewrite-timestamp=true .

.PHONY: man
man: ## Write manual pages and shell completions into dist/
	$(CARGO) run -p cli -- man dist/man
	mkdir -p dist/completions
	for shell in bash zsh fish; do $(CARGO) run --quiet -p cli -- completion $$shell >dist/completions/upgrade-toolkit.$$shell; done

.PHONY: sbom
sbom: ## Write the bill of materials of the binary into dist/
	@mkdir -p dist
	hack/sbom >dist/upgrade-toolkit.cdx.json

.PHONY: provenance
provenance: ## Write a statement of how the files in dist/ were made, to be signed, into dist/
	@mkdir -p dist
	hack/provenance $(filter-out dist/provenance.json%,$(wildcard dist/*)) >dist/provenance.json || { rm dist/provenance.json; exit 1; }

.PHONY: advisories
advisories: ## Compare dependencies with the advisories in ADVISORY_DB, a checkout of rustsec/advisory-db; needs no network
	ADVISORIES=required hack/advisories

# cargo-deny gets advisories from the network; without it the tests and CI hold the rest (hack/allowed-dependencies).
.PHONY: deny
deny: ## Check licences, sources and bans of dependencies, and advisories about them
	hack/allowed-dependencies
	@command -v cargo-deny >/dev/null || [ -x $(CACHE)/tools/bin/cargo-deny ] || \
		$(CARGO) install --locked --root $(CACHE)/tools cargo-deny@$(CARGO_DENY_VERSION)
	PATH="$$PATH:$(CACHE)/tools/bin" cargo-deny --all-features check $(DENY)
	hack/unused-dependencies

# Not part of `make test`: each of almost 1,800 mutants is built and tested by itself, which takes 5 to 10 hours on two cores.
.PHONY: mutants
mutants: cargo-mutants ## Break the pure core in every way cargo-mutants knows, one build each; MUTANTS_ARGS='--shard 1/20' for a part
	PATH="$$PATH:$(CACHE)/tools/bin" PROPTEST_CASES=6 PROPTEST_MAX_SHRINK_ITERS=0 nice cargo-mutants mutants -p plan -p rules -p checks \
		--output $(CACHE)/mutants --shuffle $(MUTANTS_ARGS)

.PHONY: mutants-at-once
mutants-at-once: cargo-mutants ## The same from a single build, in half an hour
	hack/mutants-at-once

.PHONY: cargo-mutants
cargo-mutants:
	@command -v cargo-mutants >/dev/null || [ -x $(CACHE)/tools/bin/cargo-mutants ] || \
		$(CARGO) install --locked --root $(CACHE)/tools cargo-mutants@$(CARGO_MUTANTS_VERSION)

.PHONY: run
run: ## Run the manager on this machine against the cluster of KUBECONFIG
	$(CARGO) run -- manager --log-format console --health-probe-bind-address 127.0.0.1:8081 $(ARGS)

.PHONY: rehearse
rehearse: ## Rehearse an upgrade of three nodes
	$(CARGO) run --release -- rehearse

.PHONY: bench
bench: ## Measure rehearsals, the commands that look at clusters, and the repository against nginx
	@bench/rehearse
	@bench/scale
	@bench/insight
	@bench/repo
