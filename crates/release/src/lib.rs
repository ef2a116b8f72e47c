//! A Harvester release: its ISO, what it says about itself, and the repository that serves it.
//!
//! Images are read as they are, without mounting them and without privileges. Whatever the bytes, reading ends in a
//! value or an error. Texts are parsed by pure functions, so that texts from other sources are read in the same way.

pub mod archive;
pub mod bundle;
pub mod image_list;
pub mod inspect;
pub mod iso;
pub mod manifest;
pub mod nginx;
pub mod release_file;
pub mod repo;
pub mod squashfs;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
