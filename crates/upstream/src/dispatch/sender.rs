//! One connection, ready for a request.

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};

use super::endpoint::Endpoint;

/// The body of every request.
type Body = Full<Bytes>;
/// Sends one request after the other.
pub(super) type Http1 = http1::SendRequest<Body>;
/// Sends requests at the same time.
pub(super) type Http2 = http2::SendRequest<Body>;

/// The side of a connection that takes requests. Dropping it (the last one of it, for HTTP/2) ends the connection.
#[derive(Debug)]
pub(super) enum Sender {
    Http1(Http1),
    Http2(Http2),
}

impl Sender {
    /// Sends a request and waits for the answer's head. The connection comes back if it serves one request at a time.
    pub(super) async fn send(
        self,
        endpoint: &Endpoint,
        method: Method,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Option<Http1>), hyper::Error> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        match self {
            Self::Http1(mut sender) => {
                headers.insert(HOST, endpoint.host.clone());
                *request.uri_mut() = endpoint.path.clone();
                *request.headers_mut() = headers;
                let answer = sender.send_request(request).await?;
                Ok((answer, Some(sender)))
            }
            Self::Http2(mut sender) => {
                *request.uri_mut() = endpoint.uri.clone();
                *request.headers_mut() = headers;
                Ok((sender.send_request(request).await?, None))
            }
        }
    }
}
