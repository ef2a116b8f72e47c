//! Compression, with one context for everything: it is large, and making it takes longer than most commits.

use std::io;

use zstd::bulk::Compressor;

#[derive(Default)]
pub(super) struct Packer(Option<Compressor<'static>>);

impl Packer {
    /// The bytes as one frame with a checksum.
    pub(super) fn pack(&mut self, bytes: &[u8], level: i32) -> io::Result<Vec<u8>> {
        let compressor = match &mut self.0 {
            Some(compressor) => compressor,
            empty => {
                let mut compressor = Compressor::new(level)?;
                compressor.include_checksum(true)?;
                empty.insert(compressor)
            }
        };
        compressor.set_compression_level(level)?;
        compressor.compress(bytes)
    }
}
