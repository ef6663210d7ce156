//! How a field of a row stands in a column, and back.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde::Serialize;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde_json::Value;
use sqlx::postgres::{PgHasArrayType, PgRow};
use sqlx::types::Json;
use sqlx::{Decode, Encode, Postgres, Row, Type};
use uuid::Uuid;
use waybill_domain::history::{Day, RequestState, UsageFrom};
use waybill_event::config::Change;
use waybill_event::control::LossReason;
use waybill_event::failure::{BlockVerdict, Health, Sent};
use waybill_event::selection::{Chosen, Next, TableHash};
use waybill_event::traffic::{Evidence, Protocol, Shadow};
use waybill_event::{
    Boot, ConfigPosition, FailureKind, FallbackReason, Id, LogTime, Mark, Position, ProducerId, RequestId, Source,
    TokenCount,
};

/// What a column holds can't be a field's value: the table was written by something else.
#[derive(Debug, thiserror::Error)]
#[error("a column holds {held:?}, which is no {wanted}")]
pub(crate) struct Unreadable {
    held: String,
    wanted: &'static str,
}

impl Unreadable {
    fn new<T>(held: impl ToString) -> Self {
        Self { held: held.to_string().chars().take(100).collect(), wanted: std::any::type_name::<T>() }
    }
}

/// A value that the driver can send, read and put into arrays.
pub(crate) trait Native:
    for<'q> Encode<'q, Postgres> + for<'r> Decode<'r, Postgres> + Type<Postgres> + PgHasArrayType + Send + 'static
{
}
impl<T> Native for T where
    T: for<'q> Encode<'q, Postgres> + for<'r> Decode<'r, Postgres> + Type<Postgres> + PgHasArrayType + Send + 'static
{
}

fn unreadable(column: &str, error: Unreadable) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source: Box::new(error) }
}

/// A field of a row.
pub(crate) trait Column: Sized {
    /// What the driver knows it as.
    type Sql: Native;
    /// The column's type.
    const PG: &'static str;
    /// The value as the column holds it.
    fn to_sql(&self) -> Self::Sql;
    /// The value that the column holds.
    fn from_sql(sql: Self::Sql) -> Result<Self, Unreadable>;

    /// Reads the value from a named column.
    fn read(row: &PgRow, name: &str) -> Result<Self, sqlx::Error> {
        Self::from_sql(row.try_get::<Self::Sql, _>(name)?).map_err(|error| unreadable(name, error))
    }

    /// Reads the value from the column at a place, counted from 0.
    fn at(row: &PgRow, place: usize) -> Result<Self, sqlx::Error> {
        Self::from_sql(row.try_get::<Self::Sql, _>(place)?).map_err(|error| {
            let name = row.columns().get(place).map(sqlx::Column::name).unwrap_or_default();
            unreadable(name, error)
        })
    }
}

/// A field that may be empty.
impl<T: Column> Column for Option<T>
where
    Option<T::Sql>: Native,
{
    type Sql = Option<T::Sql>;
    const PG: &'static str = T::PG;
    fn to_sql(&self) -> Self::Sql {
        self.as_ref().map(Column::to_sql)
    }
    fn from_sql(sql: Self::Sql) -> Result<Self, Unreadable> {
        sql.map(T::from_sql).transpose()
    }
}

macro_rules! as_it_is {
    ($($ty:ty => $pg:literal),+ $(,)?) => {$(
        impl Column for $ty {
            type Sql = Self;
            const PG: &'static str = $pg;
            fn to_sql(&self) -> Self {
                self.clone()
            }
            fn from_sql(sql: Self) -> Result<Self, Unreadable> {
                Ok(sql)
            }
        }
    )+};
}
as_it_is!(bool => "bool", i32 => "int4", String => "text", Value => "jsonb");

macro_rules! numbers {
    ($($ty:ty as $sql:ty => $pg:literal: $get:expr, $make:expr);+ $(;)?) => {$(
        impl Column for $ty {
            type Sql = $sql;
            const PG: &'static str = $pg;
            fn to_sql(&self) -> $sql {
                // The fold keeps numbers within what the column holds.
                <$sql>::try_from($get(self)).unwrap_or(<$sql>::MAX)
            }
            fn from_sql(sql: $sql) -> Result<Self, Unreadable> {
                sql.try_into().map($make).map_err(|_| Unreadable::new::<Self>(sql))
            }
        }
    )+};
}
numbers!(
    u16 as i32 => "int4": |n: &u16| *n, |n: u16| n;
    u32 as i32 => "int4": |n: &u32| *n, |n: u32| n;
    u64 as i64 => "int8": |n: &u64| *n, |n: u64| n;
    TokenCount as i64 => "int8": |n: &TokenCount| n.0, TokenCount;
    ConfigPosition as i64 => "int8": |n: &ConfigPosition| n.0, ConfigPosition;
);

