//! Files in memory, for logs that are read and shown at once, and for rehearsals. They end with the process.

use std::{
    collections::BTreeMap,
    io::{self, Cursor, Read},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::disk::Disk;

/// Files in memory. Its clones show the same files.
#[derive(Clone, Default)]
pub struct Memory {
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Memory {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for Memory {
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files()
            .entry(name.to_owned())
            .or_default()
            .extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let mut files = self.files();
        let file = files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name);
        Ok(())
    }

    fn open(&self, name: &str, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let file = self.files().get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        let mut file = Cursor::new(file);
        file.set_position(offset);
        Ok(Box::new(file))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let files = self.files();
        Ok(files
            .iter()
            .map(|(name, file)| (name.clone(), file.len() as u64))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_memory_are_as_those_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let disks: [Box<dyn Disk>; 2] = [Box::new(Memory::default()), Box::new(crate::Folder::new(folder.path()))];
        for disk in disks {
            disk.append("a", b"one").unwrap();
            disk.append("a", b"two").unwrap();
            disk.append("b", b"x").unwrap();
            disk.sync("a").unwrap();
            disk.truncate("a", 4).unwrap();
            disk.rename("a", "c").unwrap();
            disk.remove("b").unwrap();
            disk.remove("b").unwrap();
            assert_eq!(disk.list().unwrap(), [("c".to_owned(), 4)]);
            let mut text = String::new();
            disk.open("c", 2).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "et");
            assert_eq!(
                disk.open("a", 0).err().map(|error| error.kind()),
                Some(io::ErrorKind::NotFound)
            );
            assert!(disk.truncate("a", 1).is_err() && disk.rename("a", "b").is_err());
        }
    }
}
