//! What every storage must do, as a suite that is run on each: files, memory, S3, HDFS.
//!
//! Contract of all functions here: the storage is empty, and is left empty; they panic where it does not keep its word.

use std::io::Write;

use bytes::Bytes;

use super::{LocalFile, Staging, Storage, StorageError, Stored};

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn paths(files: Vec<Stored>) -> Vec<(String, u64)> {
    files.into_iter().map(|file| (file.path, file.bytes)).collect()
}

/// Files are written whole, read, listed in order and deleted; a probe finds nothing wrong.
pub async fn files(storage: &Storage) {
    assert_eq!(storage.list("").await.expect("list"), []);
    assert!(storage.get("job/a").await.expect_err("no file").is_not_found());
    assert!(storage.size("job/a").await.expect_err("no file").is_not_found());
    storage.put("job/chk-1/a", text("first")).await.expect("put");
    storage.put("job/chk-1/a", text("second")).await.expect("put over");
    storage.put_new("job/chk-1/b", text("")).await.expect("put new");
    let again = storage.put_new("job/chk-1/a", text("third")).await;
    assert!(matches!(again, Err(StorageError::AlreadyExists { .. })), "{again:?}");
    assert_eq!(storage.get("job/chk-1/a").await.expect("get"), "second");
    assert_eq!(storage.size("job/chk-1/a").await.expect("size"), 6);
    assert_eq!(storage.get_range("job/chk-1/a", 2..6).await.expect("range"), "cond");
    assert_eq!(storage.get_range("job/chk-1/a", 6..6).await.expect("empty range"), "");
    for (range, found) in [(2..7, 4), (6..8, 0), (7..9, 0)] {
        match storage.get_range("job/chk-1/a", range.clone()).await {
            Err(StorageError::Truncated { wanted, found: there, .. }) => {
                assert_eq!((wanted, there), (range.end - range.start, found));
            }
            other => panic!("{range:?}: {other:?}"),
        }
    }
    assert!(storage.get_range("job/none", 0..1).await.expect_err("no file").is_not_found());

    storage.put("job/chk-10/a", text("x")).await.expect("put");
    let first = [("job/chk-1/a".to_owned(), 6), ("job/chk-1/b".to_owned(), 0)];
    assert_eq!(paths(storage.list("job/chk-1").await.expect("list")), first);
    assert_eq!(storage.list("").await.expect("list").len(), 3);
    assert_eq!(storage.list("job/none").await.expect("list"), []);

    storage.delete("job/chk-1/b").await.expect("delete");
    storage.delete("job/chk-1/b").await.expect("delete what is gone");
    storage.delete_all("job/chk-1").await.expect("delete all");
    storage.delete_all("job/chk-1").await.expect("delete all that is gone");
    assert_eq!(paths(storage.list("").await.expect("list")), [("job/chk-10/a".to_owned(), 1)]);
    for bad in ["", "/a", "a//b", "../a", "a/./b", "a/"] {
        assert!(matches!(storage.get(bad).await, Err(StorageError::BadPath { .. })), "{bad}");
    }
    storage.probe().await.expect("probe");
    assert_eq!(storage.list("").await.expect("list").len(), 1, "the probe leaves nothing");
    storage.delete_all("job").await.expect("delete all");
}

/// Names are taken as they are: nothing is percent-decoded or encoded.
pub async fn names(storage: &Storage) {
    for name in ["mäggi", "a b", "L%3ABC", "100%", "x+y", "q?z", "#1", "日本", "~t", "a&b=c"] {
        let path = format!("{name}/{name}");
        storage.put(&path, Bytes::from(name)).await.expect(name);
        assert_eq!(storage.get(&path).await.expect(name), name);
        assert_eq!(storage.list(name).await.expect(name)[0].path, path);
        storage.delete_all(name).await.expect(name);
    }
    assert_eq!(storage.list("").await.expect("list"), []);
}

/// Of many writers of one new file exactly one wins, and its bytes are whole.
pub async fn races(storage: &Storage) {
    let writers = (0..8u8).map(|writer| async move {
        let put = storage.put_new("race/file", Bytes::from(vec![writer; 10_000])).await;
        match put {
            Ok(()) => Some(writer),
            Err(StorageError::AlreadyExists { .. }) => None,
            Err(error) => panic!("writer {writer}: {error}"),
        }
    });
    let won: Vec<u8> = futures::future::join_all(writers).await.into_iter().flatten().collect();
    assert_eq!(won.len(), 1, "{won:?} won");
    assert_eq!(storage.get("race/file").await.expect("get"), vec![won[0]; 10_000]);
    storage.delete_all("race").await.expect("delete all");
    assert_eq!(storage.list("").await.expect("list"), []);
}

