//! An archive of images: a tar, compressed with zstd. It is read as a stream, and never treated as complete when it is not.

mod blobs;
mod found;

use std::io::{self, Read};

use sha2::{Digest, Sha256};

use self::blobs::Blobs;
use crate::bundle::Sha256Sum;

/// A tar is made of blocks and ends with two of zeros.
const BLOCK: u64 = 512;
const BUFFER: usize = 128 * 1024;

/// The tar inside an archive. Its end comes out only after everything before was whole: all frames of the
/// compression, the checksum if one is known, every blob that an image names by its digest, and the tar's own end.
///
/// # Errors
/// When there is no memory to unpack with.
pub fn tar_of<R: Read + Send>(compressed: R, sum: Option<&Sha256Sum>) -> io::Result<impl Read + Send + use<R>> {
    whole_tar(compressed, sum)
}

/// Reads an archive to its end; the names of the images in it, as far as it names them.
///
/// # Errors
/// When it is not whole, or larger than `largest` when it is unpacked.
pub fn images_of<R: Read + Send>(compressed: R, largest: u64) -> io::Result<Vec<String>> {
    let mut tar = whole_tar(compressed, None)?;
    let length = io::copy(&mut tar.by_ref().take(largest.saturating_add(1)), &mut io::sink())?;
    if length > largest {
        let why = format!("it has more than {largest} bytes when it is unpacked");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    tar.inner.names()
}

/// A tar on its way out of its compression, with the checks that it must pass.
type Unpacked<R> = WholeTar<Blobs<zstd::stream::read::Decoder<'static, io::BufReader<Summed<R>>>>>;

fn whole_tar<R: Read + Send>(compressed: R, sum: Option<&Sha256Sum>) -> io::Result<Unpacked<R>> {
    let summed = Summed {
        inner: compressed,
        sum: sum.map(|sum| (Sha256::new(), sum.clone())),
    };
    Ok(WholeTar {
        inner: Blobs::new(zstd::stream::read::Decoder::new(summed)?),
        buffer: vec![0; BUFFER],
        ready: 0..0,
        owed: 0,
        zeros: 0,
        length: 0,
        ended: false,
    })
}

/// Passes bytes on; at the end their checksum must be right.
struct Summed<R> {
    inner: R,
    sum: Option<(Sha256, Sha256Sum)>,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        let Some((hasher, _)) = &mut self.sum else {
            return Ok(length);
        };
        hasher.update(&buffer[..length]);
        if length == 0
            && !buffer.is_empty()
            && let Some((hasher, sum)) = self.sum.take()
        {
            check(hasher, &sum)?;
        }
        Ok(length)
    }
}

fn check(hasher: Sha256, sum: &Sha256Sum) -> io::Result<()> {
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == sum.as_str() {
        return Ok(());
    }
    let why = format!("the SHA-256 is {found}, {} is promised", sum.as_str());
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Whether a file has a checksum.
///
/// # Errors
/// When it cannot be read.
pub fn has_sum(file: impl Read, sum: &Sha256Sum) -> io::Result<bool> {
    let summed = Summed {
        inner: file,
        sum: Some((Sha256::new(), sum.clone())),
    };
    match io::copy(&mut io::BufReader::with_capacity(BUFFER, summed), &mut io::sink()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
        Err(error) => Err(error),
    }
}

/// Passes a tar on, but its zeros only when something follows, or when it has ended as a tar ends. The reader gets
/// no end of an archive that is cut off, and so does not take half of one for all.
struct WholeTar<R> {
    inner: R,
    buffer: Vec<u8>,
    ready: std::ops::Range<usize>,
    /// Zeros to be passed on before what is ready.
    owed: u64,
    /// Zeros that are not sent yet.
    zeros: u64,
    length: u64,
    ended: bool,
}

impl<R: Read> Read for WholeTar<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if out.is_empty() {
                return Ok(0);
            }
            if self.owed > 0 {
                let length = usize::try_from(self.owed).unwrap_or(usize::MAX).min(out.len());
                out[..length].fill(0);
                self.owed -= length as u64;
                return Ok(length);
            }
            if !self.ready.is_empty() {
                let length = self.ready.len().min(out.len());
                out[..length].copy_from_slice(&self.buffer[self.ready.start..self.ready.start + length]);
                self.ready.start += length;
                return Ok(length);
            }
            if self.ended {
                return Ok(0);
            }
            self.refill()?;
        }
    }
}

