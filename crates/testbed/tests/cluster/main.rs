//! What only a real Kubernetes control plane can show. Skipped with one line where there is none; `make test-cluster`
//! insists on it.

// Everything here is a test, also what is not marked as one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contract;
mod harvester;
mod kubelets;
mod upgrade;
