//! A volume in memory that crashes, tears writes, and runs full.

use std::{
    collections::BTreeMap,
    io::{self, Cursor, Read},
    sync::{Mutex, MutexGuard},
};

use logs::Disk;

#[derive(Default, Clone)]
struct File {
    bytes: Vec<u8>,
    /// So many of them survive a crash for sure.
    synced: usize,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, File>,
    /// Writes until the crash.
    budget: Option<u32>,
    has_crashed: bool,
    capacity: Option<u64>,
    error: Option<io::ErrorKind>,
    random: fastrand::Rng,
    writes: u32,
}

/// The volume.
pub(crate) struct SimulatedDisk(Mutex<State>);

impl SimulatedDisk {
    pub(crate) fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self(Mutex::new(State {
            random,
            ..State::default()
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The power goes after so many writes.
    pub(crate) fn crash_after(&self, writes: u32) {
        self.state().budget = Some(writes);
    }

    /// The power stays.
    pub(crate) fn keep_power(&self) {
        self.state().budget = None;
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.state().has_crashed
    }

    /// Writes so far.
    pub(crate) fn writes(&self) -> u32 {
        self.state().writes
    }

    /// What a crash leaves: what was synced, and any part of the rest.
    pub(crate) fn restart(&self) {
        let mut state = self.state();
        let State { files, random, .. } = &mut *state;
        for file in files.values_mut() {
            let kept = random.usize(file.synced..=file.bytes.len());
            file.bytes.truncate(kept);
            file.synced = kept;
        }
        (state.budget, state.has_crashed) = (None, false);
    }

    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// All writes fail so.
    pub(crate) fn fail_with(&self, error: Option<io::ErrorKind>) {
        self.state().error = error;
    }

    pub(crate) fn size(&self) -> u64 {
        self.state().files.values().map(|file| file.bytes.len() as u64).sum()
    }

    /// Damages a file: its bytes become zeros, as an unsynced block does.
    pub(crate) fn zero(&self, beginning: &str) {
        for (name, file) in &mut self.state().files {
            if name.starts_with(beginning) {
                file.bytes.fill(0);
            }
        }
    }
}

impl State {
    /// One more change. False: the power goes now.
    fn step(&mut self) -> io::Result<bool> {
        if self.has_crashed {
            return Err(io::Error::other("crashed"));
        }
        if let Some(error) = self.error {
            return Err(error.into());
        }
        self.writes += 1;
        if let Some(budget) = &mut self.budget {
            if *budget == 0 {
                self.has_crashed = true;
                return Ok(false);
            }
            *budget -= 1;
        }
        Ok(true)
    }
}

fn crashed() -> io::Error {
    io::Error::other("crashed")
}

impl Disk for SimulatedDisk {
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let is_alive = state.step()?;
        let used: u64 = state.files.values().map(|file| file.bytes.len() as u64).sum();
        let room = state
            .capacity
            .map_or(u64::MAX, |capacity| capacity.saturating_sub(used));
        let mut fits = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        if !is_alive {
            fits = state.random.usize(0..=fits);
        }
        let file = state.files.entry(name.to_owned()).or_default();
        file.bytes.extend_from_slice(&bytes[..fits]);
        match (is_alive, fits < bytes.len()) {
            (false, _) => Err(crashed()),
            (true, true) => Err(io::ErrorKind::StorageFull.into()),
            (true, false) => Ok(()),
        }
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.step()? {
            return Err(crashed());
        }
        let file = state.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.synced = file.bytes.len();
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.state();
        if !state.step()? {
            return Err(crashed());
        }
        state.files.values_mut().for_each(|file| file.synced = file.bytes.len());
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let is_alive = state.step()?;
        if is_alive || state.random.bool() {
            let file = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            state.files.insert(to.to_owned(), file);
        }
        if is_alive { Ok(()) } else { Err(crashed()) }
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let mut state = self.state();
        if !state.step()? {
            return Err(crashed());
        }
        let file = state.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.bytes.truncate(usize::try_from(length).unwrap());
        file.synced = file.synced.min(file.bytes.len());
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        let is_alive = state.step()?;
        if is_alive || state.random.bool() {
            state.files.remove(name);
        }
        if is_alive { Ok(()) } else { Err(crashed()) }
    }

    fn open(&self, name: &str, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let state = self.state();
        if state.has_crashed {
            return Err(crashed());
        }
        let file = state.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let from = usize::try_from(offset).unwrap().min(file.bytes.len());
        Ok(Box::new(Cursor::new(file.bytes[from..].to_vec())))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let state = self.state();
        if state.has_crashed {
            return Err(crashed());
        }
        let files = state.files.iter();
        Ok(files
            .map(|(name, file)| (name.clone(), file.bytes.len() as u64))
            .collect())
    }
}
