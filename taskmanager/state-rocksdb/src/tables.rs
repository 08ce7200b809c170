//! Sorted files beside a database, which it takes over by renaming; where it will not, sorted batches instead.

use std::path::PathBuf;

use rocksdb::{IngestExternalFileOptions, Options, SstFileWriter, WriteBatch};

use crate::database::Database;
use crate::directory::remove;
use crate::generation::Sink;
use crate::options;

/// Bytes after which a file ends: what is uploaded is one request.
const TABLE_BYTES: u64 = 64 << 20;

/// Entries of one batch of the fallback.
const BATCH_ENTRIES: usize = 8192;

/// Sorted files that are being written into a folder of their own.
pub struct Tables<'a> {
    options: &'a Options,
    folder: PathBuf,
    open: Option<SstFileWriter<'a>>,
    files: Vec<PathBuf>,
    entries: u64,
}

impl<'a> Tables<'a> {
    /// No file, in a new folder.
    pub fn new(options: &'a Options, database: &Database) -> std::io::Result<Self> {
        let folder = database.staging_folder();
        std::fs::create_dir_all(&folder)?;
        Ok(Self { options, folder, open: None, files: Vec::new(), entries: 0 })
    }

    /// The file to write to.
    fn file(&mut self) -> Result<&mut SstFileWriter<'a>, rocksdb::Error> {
        if self.open.as_ref().is_some_and(|file| file.file_size() >= TABLE_BYTES) {
            self.end_file()?;
        }
        if self.open.is_none() {
            let path = self.folder.join(format!("{:06}.sst", self.files.len()));
            let file = SstFileWriter::create(self.options);
            file.open(&path)?;
            self.files.push(path);
            self.open = Some(file);
        }
        self.entries += 1;
        Ok(self.open.as_mut().expect("just opened"))
    }

    fn end_file(&mut self) -> Result<(), rocksdb::Error> {
        self.open.take().map_or(Ok(()), |mut file| file.finish())
    }

    /// Ends the last file and lets the database take them all over; answers the number of entries.
    pub fn ingest(mut self, database: &Database, family: &str) -> Result<u64, rocksdb::Error> {
        self.end_file()?;
        if !self.files.is_empty() {
            let mut how = IngestExternalFileOptions::default();
            how.set_move_files(true);
            // No reader has a snapshot that it would have to be kept from: scans hold the files that they began with.
            how.set_snapshot_consistency(false);
            database.db.ingest_external_file_cf_opts(&database.handle(family), &how, std::mem::take(&mut self.files))?;
        }
        Ok(self.entries)
    }
}

impl Drop for Tables<'_> {
    fn drop(&mut self) {
        self.open = None;
        if let Err(error) = remove(&self.folder) {
            tracing::warn!(path = %self.folder.display(), %error, "files that were not taken over stay behind until the task ends");
        }
    }
}

impl Sink for Tables<'_> {
    type Error = rocksdb::Error;

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), rocksdb::Error> {
        self.file()?.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), rocksdb::Error> {
        self.file()?.delete(key)
    }
}

/// The fallback: sorted batches, and a flush at the end.
pub struct Batches<'a> {
    database: &'a Database,
    family: &'a str,
    batch: WriteBatch,
    entries: u64,
}

impl<'a> Batches<'a> {
    /// Into this family.
    pub fn new(database: &'a Database, family: &'a str) -> Self {
        Self { database, family, batch: WriteBatch::new(), entries: 0 }
    }

    fn wrote(&mut self) -> Result<(), rocksdb::Error> {
        self.entries += 1;
        if self.batch.len() >= BATCH_ENTRIES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), rocksdb::Error> {
        self.database.db.write_opt(std::mem::take(&mut self.batch), &options::write())
    }

    /// Sends the rest and flushes; answers the number of entries.
    pub fn flush(mut self) -> Result<u64, rocksdb::Error> {
        self.send()?;
        self.database.db.flush_cf(&self.database.handle(self.family))?;
        Ok(self.entries)
    }
}

impl Sink for Batches<'_> {
    type Error = rocksdb::Error;

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), rocksdb::Error> {
        self.batch.put_cf(&self.database.handle(self.family), key, value);
        self.wrote()
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), rocksdb::Error> {
        self.batch.delete_cf(&self.database.handle(self.family), key);
        self.wrote()
    }
}
