//! What was begun in a storage and not ended: by writers that were lost, or by some that still write.
//!
//! Must never know which of them it is: whoever asks knows by the names, or is the writer and has given up. Invariant: what has got
//! its name is never removed here.

use std::collections::BTreeSet;

use super::objects::{Objects, Store, path_of_temporary};
use super::s3::OpenUpload;
use super::{Backend, Storage, StorageError, check_path};

/// Something begun by somebody, complete or not.
#[derive(Debug, Clone)]
pub struct Leftover {
    /// The path that it would have got.
    pub path: String,
    pub(super) place: Place,
}

/// Where it is.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// An upload to S3.
    Upload(OpenUpload),
    /// A file of another name.
    File(String),
}

impl Storage {
    /// What is being written below the directory `prefix` (empty: all of the storage), or was when its writer was lost, and says what
    /// it is to be. Files that are staged are among them on S3.
    pub async fn leftovers(&self, prefix: &str) -> Result<Vec<Leftover>, StorageError> {
        if !prefix.is_empty() {
            check_path(prefix)?;
        }
        let of_file = |(path, file)| Leftover { path, place: Place::File(file) };
        match &self.backend {
            Backend::Files(files) => Ok(files.begun(prefix).await?.into_iter().map(of_file).collect()),
            Backend::Objects(objects) => match &*objects.store {
                Store::S3(bucket) if prefix.is_empty() => objects.uploads(bucket, "").await,
                Store::S3(bucket) => objects.uploads(bucket, &format!("{prefix}/")).await,
                Store::Memory(_) | Store::Hdfs(_) => {
                    let files = objects.list_all(prefix).await?.into_iter();
                    Ok(files.filter_map(|file| Some((path_of_temporary(&file.path)?, file.path))).map(of_file).collect())
                }
            },
        }
    }

    /// Takes away what was begun at exactly these paths and not ended; for whoever has dropped the futures that wrote there. What is
    /// whole stays, and so does what others have begun.
    pub async fn remove_begun(&self, paths: &BTreeSet<String>) -> Result<(), StorageError> {
        // A file of this machine that is given up is removed by the thread that writes it.
        let Backend::Objects(_) = &self.backend else { return Ok(()) };
        let folders: BTreeSet<&str> = paths.iter().map(|path| path.rsplit_once('/').map_or("", |(folder, _)| folder)).collect();
        for folder in folders {
            for leftover in self.leftovers(folder).await?.iter().filter(|leftover| paths.contains(&leftover.path)) {
                self.remove_leftover(leftover).await?;
            }
        }
        Ok(())
    }

    /// Takes something away that was begun; fine where it is gone. Its writer, where there still is one, fails.
    pub async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), StorageError> {
        match (&self.backend, &leftover.place) {
            (Backend::Files(files), Place::File(file)) => files.delete(file).await,
            (Backend::Files(_), Place::Upload(_)) => Ok(()),
            (Backend::Objects(objects), _) => objects.remove_leftover(leftover).await,
        }
    }
}

impl Objects {
    /// The uploads to names that begin with `prefix`, by their paths.
    pub(super) async fn uploads(&self, bucket: &super::s3::Bucket, prefix: &str) -> Result<Vec<Leftover>, StorageError> {
        let uploads = self.open_uploads(bucket, prefix).await?;
        let leftovers = uploads.into_iter().filter_map(|upload| {
            let path = self.relative(&upload.key)?.to_owned();
            Some(Leftover { path, place: Place::Upload(upload) })
        });
        Ok(leftovers.collect())
    }

