//! A small HTTP endpoint for load balancers, probes and services: is this node the primary, at this instant?
//!
//! | path | 200 when | body |
//! | --- | --- | --- |
//! | `/primary` | it acts, its resources are up and its lease is not over | one word |
//! | `/standby` | it is a standby that could serve | one word |
//! | `/token` | it acts | as `token.json` |
//! | `/status` | always | as `leasehold status --json` |
//!
//! Otherwise 503. `/token` and `/status` answer this machine only (RFC 9110, 403 for others): the others may be shown to
//! a network. Read only, bounded in connections and time; it can be asked nothing that changes anything.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::Face;
use crate::control::{Ask, Call, Caller, Outcome};
use crate::os::clock;

/// Probes of a few load balancers; more wait in the kernel's queue.
const CONNECTIONS: usize = 64;
/// A client that has not sent its request by then is none.
const HEADER_LIMIT: Duration = Duration::from_secs(5);
/// The longest life of one connection: probes come back.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);
/// The address may belong to an interface that is not up yet.
const BIND_AGAIN: Duration = Duration::from_secs(5);
/// How long the loop may take to draw its picture; it takes microseconds.
const PICTURE_LIMIT: Duration = Duration::from_secs(2);

/// What answers.
#[derive(Debug, Clone)]
pub struct Http {
    pub address: SocketAddr,
    pub node: String,
    pub face: watch::Receiver<Face>,
    pub calls: mpsc::Sender<Call>,
}

impl Http {
    /// Serves until the worker ends.
    pub async fn run(self) {
        let listener = self.bind().await;
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, from)) => {
                    let http = self.clone();
                    tokio::spawn(async move {
                        http.serve(stream, from).await;
                        drop(place);
                    });
                }
                // Out of descriptors, or a client that went away: neither ends the endpoint, nor spins it.
                Err(error) => {
                    tracing::debug!(%error, "no connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn bind(&self) -> TcpListener {
        let mut told = false;
        loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => {
                    tracing::info!(address = %self.address, "answering /primary and /standby");
                    return listener;
                }
                Err(error) if !told => {
                    tracing::warn!(address = %self.address, %error, "service.http cannot listen yet; trying on");
                    told = true;
                }
                Err(_) => {}
            }
            sleep(BIND_AGAIN).await;
        }
    }

    async fn serve(&self, stream: TcpStream, from: SocketAddr) {
        let answer = service_fn(|request| self.answer(request, from));
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
        // A connection that ends in an error has no one left to be told.
        let _ = timeout(CONNECTION_LIMIT, server.serve_connection(TokioIo::new(stream), answer)).await;
    }

    async fn answer(&self, request: Request<Incoming>, from: SocketAddr) -> Result<Response<Full<Bytes>>, Infallible> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
        let here = from.ip().to_canonical().is_loopback();
        Ok(match (request.uri().path(), here) {
            ("/primary", _) => yes_or_no(self.now().is_primary(clock::now()), "primary\n", "not primary\n"),
            ("/standby", _) => yes_or_no(self.now().is_ready_standby(), "standby\n", "not a ready standby\n"),
            ("/token", true) => self.token(),
            ("/status", true) => self.status().await,
            ("/token" | "/status", false) => plain(StatusCode::FORBIDDEN, "only from this machine\n"),
            _ => plain(StatusCode::NOT_FOUND, "there are /primary, /standby, /token and /status\n"),
        })
    }

    fn now(&self) -> Face {
        *self.face.borrow()
    }

    fn token(&self) -> Response<Full<Bytes>> {
        let told = self.now().told(&self.node);
        let code = if told.token.is_some() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        json(code, serde_json::to_vec(&told))
    }

    async fn status(&self) -> Response<Full<Bytes>> {
        let (reply, answer) = oneshot::channel();
        let caller =
            Caller { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw(), pid: None };
        let asked = async {
            self.calls.send(Call { ask: Ask::Status, caller, reply }).await.ok()?;
            answer.await.ok()
        };
        match timeout(PICTURE_LIMIT, asked).await {
            Ok(Some(Outcome::Status(status))) => json(StatusCode::OK, serde_json::to_vec(&*status)),
            _ => plain(StatusCode::SERVICE_UNAVAILABLE, "the daemon does not answer\n"),
        }
    }
}

fn yes_or_no(yes: bool, word: &'static str, otherwise: &'static str) -> Response<Full<Bytes>> {
    match yes {
        true => plain(StatusCode::OK, word),
        false => plain(StatusCode::SERVICE_UNAVAILABLE, otherwise),
    }
}

fn plain(code: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(code, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn json(code: StatusCode, text: serde_json::Result<Vec<u8>>) -> Response<Full<Bytes>> {
    match text {
        Ok(text) => response(code, "application/json", Bytes::from(text)),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot be told\n"),
    }
}

fn response(code: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = code;
    let value = hyper::header::HeaderValue::from_static;
    response.headers_mut().insert(CONTENT_TYPE, value(kind));
    // A cached "primary" would be a lie a moment later.
    response.headers_mut().insert(CACHE_CONTROL, value("no-store"));
    response
}
