//! The data plane: the phases of a request, from authentication to the last byte. Policy and verdicts are `domain`s;
//! sockets to upstreams are `upstream`s.
