//! Local files without names: what is too large for memory on its way into a storage or out of one.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

/// A local file that nobody can open by a name: it is gone when the last handle to it is, whatever becomes of the process. Cheap to
/// clone.
#[derive(Debug, Clone)]
pub struct ScratchFile {
    file: Arc<File>,
    length: u64,
}

impl ScratchFile {
    /// An empty file in `folder`, to be written; `new` makes it readable.
    pub fn begin(folder: &Path) -> io::Result<File> {
        let path = folder.join(format!("scratch-{}", uuid::Uuid::new_v4().simple()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    }

    /// What was written to a file.
    pub fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), length })
    }

    /// Number of bytes.
    pub fn length(&self) -> u64 {
        self.length
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
