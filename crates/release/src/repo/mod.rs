//! The repository.
