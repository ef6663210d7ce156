//! temporary
use waybill_event::Source;
pub struct Permit;
pub enum Claim {
    Granted(Permit),
    Taken,
}
pub struct Probes;
impl Probes {
    pub async fn claim(&self, _s: Source, _o: &str) -> Claim {
        Claim::Taken
    }
    pub fn seems_free(&self, _s: Source, _o: &str) -> bool {
        false
    }
    pub fn release(&self, _p: Permit) {}
}
