//! Local files: what is too large for memory on its way into a storage or out of one.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// A local file that does not change any more, read at any place. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LocalFile {
    file: Arc<File>,
    length: u64,
}

impl LocalFile {
    /// An empty file in `folder`, to be written; `new` makes it readable. Nobody can open it by a name: it is gone when the last handle
    /// to it is, whatever becomes of the process.
    pub fn scratch(folder: &Path) -> io::Result<File> {
        let path = folder.join(format!("scratch-{}", uuid::Uuid::new_v4().simple()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    }

    /// What there is of a file.
    pub fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), length })
    }

    /// Number of bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Gives all bytes to `take`, some at a time. Blocks.
    pub fn read_through(&self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buffer = vec![0; PIECE_BYTES.min(self.length as usize)];
        let mut start = 0;
        while start < self.length {
            let piece = &mut buffer[..PIECE_BYTES.min((self.length - start) as usize)];
            self.file.read_exact_at(piece, start)?;
            take(piece)?;
            start += piece.len() as u64;
        }
        Ok(())
    }

    /// Reads bytes.
    ///
    /// Errors: `UnexpectedEof` where there are fewer. Blocks.
    pub fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.into())
    }
}
