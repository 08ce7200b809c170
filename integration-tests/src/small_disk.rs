//! A small file system of its own, for tests of disks that are full and of files that lie on several.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory; it is unmounted when this is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one at `path`; `None` where this process may not.
    pub fn mount(path: &Path, bytes: u64) -> anyhow::Result<Option<Self>> {
        fs::create_dir(path)?;
        let options = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).output();
        Ok(mounted.is_ok_and(|output| output.status.success()).then(|| Self(path.to_path_buf())))
    }

    /// Takes all the room that is left.
    pub fn fill(&self) {
        let ballast = fs::OpenOptions::new().create(true).append(true).open(self.ballast());
        let block = [0; 4096];
        while ballast.as_ref().is_ok_and(|mut file| file.write_all(&block).is_ok()) {}
    }

    /// Gives back what was filled.
    pub fn free(&self) -> std::io::Result<()> {
        fs::remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is being killed may still have a file open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