/// A file above every limit of one request is read back as it was, whole and in ranges.
pub async fn large(storage: &Storage) {
    let bytes: Bytes = (0..70u32 << 18).flat_map(u32::to_le_bytes).collect();
    storage.put("large/file", bytes.clone()).await.expect("put");
    assert_eq!(storage.size("large/file").await.expect("size"), bytes.len() as u64);
    assert!(storage.get("large/file").await.expect("get") == bytes, "it reads otherwise");
    let range = (16 << 20) - 5..(16 << 20) + 5;
    assert_eq!(storage.get_range("large/file", range.clone()).await.expect("range"), bytes[16777211..16777221]);
    let deadline = || tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    for length in [0, 1, 16 << 20, (16 << 20) + 1, bytes.len()] {
        let mut draft = storage.begin("large/copy", &std::env::temp_dir()).expect("begun");
        bytes[..length].chunks(1 << 20).for_each(|part| draft.write_all(part).expect("written"));
        assert_eq!((draft.path(), draft.bytes()), ("large/copy", length as u64));
        storage.finish(draft, deadline()).await.expect("finished");
        assert!(storage.get("large/copy").await.expect("get") == bytes[..length], "{length} bytes read otherwise");
        let mut local = LocalFile::scratch(&std::env::temp_dir()).expect("a local file");
        local.write_all(&bytes[..length]).expect("written");
        storage.put_file("large/copy", &LocalFile::new(local).expect("readable")).await.expect("put over");
        assert!(storage.get("large/copy").await.expect("get") == bytes[..length], "{length} bytes of a file read otherwise");
    }
    let mut given_up = storage.begin("large/given-up", &std::env::temp_dir()).expect("begun");
    given_up.write_all(b"x").expect("written");
    drop(given_up);
    assert_eq!(storage.list("large").await.expect("list").len(), 2);
    storage.delete_all("large").await.expect("delete all");
    assert_eq!(storage.list("").await.expect("list"), []);
}

/// Staged files are seen by nobody until they are published, which can be done again; what is not wanted leaves nothing.
pub async fn staging(storage: &Storage) {
    let staging = storage.staging().expect("a storage that stages");
    let visible =
        async || paths(storage.list("out").await.expect("list")).into_iter().filter(|(path, _)| !path.starts_with("out/."));
    let mut writer = staging.begin("out/part-1").await.expect("begun");
    let part = Bytes::from(vec![b'x'; Staging::PART_BYTES]);
    writer.write(part.clone()).await.expect("a part");
    assert!(!writer.is_full());
    writer.write(text("rest")).await.expect("the last part");
    assert_eq!(visible().await.count(), 0);
    let staged = writer.finish().await.expect("finished");
    assert_eq!(staged.bytes, part.len() as u64 + 4);
    assert_eq!(visible().await.count(), 0);
    let leftovers = staging.leftovers("out", "part-").await.expect("listed");
    assert_eq!(leftovers.iter().map(|leftover| leftover.path.as_str()).collect::<Vec<_>>(), ["out/part-1"]);
    for time in ["first", "again"] {
        staging.publish(&staged).await.expect(time);
        assert_eq!(visible().await.collect::<Vec<_>>(), [("out/part-1".to_owned(), staged.bytes)]);
    }
    assert!(storage.get("out/part-1").await.expect("read").ends_with(b"xrest"));
    assert_eq!(staging.leftovers("out", "part-").await.expect("listed").len(), 0);

    // That it was published is known after it was taken away.
    assert!(!staging.is_noted("out/part-1").await.expect("asked"));
    for path in ["out/part-1", "out/part-10", "out/other"] {
        staging.note(path).await.expect("noted");
        staging.note(path).await.expect("noted again");
    }
    storage.delete("out/part-1").await.expect("taken away");
    assert!(staging.publish(&staged).await.expect_err("it was taken away").is_not_found());
    assert!(staging.is_noted("out/part-1").await.expect("asked"));
    let mut notes = staging.notes("out", "part-").await.expect("listed");
    notes.sort_unstable();
    assert_eq!(notes, ["out/part-1", "out/part-10"]);
    assert_eq!(visible().await.count(), 0);
    for path in notes {
        staging.forget(&path).await.expect("forgotten");
        staging.forget(&path).await.expect("forgotten again");
    }
    assert_eq!(staging.notes("out", "part-").await.expect("listed").len(), 0);

    // One that is given up, one that is lost with its process, and one that is finished and not wanted.
    let mut given_up = staging.begin("out/part-2").await.expect("begun");
    given_up.write(text("x")).await.expect("a part");
    given_up.abort().await.expect("aborted");
    assert_eq!(staging.leftovers("out", "part-").await.expect("listed").len(), 0);
    let mut unwanted = staging.begin("out/part-4").await.expect("begun");
    unwanted.write(text("x")).await.expect("a part");
    let unwanted = unwanted.finish().await.expect("finished");
    for leftover in staging.leftovers("out", "part-").await.expect("listed") {
        assert_eq!(leftover.path, "out/part-4");
        staging.remove(&leftover).await.expect("removed");
        staging.remove(&leftover).await.expect("removed again");
    }
    let lost = staging.publish(&unwanted).await.expect_err("it is gone");
    assert!(lost.is_not_found(), "{lost}");
    storage.delete_all("out").await.expect("delete all");
    assert_eq!(storage.list("").await.expect("list"), []);
}
