//! Where the bytes of an image come from.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom},
    os::unix::fs::FileExt,
};

/// Bytes that can be read anywhere, by many at once.
pub trait ReadAt {
    /// How many there are.
    fn size(&self) -> u64;

    /// Fills the buffer with what begins at `offset`.
    ///
    /// # Errors
    /// When there is less, or it cannot be read.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

/// A file or a block device.
#[derive(Debug)]
pub struct ImageFile {
    file: File,
    size: u64,
}

impl ImageFile {
    /// Takes a file; its size is what can be sought, because the metadata of a block device says 0.
    ///
    /// # Errors
    /// When it cannot be sought: a pipe is no image.
    pub fn new(mut file: File) -> io::Result<Self> {
        let size = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, size })
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl ReadAt for ImageFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let begin = usize::try_from(offset).ok();
        let bytes = begin.and_then(|begin| self.get(begin..begin.checked_add(buffer.len())?));
        match bytes {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
