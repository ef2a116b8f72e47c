//! Where logs are kept: files in one folder, which is the volume.
//!
//! Names of files are made by the store from numbers, never from names of pods, and a name that is a path is refused.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek as _, SeekFrom, Write as _},
    path::PathBuf,
};

/// The few operations that the store needs. After an error of a write, any part of it may be there.
pub trait Disk: Send + Sync {
    /// Adds bytes to the end of a file, which is created if it does not exist.
    ///
    /// # Errors
    /// The volume is full, read-only or gone.
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// What was written to the file survives a crash after this.
    ///
    /// # Errors
    /// The volume is full, read-only or gone.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// What was written to any file survives a crash after this.
    ///
    /// # Errors
    /// The volume is full, read-only or gone.
    fn sync_all(&self) -> io::Result<()>;

    /// Gives a file another name, in one step.
    ///
    /// # Errors
    /// The volume is read-only or gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Cuts a file.
    ///
    /// # Errors
    /// The volume is read-only or gone.
    fn truncate(&self, name: &str, length: u64) -> io::Result<()>;

    /// Removes a file. It is no error if it is not there.
    ///
    /// # Errors
    /// The volume is read-only or gone.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// A file to read, from an offset.
    ///
    /// # Errors
    /// The file is not there, or the volume is gone.
    fn open(&self, name: &str, offset: u64) -> io::Result<Box<dyn Read + Send>>;

    /// All files, with their sizes.
    ///
    /// # Errors
    /// The volume is gone.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
}

/// A folder of the file system.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// A folder that exists.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &str) -> io::Result<PathBuf> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-';
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_plain) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the name of a file of logs has letters, digits, hyphens and dots only",
            ));
        }
        Ok(self.root.join(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.root)?.sync_all()
    }
}

impl Disk for Folder {
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name)?;
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(path)?.write_all(bytes)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        File::open(self.path(name)?)?.sync_data()?;
        self.sync_folder()
    }

    fn sync_all(&self) -> io::Result<()> {
        // One call instead of one for each of hundreds of files.
        rustix::fs::syncfs(File::open(&self.root)?)?;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from)?, self.path(to)?)?;
        self.sync_folder()
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.path(name)?)?.set_len(length)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path(name)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn open(&self, name: &str, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut file = File::open(self.path(name)?)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(Box::new(file))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            // `lost+found` of a volume is no file of ours.
            if metadata.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                found.push((name, metadata.len()));
            }
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_cannot_be_left() {
        let outside = tempfile::tempdir().unwrap();
        let inside = outside.path().join("logs");
        std::fs::create_dir(&inside).unwrap();
        let folder = Folder::new(&inside);
        for name in ["../x", "/tmp/x", "a/b", "..", ".", "", "A", "a\0"] {
            assert!(folder.append(name, b"x").is_err(), "{name}");
            assert!(folder.open(name, 0).is_err(), "{name}");
            assert!(folder.remove(name).is_err(), "{name}");
        }
        folder.append("a.1", b"one").unwrap();
        folder.append("a.1", b"two").unwrap();
        folder.sync("a.1").unwrap();
        assert_eq!(folder.list().unwrap(), [("a.1".to_owned(), 6)]);
        let mut text = String::new();
        folder.open("a.1", 3).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "two");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
