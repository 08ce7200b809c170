//! S3: how a bucket is opened, and what object_store does not do: to list uploads that were never completed.

use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::{ClientOptions, RetryConfig};

use super::idle::IdleConnector;
use super::{S3Keys, S3Options, StorageError};

/// Time to connect; afterwards a request ends when nothing moves (see `idle`).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pages of a listing of uploads, each of a thousand.
const PAGES_MAX: usize = 1_000;

/// A bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Everything that object_store does.
    pub store: AmazonS3,
    http: HttpClient,
    /// The bucket's own address.
    url: String,
    region: String,
}

/// A multipart upload that is neither completed nor aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenUpload {
    /// The name that it would get.
    pub key: String,
    /// Its id.
    pub id: String,
}

impl Bucket {
    /// Opens a bucket: what `options` leave open comes from the environment. Sends nothing.
    pub fn open(uri: &str, bucket: &str, options: &S3Options) -> Result<Self, StorageError> {
        let wrong = |reason: String| StorageError::Settings { uri: uri.into(), reason };
        let environment = AmazonS3Builder::from_env();
        let of_environment = |key| environment.get_config_value(&key);
        let endpoint = options.endpoint.clone().or_else(|| of_environment(AmazonS3ConfigKey::S3Endpoint));
        let endpoint = endpoint.or_else(|| of_environment(AmazonS3ConfigKey::Endpoint));
        let region = options.region.clone().or_else(|| of_environment(AmazonS3ConfigKey::Region));
        let region = region.unwrap_or_else(|| "us-east-1".into());
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = endpoint.trim_end_matches('/');
        let Some((scheme, host)) = endpoint.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")) else {
            let text = "storage.s3.endpoint (or AWS_ENDPOINT_URL) is an address such as http://127.0.0.1:9000";
            return Err(wrong(format!("{text}, not \"{endpoint}\"")));
        };
        let url = if options.path_style { format!("{endpoint}/{bucket}") } else { format!("{scheme}://{bucket}.{host}") };
        // A request takes as long as its bytes move, and the policy in `retry` decides when it is made again: neither is the client's.
        let client = ClientOptions::new().with_allow_http(scheme == "http").with_connect_timeout(CONNECT_TIMEOUT);
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let environment = match &options.keys {
            Some(S3Keys { id, secret }) => environment.with_access_key_id(id).with_secret_access_key(secret),
            None => environment,
        };
        let store = environment
            .with_bucket_name(bucket)
            .with_region(&region)
            .with_config(AmazonS3ConfigKey::S3Endpoint, if options.path_style { endpoint } else { &url })
            .with_virtual_hosted_style_request(!options.path_style)
            .with_client_options(client.clone())
            .with_http_connector(IdleConnector)
            .with_retry(retry)
            .build()
            .map_err(|error| wrong(super::error::chain(&error)))?;
        let http = IdleConnector.connect(&client).map_err(|error| wrong(super::error::chain(&error)))?;
        Ok(Self { store, http, url, region })
    }

    /// The uploads whose names begin with `prefix` and that are neither completed nor aborted.
    pub async fn open_uploads(&self, prefix: &str) -> Result<Vec<OpenUpload>, object_store::Error> {
        let mut found = Vec::new();
        let mut marker = String::new();
        for _ in 0..PAGES_MAX {
            let page = self.get(&format!("uploads=&prefix={}{marker}", encoded(prefix))).await?;
            found.extend(uploads_in(&page));
            if text_of(&page, "IsTruncated") != Some("true") {
                break;
            }
            let next = |tag| encoded(&unescaped(text_of(&page, tag).unwrap_or_default()));
            marker = format!("&key-marker={}&upload-id-marker={}", next("NextKeyMarker"), next("NextUploadIdMarker"));
        }
        Ok(found)
    }

    /// A request about the bucket itself, signed; answers the body.
    async fn get(&self, query: &str) -> Result<String, object_store::Error> {
        let failed = |text: String| object_store::Error::Generic { store: "S3", source: text.into() };
        let address = format!("{}?{query}", self.url);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = address.parse().map_err(|error| failed(format!("{address}: {error}")))?;
        let credential = self.store.credentials().get_credential().await?;
        AwsAuthorizer::new(&credential, "s3", &self.region).authorize(&mut request, None);
        let answer = self.http.execute(request).await.map_err(|error| failed(super::error::chain(&error)))?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.map_err(|error| failed(super::error::chain(&error)))?;
        let body = String::from_utf8_lossy(&body).into_owned();
        match status.as_u16() {
            200..300 => Ok(body),
            404 => Err(object_store::Error::NotFound { path: self.url.clone(), source: body.into() }),
            401 | 403 => Err(object_store::Error::PermissionDenied { path: self.url.clone(), source: body.into() }),
            _ => Err(failed(format!("Server returned non-2xx status code: {status}: {body}"))),
        }
    }

    /// Aborts an upload; fine where it is completed or aborted already.
    pub async fn abort(&self, upload: &OpenUpload) -> Result<(), object_store::Error> {
        use object_store::multipart::MultipartStore;
        match self.store.abort_multipart(&Path::parse(&upload.key)?, &upload.id).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            result => result,
        }
    }
}

