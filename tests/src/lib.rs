//! Black-box suites over the `waybill` binary live in `tests/tests`. Nothing of the product is here.
