//! The histories of a case as the tables hold them.

use std::collections::BTreeMap;

use sqlx::Row as _;

use super::Ground;

/// One request's history.
#[derive(Debug, Clone)]
pub struct History {
    /// The gateway's id.
    pub request: String,
    /// Its state.
    pub state: String,
    /// The status that the client got.
    pub status: Option<i32>,
    /// The replica that served it.
    pub replica: String,
    /// Name of the source that served it.
    pub served: Option<String>,
    /// Names of the sources that were asked, in their order.
    pub asked: Vec<String>,
}

/// The histories of a case by the names that their clients gave them.
///
/// # Panics
/// When the tables can't be read.
pub async fn histories(ground: &Ground, case: &str) -> BTreeMap<String, Vec<History>> {
    let pool = ground.tables().await;
    let read = async {
        let requests = sqlx::query(
            "select client_request_id, request_id::text as request, state, status, replica, served_source
             from requests where client_request_id like $1",
        );
        let requests = requests.bind(format!("{case}-%")).fetch_all(&pool).await?;
        let attempts = sqlx::query(
            "select a.request_id::text as request, a.source from attempts a
             join requests r on r.day = a.day and r.request_id = a.request_id
             where r.client_request_id like $1 order by a.request_id, a.attempt",
        );
        let attempts = attempts.bind(format!("{case}-%")).fetch_all(&pool).await?;
        let mut asked: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in attempts {
            let source: String = row.try_get("source")?;
            asked.entry(row.try_get("request")?).or_default().push(ground.name_of(&source));
        }
        let mut found: BTreeMap<String, Vec<History>> = BTreeMap::new();
        for row in requests {
            let request: String = row.try_get("request")?;
            let served: Option<String> = row.try_get("served_source")?;
            found.entry(row.try_get("client_request_id")?).or_default().push(History {
                state: row.try_get("state")?,
                status: row.try_get("status")?,
                replica: row.try_get::<Option<String>, _>("replica")?.unwrap_or_default(),
                served: served.map(|source| ground.name_of(&source)),
                asked: asked.remove(&request).unwrap_or_default(),
                request,
            });
        }
        Ok::<_, sqlx::Error>(found)
    };
    let found = read.await;
    pool.close().await;
    match found {
        Ok(found) => found,
        Err(error) => panic!("the histories of {case}: {error}"),
    }
}