    /// Takes something away that was begun; fine where it is gone.
    pub(super) async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), StorageError> {
        match (&leftover.place, &*self.store) {
            (Place::Upload(upload), Store::S3(bucket)) => self.within("abort", &leftover.path, None, bucket.abort(upload)).await,
            (Place::File(path), _) => self.delete(path).await,
            (Place::Upload(_), _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Notify;

    use super::super::{LocalFile, S3Keys, S3Options, StorageOptions};
    use super::*;

    /// A server of S3 that knows uploads: it takes the first part of each, and never answers to the others.
    #[derive(Clone, Default)]
    struct Server {
        uploads: Arc<Mutex<Vec<OpenUpload>>>,
        has_part: Arc<Notify>,
    }

    impl Server {
        async fn start() -> (Self, SocketAddr) {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            let server = Self::default();
            let own = server.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(own.clone().serve(stream));
                }
            });
            (server, address)
        }

        async fn serve(self, stream: TcpStream) -> std::io::Result<()> {
            let mut stream = BufReader::new(stream);
            loop {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if stream.read_line(&mut head).await? == 0 {
                        return Ok(());
                    }
                }
                let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let (path, query) = target.split_once('?').unwrap_or((&target, ""));
                let is_part = query.starts_with("partNumber=");
                if is_part && !query.starts_with("partNumber=1&") {
                    std::future::pending::<()>().await;
                }
                let length =
                    head.lines().find_map(|line| Some(line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse()));
                let length: u64 = length.map_or(0, |length| length.expect("a number"));
                tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await?;
                let body = self.handle(head.split(' ').next().unwrap_or_default(), path, query);
                let answer = format!("HTTP/1.1 200 OK\r\nETag: \"t\"\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await?;
                if is_part {
                    self.has_part.notify_one();
                }
            }
        }

        fn handle(&self, method: &str, path: &str, query: &str) -> String {
            let mut uploads = self.uploads.lock().expect("nobody panics with them");
            let of_query = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default();
            let key = path.trim_start_matches("/bucket").trim_start_matches('/');
            match method {
                "POST" => {
                    let id = format!("u{}", uploads.len());
                    uploads.push(OpenUpload { key: key.into(), id: id.clone() });
                    format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>")
                }
                "DELETE" => {
                    uploads.retain(|upload| upload.id != of_query("uploadId="));
                    String::new()
                }
                "GET" => {
                    let prefix = of_query("prefix=").replace("%2F", "/");
                    let found = uploads.iter().filter(|upload| upload.key.starts_with(&prefix));
                    let found =
                        found.map(|OpenUpload { key, id }| format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>"));
                    format!("<ListMultipartUploadsResult>{}</ListMultipartUploadsResult>", found.collect::<String>())
                }
                _ => String::new(),
            }
        }

        fn open(&self) -> Vec<String> {
            self.uploads.lock().expect("nobody panics with them").iter().map(|upload| upload.key.clone()).collect()
        }
    }

    fn paths(paths: &[&str]) -> BTreeSet<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[tokio::test]
    async fn an_upload_that_is_dropped_half_way_is_aborted_by_whoever_dropped_it() {
        let (server, address) = Server::start().await;
        let keys = Some(S3Keys { id: "id".into(), secret: "secret".into() });
        let s3 = S3Options { endpoint: Some(format!("http://{address}")), keys, ..S3Options::default() };
        let storage = Storage::open_with("s3://bucket/job", &StorageOptions { s3 }).expect("sends nothing");
        let large = tempfile::tempfile().expect("a file");
        large.set_len(65 << 20).expect("a file of zeros");
        let large = LocalFile::new(large).expect("a file");
        let staging = storage.staging().expect("S3 stages");
        let _other = staging.begin("chk-1/ab").await.expect("begun");
        for path in ["chk-1/a", "a"] {
            tokio::select! {
                done = storage.put_file(path, &large) => panic!("most parts are never answered: {done:?}"),
                () = server.has_part.notified() => {}
            }
        }
        assert_eq!(server.open(), ["job/chk-1/ab", "job/chk-1/a", "job/a"]);
        storage.remove_begun(&paths(&["chk-1/a", "chk-1/b", "a"])).await.expect("aborted");
        assert_eq!(server.open(), ["job/chk-1/ab"], "what others have begun is theirs");
    }

    #[tokio::test]
    async fn a_file_that_a_client_still_wrote_goes_and_whole_ones_stay() {
        let storage = Storage::in_memory();
        for name in ["chk-1/.a.tmp.1", "chk-1/a", "chk-1/.b.tmp.2", ".a.tmp.3"] {
            storage.put(name, Bytes::new()).await.expect("written");
        }
        storage.remove_begun(&paths(&["chk-1/a"])).await.expect("removed");
        let left: Vec<String> = storage.list("").await.expect("listed").into_iter().map(|file| file.path).collect();
        assert_eq!(left, [".a.tmp.3", "chk-1/.b.tmp.2", "chk-1/a"]);
        storage.remove_begun(&paths(&["a"])).await.expect("removed");
        assert_eq!(storage.list("").await.expect("listed").len(), 2);
    }
}
