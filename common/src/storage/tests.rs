//! The contract of a storage on every implementation, and the order of operations that makes a write durable.

use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::durable::{FileSystem, NewFile, RealFileSystem};
use super::power::Disk;
use super::*;

fn on_files(root: &Path) -> Storage {
    Storage::open(&format!("file://{}", root.display())).expect("an absolute directory")
}

#[tokio::test]
async fn files_keep_the_contract() {
    let dir = tempfile::tempdir().expect("a directory");
    contract::files(&on_files(&dir.path().join("not/there/yet"))).await;
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    contract::files(&Storage::in_memory()).await;
}

#[tokio::test]
async fn names_are_as_given() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = on_files(&dir.path().join("100% #1 ü"));
    contract::names(&storage).await;
    storage.put("x?y/#1", Bytes::from_static(b"x")).await.expect("written");
    assert!(dir.path().join("100% #1 ü/x?y/#1").is_file());
    contract::names(&Storage::in_memory()).await;
}

#[tokio::test]
async fn memory_stages_files() {
    contract::staging(&Storage::in_memory()).await;
}

#[tokio::test]
async fn files_being_written_are_not_listed_and_go_with_their_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = on_files(dir.path());
    storage.put("job/a", Bytes::new()).await.expect("put");
    std::fs::write(dir.path().join("job/.levada-tmp-1"), "half").expect("a leftover");
    assert_eq!(storage.list("job").await.expect("list").len(), 1);
    storage.delete_all("job").await.expect("delete all");
    assert!(!dir.path().join("job").exists());
}

/// Does what the real one does, and writes down what it did.
#[derive(Debug, Default)]
struct Recording {
    done: Arc<Mutex<Vec<String>>>,
    fail_sync: bool,
}

struct RecordingFile {
    inner: Box<dyn NewFile>,
    done: Arc<Mutex<Vec<String>>>,
    fail_sync: bool,
}

fn name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.starts_with(".levada-tmp-") { "temporary".into() } else { name }
}

impl Recording {
    fn note(&self, what: String) {
        self.done.lock().expect("no one panicked").push(what);
    }
}

impl NewFile for RecordingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.done.lock().expect("no one panicked").push("write".into());
        self.inner.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.done.lock().expect("no one panicked").push("sync".into());
        if self.fail_sync { Err(io::Error::other("the disk is full")) } else { self.inner.sync() }
    }
}

impl FileSystem for Recording {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.note(format!("create {}", name(path)));
        let inner = RealFileSystem.create(path)?;
        Ok(Box::new(RecordingFile { inner, done: Arc::clone(&self.done), fail_sync: self.fail_sync }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(format!("rename {} {}", name(from), name(to)));
        RealFileSystem.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(format!("link {} {}", name(from), name(to)));
        RealFileSystem.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.note(format!("remove {}", name(path)));
        RealFileSystem.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.note(format!("remove dir {}", name(path)));
        RealFileSystem.remove_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.note(format!("create dir {}", name(path)));
        RealFileSystem.create_dir(path)
    }

    fn is_dir(&self, path: &Path) -> bool {
        RealFileSystem.is_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note(format!("sync dir {}", name(path)));
        RealFileSystem.sync_dir(path)
    }
}

fn recorded(root: PathBuf, recording: Recording) -> (Storage, Arc<Mutex<Vec<String>>>) {
    let done = Arc::clone(&recording.done);
    let backend = Backend::Files(Files::new(root, Arc::new(recording)));
    (Storage { uri: "file:///recorded".into(), backend }, done)
}

#[tokio::test]
async fn a_write_is_synced_then_renamed_then_its_directory_is_synced() {
    let dir = tempfile::tempdir().expect("a directory");
    let (storage, done) = recorded(dir.path().join("root"), Recording::default());
    storage.put("chk-1/_metadata", Bytes::from_static(b"x")).await.expect("put");
    let outer = name(dir.path());
    let expected = [
        "create dir root",
        &format!("sync dir {outer}"),
        "create dir chk-1",
        "sync dir root",
        "create temporary",
        "write",
        "sync",
        "rename temporary _metadata",
        "sync dir chk-1",
    ];
    assert_eq!(*done.lock().expect("no one panicked"), expected);

    done.lock().expect("no one panicked").clear();
    storage.put_new("chk-1/a", Bytes::new()).await.expect("put new");
    let expected = ["create temporary", "write", "sync", "link temporary a", "remove temporary", "sync dir chk-1"];
    assert_eq!(*done.lock().expect("no one panicked"), expected);
}

#[tokio::test]
async fn a_draft_is_synced_then_renamed_and_one_that_is_dropped_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (storage, done) = recorded(dir.path().to_owned(), Recording::default());
    let taken = || std::mem::take(&mut *done.lock().expect("no one panicked"));
    let mut draft = storage.begin("a", dir.path()).expect("begun");
    draft.write_all(b"x").expect("written");
    draft.write_all(b"y").expect("written");
    assert!(storage.list("").await.expect("list").is_empty(), "it is not there yet");
    storage.finish(draft, tokio::time::Instant::now()).await.expect("finished");
    let outer = name(dir.path());
    let expected = ["create temporary", "write", "write", "sync", "rename temporary a", &format!("sync dir {outer}")];
    assert_eq!(taken(), expected);
    assert_eq!(storage.get("a").await.expect("read"), "xy");

