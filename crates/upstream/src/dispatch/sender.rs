//! One connection, ready for a request.

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;

use super::endpoint::Endpoint;
use super::exclusive::Exclusive;

/// The body of every request.
pub(super) type Body = Full<Bytes>;
/// Sends requests at the same time.
pub(super) type Http2 = http2::SendRequest<Body>;

/// What takes requests. Dropping it (the last one of it, for HTTP/2) ends the connection.
#[derive(Debug)]
pub(super) enum Sender {
    Http1(Exclusive),
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
    ) -> Result<(Response<Incoming>, Option<Exclusive>), hyper::Error> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        match self {
            Self::Http1(mut connection) => {
                headers.insert(HOST, endpoint.host.clone());
                *request.uri_mut() = endpoint.path.clone();
                *request.headers_mut() = headers;
                let answer = connection.send(request).await?;
                Ok((answer, Some(connection)))
            }
            Self::Http2(mut sender) => {
                *request.uri_mut() = endpoint.uri.clone();
                *request.headers_mut() = headers;
                Ok((sender.send_request(request).await?, None))
            }
        }
    }
}
