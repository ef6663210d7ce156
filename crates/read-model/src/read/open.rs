//! Requests that are open, by who owns them.

use sqlx::Row as _;
use uuid::Uuid;
use waybill_domain::loss::Owner;
use waybill_event::{Boot, ProducerId, RequestId};

use super::limit;
use crate::column::Column;
use crate::{ReadModel, StoreError};

impl ReadModel {
    /// Owners of open requests, at most `wanted` of them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn owners_of_open_requests(&self, wanted: u32) -> Result<Vec<Owner>, StoreError> {
        self.reading("owners of open requests", async |pool| {
            let rows = sqlx::query(
                "select distinct replica, boot from requests
                 where state = 'open' and replica is not null and boot is not null order by boot limit $1",
            )
            .bind(limit(wanted))
            .fetch_all(pool)
            .await?;
            let owner = |row| -> Result<Owner, sqlx::Error> {
                Ok(Owner { replica: ProducerId::read(row, "replica")?, boot: Boot::read(row, "boot")? })
            };
            rows.iter().map(owner).collect::<Result<Vec<_>, _>>()
        })
        .await
    }

    /// Open requests of an owner after the one given, by their ids, at most `wanted` of them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open_requests_of(
        &self,
        owner: &Owner,
        after: Option<RequestId>,
        wanted: u32,
    ) -> Result<Vec<RequestId>, StoreError> {
        let after = after.map_or(Uuid::nil(), RequestId::as_uuid);
        self.reading("an owner's open requests", async |pool| {
            let rows = sqlx::query(
                "select request_id from requests
                 where state = 'open' and replica = $1 and boot = $2 and request_id > $3 order by request_id limit $4",
            )
            .bind(owner.replica.to_sql())
            .bind(owner.boot.to_sql())
            .bind(after)
            .bind(limit(wanted))
            .fetch_all(pool)
            .await?;
            rows.iter()
                .map(|row| row.try_get::<Uuid, _>(0).map(RequestId::from_uuid))
                .collect::<Result<Vec<_>, sqlx::Error>>()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use waybill_domain::history::RequestState;

    #[test]
    fn the_statements_name_the_state_as_it_is_stored() {
        assert_eq!(RequestState::Open.as_str(), "open");
    }
}
