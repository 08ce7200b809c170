//! The contract of storages on real servers, and what is said where one is not there or does not let us.

use std::time::Duration;

use levada_common::fault::{Faulty, Retry};
use levada_common::storage::{Storage, StorageError, contract, retried};
use levada_integration_tests::http_proxy::{Fate, HttpProxy};
use levada_integration_tests::process::free_port;
use levada_integration_tests::services;
use tokio::time::Instant;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_keeps_the_contract() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let folder = s3.folder("contract");
    let storage = s3.storage(&folder)?;
    contract::files(&storage).await;
    contract::names(&storage).await;
    contract::races(&storage).await;
    contract::large(&storage).await;
    contract::staging(&storage).await;
    assert_eq!(s3.open_uploads(&folder).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hdfs_keeps_the_contract() -> anyhow::Result<()> {
    let storage = Storage::open(&services::hdfs().await?.folder("contract"))?;
    contract::files(&storage).await;
    contract::names(&storage).await;
    // No races: hdfs-native may give two writers of one name the same hidden file, and tells one that it is gone. Names of ours
    // are written once.
    contract::large(&storage).await;
    contract::staging(&storage).await;
    let error = storage.put("a:b", Default::default()).await.expect_err("a colon");
    assert!(matches!(error, StorageError::BadName { .. }), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_goes_with_the_uploads_that_nobody_completed() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let folder = s3.folder("lost");
    let storage = s3.storage(&folder)?;
    let staging = storage.staging().expect("S3 stages");
    for name in ["chk-1/a", "chk-1/b", "chk-10/a"] {
        let mut writer = staging.begin(name).await?;
        writer.write(bytes::Bytes::from_static(b"x")).await?;
    }
    assert_eq!(s3.open_uploads(&folder).await?, 3);
    storage.delete_all("chk-1").await?;
    assert_eq!(s3.open_uploads(&folder).await?, 1, "only those of the folder");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_has_its_own_words() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let missing = Storage::open_with("s3://no-such-bucket/a", &s3.options(s3.address))?;
    let error = missing.probe().await.expect_err("no bucket");
    assert!(matches!(error, StorageError::MissingBucket { .. }), "{error:?}");
    assert!(error.to_string().contains("NoSuchBucket") && error.to_string().contains("s3://no-such-bucket/a/probe-"), "{error}");
    assert_eq!(error.retry(), Retry::Never);

    let nowhere = format!("127.0.0.1:{}", free_port()?).parse()?;
    for storage in [Storage::open_with("s3://levada/a", &s3.options(nowhere))?, Storage::open(&format!("hdfs://{nowhere}/a"))?] {
        let error = storage.probe().await.expect_err("nobody listens");
        assert!(matches!(error, StorageError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains("cannot be reached") && error.to_string().contains("refused"), "{error}");
        assert_eq!(error.retry(), Retry::Backoff);
    }

    let proxy = HttpProxy::start(s3.address).await?;
    let guarded = Storage::open_with(&s3.folder("denied"), &s3.options(proxy.address))?;
    proxy.set(|method, _| if method == "PUT" { Fate::Status(403) } else { Fate::Pass });
    let error = guarded.probe().await.expect_err("no right to write");
    assert!(matches!(error, StorageError::Denied { action: "write", .. }) && error.retry() == Retry::Never, "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_tried_again() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let proxy = HttpProxy::start(s3.address).await?;
    let folder = s3.folder("retried");
    let storage = Storage::open_with(&folder, &s3.options(proxy.address))?;
    for fate in [Fate::Status(500), Fate::Status(503), Fate::Cut, Fate::CutAnswer] {
        let mut requests = 0;
        proxy.set(move |_, _| {
            requests += 1;
            if requests % 3 == 0 { Fate::Pass } else { fate }
        });
        let bytes = bytes::Bytes::from(format!("{fate:?}"));
        retried(soon(), || storage.put("a", bytes.clone())).await?;
        assert_eq!(retried(soon(), || storage.get("a")).await?, bytes);
    }
    proxy.set(|_, _| Fate::Status(500));
    let deadline = Instant::now() + Duration::from_millis(500);
    let error = retried(deadline, || storage.put("a", Default::default())).await.expect_err("it never works");
    assert!(error.to_string().contains("500") && error.to_string().contains("gave up at the deadline"), "{error}");
    Ok(())
}
