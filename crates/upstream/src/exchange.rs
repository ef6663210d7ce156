//! Where simulations stand in for the network: what would leave is handed over within the process, and what comes back
//! is read and judged like any answer.

use std::fmt;
use std::io;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use waybill_domain::observation::TransportFault;

/// The body of an answer as it arrives; an error breaks it off.
pub type Pieces = BoxStream<'static, Result<Bytes, io::Error>>;

/// Answers requests in the place of the network.
pub trait Exchange: fmt::Debug + Send + Sync + 'static {
    /// The answer to one request. Dropping it, or its body, is what a closed connection is.
    fn exchange(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'static, Result<http::Response<Pieces>, TransportFault>>;
}