impl<K: 'static> Column for Id<K> {
    type Sql = i64;
    const PG: &'static str = "int8";
    fn to_sql(&self) -> i64 {
        i64::try_from(self.get()).unwrap_or(i64::MAX)
    }
    fn from_sql(sql: i64) -> Result<Self, Unreadable> {
        u64::try_from(sql).map(Self::new).map_err(|_| Unreadable::new::<Self>(sql))
    }
}

macro_rules! texts {
    ($($ty:ty),+ $(,)?) => {$(
        impl Column for $ty {
            type Sql = String;
            const PG: &'static str = "text";
            fn to_sql(&self) -> String {
                self.to_string()
            }
            fn from_sql(sql: String) -> Result<Self, Unreadable> {
                sql.parse().map_err(|_| Unreadable::new::<Self>(sql))
            }
        }
    )+};
}
texts!(Source, Position, Mark, Boot, ProducerId, TableHash, RequestState);

macro_rules! words {
    ($($ty:ty),+ $(,)?) => {$(
        impl Column for $ty {
            type Sql = String;
            const PG: &'static str = "text";
            fn to_sql(&self) -> String {
                word(self)
            }
            fn from_sql(sql: String) -> Result<Self, Unreadable> {
                of_word(&sql)
            }
        }
    )+};
}
words!(crate::Why, LossReason, Protocol, FallbackReason, FailureKind, Chosen, Next, Sent, Health, UsageFrom, Change);

/// The word that a variant is written as, in events and columns alike.
pub(crate) fn word<T: Serialize>(variant: &T) -> String {
    match serde_json::to_value(variant) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

fn of_word<T: DeserializeOwned>(word: &str) -> Result<T, Unreadable> {
    let deserializer: serde::de::value::StrDeserializer<'_, serde::de::value::Error> = word.into_deserializer();
    T::deserialize(deserializer).map_err(|_| Unreadable::new::<T>(word))
}

macro_rules! documents {
    ($($ty:ty),+ $(,)?) => {$(
        impl Column for $ty {
            type Sql = Json<Self>;
            const PG: &'static str = "jsonb";
            fn to_sql(&self) -> Json<Self> {
                Json(self.clone())
            }
            fn from_sql(sql: Json<Self>) -> Result<Self, Unreadable> {
                Ok(sql.0)
            }
        }
    )+};
}
documents!(Evidence, BlockVerdict, Shadow);

impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> Column for Vec<T> {
    type Sql = Json<Self>;
    const PG: &'static str = "jsonb";
    fn to_sql(&self) -> Json<Self> {
        Json(self.clone())
    }
    fn from_sql(sql: Json<Self>) -> Result<Self, Unreadable> {
        Ok(sql.0)
    }
}

impl Column for RequestId {
    type Sql = Uuid;
    const PG: &'static str = "uuid";
    fn to_sql(&self) -> Uuid {
        self.as_uuid()
    }
    fn from_sql(sql: Uuid) -> Result<Self, Unreadable> {
        Ok(Self::from_uuid(sql))
    }
}

impl Column for LogTime {
    type Sql = DateTime<Utc>;
    const PG: &'static str = "timestamptz";
    fn to_sql(&self) -> DateTime<Utc> {
        // Times in the log have years of four digits, all of which stand in both calendars.
        DateTime::from_timestamp_micros(self.as_micros()).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }
    fn from_sql(sql: DateTime<Utc>) -> Result<Self, Unreadable> {
        Ok(Self::from_micros(sql.timestamp_micros()))
    }
}

impl Column for Day {
    type Sql = NaiveDate;
    const PG: &'static str = "date";
    fn to_sql(&self) -> NaiveDate {
        NaiveDate::default().checked_add_signed(TimeDelta::days(i64::from(self.0))).unwrap_or(NaiveDate::MAX)
    }
    fn from_sql(sql: NaiveDate) -> Result<Self, Unreadable> {
        let days = sql.signed_duration_since(NaiveDate::default()).num_days();
        i32::try_from(days).map(Self).map_err(|_| Unreadable::new::<Self>(sql))
    }
}