/// What is between the first `<tag>` and its end.
fn text_of<'a>(xml: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(text, _)| text)
}

fn uploads_in(xml: &str) -> Vec<OpenUpload> {
    let uploads = xml.split("<Upload>").skip(1);
    let uploads = uploads.filter_map(|upload| {
        Some(OpenUpload { key: unescaped(text_of(upload, "Key")?), id: unescaped(text_of(upload, "UploadId")?) })
    });
    uploads.collect()
}

/// A text of XML without its escapes.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let (name, end) = after.split_once(';').unwrap_or((after, ""));
        let number = name.strip_prefix("#x").map(|hex| u32::from_str_radix(hex, 16).ok());
        let number = number.or_else(|| name.strip_prefix('#').map(|decimal| decimal.parse().ok()));
        match (name, number.flatten().and_then(char::from_u32)) {
            ("amp", _) => plain.push('&'),
            ("lt", _) => plain.push('<'),
            ("gt", _) => plain.push('>'),
            ("quot", _) => plain.push('"'),
            ("apos", _) => plain.push('\''),
            (_, Some(character)) => plain.push(character),
            (name, None) => plain.extend(["&", name, ";"]),
        }
        rest = end;
    }
    plain + rest
}

/// A value of a query.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out += &format!("%{byte:02X}"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_read_out_of_a_listing() {
        let xml = "<ListMultipartUploadsResult><Prefix>a</Prefix><IsTruncated>false</IsTruncated>\
                   <Upload><Key>out/a&amp;b&#252;&#xe9;</Key><UploadId>x&lt;1</UploadId></Upload>\
                   <Upload><Initiator/><Key>out/c</Key><UploadId>2</UploadId></Upload></ListMultipartUploadsResult>";
        let upload = |key: &str, id: &str| OpenUpload { key: key.into(), id: id.into() };
        assert_eq!(uploads_in(xml), [upload("out/a&büé", "x<1"), upload("out/c", "2")]);
        assert_eq!(uploads_in("<ListMultipartUploadsResult/>"), []);
        assert_eq!(unescaped("a&b"), "a&b;", "what is no escape stays readable");
        assert_eq!(encoded("a b/ü~"), "a%20b%2F%C3%BC~");
    }

    #[test]
    fn an_endpoint_that_is_no_address_is_said() {
        let options = S3Options { endpoint: Some("minio:9000".into()), ..S3Options::default() };
        let error = Bucket::open("s3://b/a", "b", &options).expect_err("no scheme").to_string();
        assert!(error.contains("minio:9000") && error.contains("storage.s3.endpoint"), "{error}");
    }
}
