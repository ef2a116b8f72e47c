//! The certificate from files, read again when they change: another program renews it there.

use std::{path::PathBuf, time::Duration};

use clock::Clock;

use super::{Certificate, Pem, Presented, TlsError};

/// How often the files are looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Where certificate and key are.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate, followed by intermediate ones.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Why files could not be presented.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file could not be read.
    #[error("failed to read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What is in the files is no certificate with its key.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Presents what is in files.
#[derive(Debug)]
pub struct Follower {
    files: Files,
    presented: Presented,
    observed: Option<Pem>,
}

impl Follower {
    /// Presents nothing before the first look.
    #[must_use]
    pub fn new(files: Files, presented: Presented) -> Self {
        Self {
            files,
            presented,
            observed: None,
        }
    }

    /// Reads the files and presents what is new; returns whether anything was. On an error what was presented stays:
    /// of two files that are replaced one after the other, a look may find one.
    ///
    /// # Errors
    /// A file cannot be read, or is no certificate or not its key.
    pub async fn look(&mut self) -> Result<bool, FilesError> {
        let pem = Pem {
            chain: read(&self.files.certificate).await?,
            key: read(&self.files.key).await?,
        };
        if self.observed.as_ref() == Some(&pem) {
            return Ok(false);
        }
        let certificate = Certificate::read(&pem)?;
        self.presented.replace(&certificate);
        self.observed = Some(pem);
        Ok(true)
    }

    /// Looks again and again.
    pub async fn run(mut self, clock: Clock) {
        loop {
            match self.look().await {
                Ok(true) => tracing::info!(file = %self.files.certificate.display(), "presenting the certificate"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "failed to take the webhook certificate from files; trying again"),
            }
            clock.sleep(LOOK_AGAIN).await;
        }
    }
}

async fn read(path: &PathBuf) -> Result<String, FilesError> {
    let read = tokio::fs::read_to_string(path).await;
    read.map_err(|source| FilesError::Read {
        path: path.clone(),
        source,
    })
}
