//! One file from a Hugging Face repository.

use std::path::PathBuf;
use std::time::Duration;

use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderMap, Response, StatusCode};
use ureq::{Agent, Body};

use super::cache::Repository;
use super::file::{Incomplete, Opened};
use super::{FIRST_ANSWER, Hub, HubError, Progress, reference};

const CONNECT: Duration = Duration::from_secs(4);
/// A connection that says nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(30);
/// How often a broken connection is taken up again.
const ATTEMPTS: u32 = 5;

pub(super) struct Wanted<'a> {
    pub(super) repository: &'a str,
    pub(super) revision: &'a str,
    pub(super) file: &'a str,
    pub(super) sha256: Option<&'a str>,
}

/// What the hub says about a file before sending it.
struct Metadata {
    /// The name of the blob: the file's sha256 when it is large.
    etag: String,
    commit: String,
    size: Option<u64>,
}

pub(super) fn fetch(
    hub: &Hub,
    cache: &Repository,
    wanted: &Wanted<'_>,
    progress: &mut Progress<'_>,
) -> Result<PathBuf, HubError> {
    let url = format!(
        "{}/{}/resolve/{}/{}",
        hub.endpoint,
        wanted.repository,
        wanted.revision,
        escape(wanted.file)
    );
    let metadata = ask(hub, &url)?;
    let hash = wanted
        .sha256
        .map(str::to_owned)
        .or_else(|| is_sha256(&metadata.etag).then(|| metadata.etag.clone()));
    let Some(hash) = hash else {
        let reason =
            "it states no sha256 for this file, so what it sends could not be checked".to_owned();
        return Err(HubError::BadAnswer { url, reason });
    };
    let blob = cache.blob(&hash)?;
    if !blob.is_file() {
        match Incomplete::open(&blob, progress)? {
            Opened::Finished => {}
            Opened::Incomplete(mut file) => {
                fill(hub, &url, &mut file, metadata.size, progress)?;
                file.finish(&blob, Some(&hash), &url, progress)?;
            }
        }
    }
    cache.publish(&hash, &metadata.commit, wanted.file, wanted.revision)
}

fn ask(hub: &Hub, url: &str) -> Result<Metadata, HubError> {
    // The hub states a large file's hash on its own answer, not on that of the host it redirects to.
    let agent = agent(Some(FIRST_ANSWER), 0);
    let mut request = agent.head(url);
    if let Some(token) = &hub.token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let answer = request.call().map_err(|error| unreachable(url, &error))?;
    if !(answer.status().is_success() || answer.status().is_redirection()) {
        return Err(refused(url, answer.status()));
    }
    let headers = answer.headers();
    let bad = |reason: &str| HubError::BadAnswer { url: url.to_owned(), reason: reason.to_owned() };
    let etag = text(headers, "x-linked-etag").or(text(headers, "etag"));
    let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
    let etag = etag.filter(|etag| reference::is_relative(etag) && !etag.contains('/'));
    let commit = text(headers, "x-repo-commit")
        .filter(|commit| reference::is_relative(commit) && !commit.contains('/'));
    let size = text(headers, "x-linked-size").or_else(|| {
        let own = answer.status().is_success();
        own.then(|| text(headers, "content-length")).flatten()
    });
    Ok(Metadata {
        etag: etag.ok_or_else(|| bad("it has no usable ETag"))?,
        commit: commit
            .ok_or_else(|| bad("it has no X-Repo-Commit; is it a Hugging Face hub?"))?
            .to_owned(),
        size: size.and_then(|size| size.parse().ok()),
    })
}

/// Downloads until the file is complete, taking up broken connections where they broke.
fn fill(
    hub: &Hub,
    url: &str,
    file: &mut Incomplete,
    size: Option<u64>,
    progress: &mut Progress<'_>,
) -> Result<(), HubError> {
    if size.is_some_and(|size| file.done() > size) {
        file.restart()?;
    }
    let agent = agent(None, 10);
    let mut attempt = 0;
    while size.is_none_or(|size| file.done() < size) || (size == Some(0) && attempt == 0) {
        progress.check()?;
        attempt += 1;
        let before = file.done();
        let failure = match request(hub, &agent, url, file)? {
            Ok(answer) => {
                let rest = answer.body().content_length();
                let total = size.or(rest.map(|rest| file.done() + rest));
                let mut body = answer.into_body().into_with_config().limit(u64::MAX).reader();
                match file.append(&mut body, total, progress)? {
                    Ok(()) if total.is_none_or(|total| file.done() == total) => return Ok(()),
                    Ok(()) => "the connection was closed too early".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
            Err(reason) => reason,
        };
        if file.done() > before {
            attempt = 0;
        }
        if attempt >= ATTEMPTS {
            return Err(HubError::Interrupted {
                url: url.to_owned(),
                done: file.done(),
                reason: failure,
            });
        }
        pause(attempt, progress)?;
    }
    Ok(())
}

/// Asks for the rest of the file. The inner error is one that may pass.
fn request(
    hub: &Hub,
    agent: &Agent,
    url: &str,
    file: &mut Incomplete,
) -> Result<Result<Response<Body>, String>, HubError> {
    let start = file.done();
    let mut request = agent.get(url).header("Accept-Encoding", "identity");
    if start > 0 {
        request = request.header("Range", format!("bytes={start}-"));
    }
    if let Some(token) = &hub.token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let answer = match request.call() {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(error.to_string())),
    };
    match answer.status() {
        StatusCode::PARTIAL_CONTENT => {
            let range = text(answer.headers(), "content-range").unwrap_or_default();
            if start > 0 && range.starts_with(&format!("bytes {start}-")) {
                return Ok(Ok(answer));
            }
            file.restart()?;
            Ok(Err(format!("it sent another part than asked for ({range:?})")))
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            file.restart()?;
            Ok(Err("the file has become shorter".to_owned()))
        }
        status if status.is_success() => {
            // The host has ignored the range, or was asked for all.
            file.restart()?;
            Ok(Ok(answer))
        }
        status if status.is_server_error() => Ok(Err(format!("it answers {}", status.as_u16()))),
        status => Err(refused(url, status)),
    }
}

/// Waits between attempts, longer each time, but not when cancelled.
fn pause(attempt: u32, progress: &Progress<'_>) -> Result<(), HubError> {
    for _ in 0..attempt * 2 {
        progress.check()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn agent(global: Option<Duration>, redirects: u32) -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(global)
        .timeout_resolve(Some(CONNECT))
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .max_redirects(redirects)
        .max_redirects_will_error(redirects > 0)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .user_agent(concat!("butter/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn is_sha256(etag: &str) -> bool {
    etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Names were checked: a space is the only character in them that an address cannot have.
fn escape(path: &str) -> String {
    path.replace(' ', "%20")
}

fn unreachable(url: &str, error: &ureq::Error) -> HubError {
    let host = url.split("://").nth(1).unwrap_or(url).split('/').next().unwrap_or(url);
    HubError::Unreachable { host: host.to_owned(), reason: error.to_string() }
}

fn refused(url: &str, status: StatusCode) -> HubError {
    let advice = match status.as_u16() {
        401 | 403 => {
            "the repository does not exist, is private or asks for consent: set HF_TOKEN to a token that may read it"
        }
        404 => "check the repository, the revision and the file's name",
        429 => "it is asked too often: wait, or set HF_TOKEN",
        _ => "try again later",
    };
    HubError::Status { url: url.to_owned(), status: status.as_u16(), advice }
}
