# Everything a developer does here. `make` alone lists it.

CARGO ?= cargo
KUBECTL ?= kubectl
# More arguments of the manager for `make run`, e.g. ARGS='--repo-host http://localhost:8080'.
ARGS ?=
# Arguments of `cargo test` for `make test`, e.g. TEST_ARGS='-p plan'.
TEST_ARGS ?= --workspace

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/upgrade-toolkit
# Tests that drive the embedded API with the Python client run this interpreter.
export PYTHON ?= $(CACHE)/python/bin/python3

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binary into bin/
	$(CARGO) build --release
	mkdir -p bin
	cp "$${CARGO_TARGET_DIR:-target}/release/upgrade-toolkit" bin/upgrade-toolkit

.PHONY: prepare
prepare: ## Install what the tests need and the machine lacks
	@hack/prepare

.PHONY: test
test: prepare control-plane crictl ## Run all tests
	$(CARGO) test $(TEST_ARGS) -- --skip sweep::
	@if [ "$(TEST_ARGS)" = --workspace ]; then $(MAKE) --no-print-directory sweep; fi

.PHONY: sweep
sweep: ## Perturb every write of simulated upgrades, thousands of times
	$(CARGO) test --profile simulation -p cli --test simulation -- sweep::

.PHONY: test-cluster
test-cluster: prepare ## Run the tests on a real control plane; fail where there is none
	@hack/control-plane build
	CLUSTER_TESTS=required $(CARGO) test -p testbed

# What these tests need is built once. Where that is impossible they are skipped and say why.
.PHONY: control-plane
control-plane:
	@if command -v go >/dev/null; then hack/control-plane build || true; fi

# Without it the tests of image clean-up on a real containerd use ctr alone.
.PHONY: crictl
crictl:
	@if command -v go >/dev/null; then hack/crictl build || true; fi

.PHONY: lint
lint: ## Check format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: manifests
manifests: ## Generate the CRD and the roles into config/
	$(CARGO) run -p cli -- manifests config

.PHONY: install
install: ## Install the CRD into the cluster of KUBECONFIG
	$(KUBECTL) apply -f config/crd/bases

.PHONY: uninstall
uninstall: ## Remove the CRD, and with it all UpgradePlans
	$(KUBECTL) delete --ignore-not-found -f config/crd/bases

.PHONY: run
run: ## Run the manager on this machine against the cluster of KUBECONFIG
	$(CARGO) run -- manager --log-format console --health-probe-bind-address 127.0.0.1:8081 $(ARGS)

.PHONY: rehearse
rehearse: ## Rehearse an upgrade of three nodes
	$(CARGO) run --release -- rehearse

.PHONY: bench
bench: ## Measure rehearsals of 1, 3, 30 and 200 nodes
	@bench/rehearse