    let mut local = LocalFile::scratch(&std::env::temp_dir()).expect("a local file");
    local.write_all(b"z").expect("written");
    storage.put_file("a", &LocalFile::new(local).expect("readable")).await.expect("put");
    let expected = ["create temporary", "write", "sync", "rename temporary a", &format!("sync dir {outer}")];
    assert_eq!(taken(), expected);
    assert_eq!(storage.get("a").await.expect("read"), "z");

    drop(storage.begin("b", dir.path()).expect("begun"));
    assert_eq!(taken(), ["create temporary", "remove temporary"]);
    assert_eq!(std::fs::read_dir(dir.path()).expect("the directory").count(), 1);
}

#[tokio::test]
async fn a_write_that_cannot_be_synced_is_not_published() {
    let dir = tempfile::tempdir().expect("a directory");
    let recording = Recording { fail_sync: true, ..Recording::default() };
    let (storage, done) = recorded(dir.path().to_owned(), recording);
    storage.put("a", Bytes::from_static(b"x")).await.expect_err("the disk is full");
    assert_eq!(*done.lock().expect("no one panicked"), ["create temporary", "write", "sync", "remove temporary"]);
    assert_eq!(std::fs::read_dir(dir.path()).expect("the directory").count(), 0);
}

#[test]
fn sinks_publish_by_rename() {
    let dir = tempfile::tempdir().expect("a directory");
    let (from, to) = (dir.path().join("part.tmp"), dir.path().join("sub/part"));
    std::fs::write(&from, "rows").expect("a file");
    durable::create_dir_durably(&dir.path().join("sub")).expect("a directory");
    durable::rename_durably(&from, &to).expect("rename");
    assert_eq!(std::fs::read_to_string(to).expect("the file"), "rows");
    assert!(!from.exists());
    assert!(durable::rename_durably(&from, &from).is_err());
}

/// Whatever step power is lost at, a file is not there, whole as it was, or whole as it is written; and it is there for good once
/// the write has returned.
#[tokio::test]
async fn a_loss_of_power_at_any_step_leaves_a_file_whole_or_not_there() {
    let seed = 0xD15C;
    println!("seed {seed:#x}");
    let mut dice = seed;
    let mut survives = move || {
        dice = splitmix(dice);
        dice % 2 == 0
    };
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Disk::new(dir.path());
    let storage = disk.storage();
    let (first, second) = (Bytes::from(vec![1; 3000]), Bytes::from(vec![2; 5000]));
    storage.put("job/chk-1/a", first.clone()).await.expect("put");
    let after_first = disk.steps();
    storage.put("job/chk-1/a", second.clone()).await.expect("put over");
    let after_second = disk.steps();
    storage.delete_all("job").await.expect("deleted");
    let mut found = [0; 3];
    for step in 0..=disk.steps() {
        for _ in 0..50 {
            let left = tempfile::tempdir().expect("a directory");
            disk.lose_power(step, left.path(), &mut survives).expect("written");
            match on_files(left.path()).get("job/chk-1/a").await {
                Ok(bytes) if bytes == first && step < after_second => found[0] += 1,
                Ok(bytes) if bytes == second && step > after_first => found[1] += 1,
                Err(error) if error.is_not_found() && !(after_first..=after_second).contains(&step) => found[2] += 1,
                other => panic!("step {step}: {:?}", other.map(|bytes| bytes.len())),
            }
        }
    }
    assert!(found.iter().all(|count| *count > 100), "{found:?}");
}

/// Whoever gives a write up may delete its file at once: it does not come later.
#[test]
fn a_write_that_is_given_up_leaves_nothing_behind_its_deletion() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = on_files(dir.path());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    runtime.block_on(async {
        for number in 0..300 {
            let path = format!("chk-1/{number}");
            let mut writing = Box::pin(storage.put(&path, Bytes::from(vec![0; 20_000])));
            for _ in 0..number % 7 {
                if futures::poll!(writing.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(writing);
            storage.delete(&path).await.expect("deleted");
        }
    });
    // Waits for the threads that still write.
    drop(runtime);
    let left: Vec<_> = std::fs::read_dir(dir.path().join("chk-1")).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The next number of a row that looks like chance.
fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