impl<R: Read> WholeTar<R> {
    fn refill(&mut self) -> io::Result<()> {
        let length = self.inner.read(&mut self.buffer)?;
        if length == 0 {
            if !self.length.is_multiple_of(BLOCK) || self.zeros < 2 * BLOCK {
                let why = format!("the tar breaks off after {} bytes", self.length);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            self.ended = true;
            self.owed = std::mem::take(&mut self.zeros);
            return Ok(());
        }
        self.length += length as u64;
        match self.buffer[..length].iter().rposition(|byte| *byte != 0) {
            None => self.zeros += length as u64,
            Some(last) => {
                self.owed = self.zeros;
                self.zeros = (length - last - 1) as u64;
                self.ready = 0..last + 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tar of one file with zeros inside, compressed.
    fn archive() -> (Vec<u8>, Vec<u8>) {
        let mut tar = tar::Builder::new(Vec::new());
        let content: Vec<u8> = (0..300_000_u32)
            .map(|at| if at % 50_000 < 20_000 { 0 } else { at as u8 })
            .collect();
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "layer.tar", content.as_slice()).unwrap();
        let tar = tar.into_inner().unwrap();
        (zstd::encode_all(tar.as_slice(), 3).unwrap(), tar)
    }

    fn sum_of(bytes: &[u8]) -> Sha256Sum {
        let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        digits.try_into().unwrap()
    }

    fn read(compressed: &[u8], sum: Option<&Sha256Sum>) -> (Vec<u8>, io::Result<()>) {
        let mut seen = Vec::new();
        let end = tar_of(compressed, sum).unwrap().read_to_end(&mut seen).map(|_| ());
        (seen, end)
    }

    #[test]
    fn a_whole_archive_comes_out_as_it_was() {
        let (compressed, tar) = archive();
        let (seen, end) = read(&compressed, Some(&sum_of(&compressed)));
        end.unwrap();
        assert!(seen == tar);
        let twice = [
            zstd::encode_all(&tar[..1000], 1).unwrap(),
            zstd::encode_all(&tar[1000..], 1).unwrap(),
        ]
        .concat();
        let (seen, end) = read(&twice, None);
        end.unwrap();
        assert!(seen == tar, "an archive of two frames");
    }

    #[test]
    fn an_archive_that_is_cut_off_anywhere_has_no_end() {
        let (compressed, tar) = archive();
        for length in (0..compressed.len()).step_by(97) {
            let (seen, end) = read(&compressed[..length], None);
            assert!(end.is_err(), "cut at {length}");
            assert!(seen.len() < tar.len() - 1024, "cut at {length}: the end came out");
        }
    }

    #[test]
    fn a_tar_without_its_end_is_distinguished_from_a_whole_one_though_its_compression_is_whole() {
        let (_, tar) = archive();
        let content_end = tar.iter().rposition(|byte| *byte != 0).unwrap();
        let cut = zstd::encode_all(&tar[..content_end], 3).unwrap();
        let (_, end) = read(&cut, None);
        assert!(end.unwrap_err().to_string().contains("the tar breaks off after"));
    }

    #[test]
    fn after_a_wrong_checksum_the_end_is_not_delivered() {
        let (compressed, tar) = archive();
        let (seen, end) = read(&compressed, Some(&sum_of(b"other")));
        assert!(end.unwrap_err().to_string().contains("is promised"));
        assert!(seen.len() < tar.len());
    }

    #[test]
    fn damage_is_seen() {
        let (mut compressed, _) = archive();
        let middle = compressed.len() / 2;
        compressed[middle] ^= 0xff;
        let (_, end) = read(&compressed, Some(&sum_of(&archive().0)));
        assert!(end.is_err());
    }
}
