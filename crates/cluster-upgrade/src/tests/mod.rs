//! The whole program on the embedded API, in virtual time, with small actors for Fleet, Rancher, Helm and the rest.

mod crash;
mod harness;
mod harvester_world;
mod needed;
mod objects;
mod rancher;
mod rancher_world;
mod refusals;
mod whole;
mod writes;
