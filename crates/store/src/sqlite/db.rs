//! What a request is given: a connection inside its transaction, the keys and the policy.

use evenkeel_core::policy::Policy;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row};

use crate::error::StoreError;
use crate::seal::{Place, Sealer};

/// One transaction's view.
#[derive(Debug)]
pub(crate) struct Db<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) sealer: &'a Sealer,
    pub(crate) policy: &'a Policy,
}

impl Db<'_> {
    /// Gives the number of rows changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }

    pub(crate) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(read).transpose()
    }

    pub(crate) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    /// The first column of the first row.
    pub(crate) fn value<T: FromSql>(
        &self,
        sql: &str,
        params: impl Params,
    ) -> Result<Option<T>, StoreError> {
        self.one(sql, params, |row| Ok(row.get(0)?))
    }

    /// Opens a sealed column that may be empty.
    pub(crate) fn open<T: serde::de::DeserializeOwned>(
        &self,
        table: &'static str,
        row: &str,
        column: &'static str,
        blob: Option<&[u8]>,
    ) -> Result<Option<T>, StoreError> {
        let place = Place { table, row, column };
        blob.map(|blob| self.sealer.open_json(place, blob))
            .transpose()
    }

    pub(crate) fn seal(
        &self,
        table: &'static str,
        row: &str,
        column: &'static str,
        value: &impl serde::Serialize,
    ) -> Result<Vec<u8>, StoreError> {
        self.sealer.seal_json(Place { table, row, column }, value)
    }
}

/// Reads columns one after the other.
#[derive(Debug)]
pub(crate) struct Columns<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl<'r, 's> Columns<'r, 's> {
    pub(crate) fn new(row: &'r Row<'s>) -> Self {
        Self { row, next: 0 }
    }

    /// The next column as SQLite holds it.
    pub(crate) fn take<T: FromSql>(&mut self) -> Result<T, StoreError> {
        let at = self.next;
        self.next += 1;
        Ok(self.row.get(at)?)
    }

    /// The next column, a count that is never negative.
    pub(crate) fn count(&mut self) -> Result<u64, StoreError> {
        let number: i64 = self.take()?;
        u64::try_from(number)
            .map_err(|_| StoreError::Unreadable(format!("{number} where a count should be")))
    }

    /// As [`Self::count`], for a column that may be empty.
    pub(crate) fn count_opt(&mut self) -> Result<Option<u64>, StoreError> {
        let number: Option<i64> = self.take()?;
        Ok(number.and_then(|number| u64::try_from(number).ok()))
    }

    /// The next column, a text that has to be parsed.
    pub(crate) fn parse<T>(&mut self) -> Result<T, StoreError>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        parse(&self.take::<String>()?)
    }

    /// As [`Self::parse`], for a column that may be empty.
    pub(crate) fn parse_opt<T>(&mut self) -> Result<Option<T>, StoreError>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        self.take::<Option<String>>()?
            .map(|text| parse(&text))
            .transpose()
    }

    /// The next column, a word that serde knows (an enum without data).
    pub(crate) fn word<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        word(self.take::<String>()?)
    }

    /// As [`Self::json`], of what is damaged: nothing. For columns that decide nothing by
    /// themselves, so that one damaged value does not stand in the way of all rows.
    pub(crate) fn json_if_sound<T: serde::de::DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, StoreError> {
        let text = self.take::<Option<String>>()?;
        Ok(text.and_then(|text| sound(&text)))
    }

    /// The next column, a JSON text that may be empty.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, StoreError> {
        self.take::<Option<String>>()?
            .map(|text| from_json(&text))
            .transpose()
    }
}

pub(crate) fn parse<T>(text: &str) -> Result<T, StoreError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error: T::Err| StoreError::Unreadable(error.to_string()))
}

pub(crate) fn word<T: serde::de::DeserializeOwned>(text: String) -> Result<T, StoreError> {
    serde_json::from_value(serde_json::Value::String(text))
        .map_err(|error| StoreError::Unreadable(error.to_string()))
}

pub(crate) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        StoreError::Unreadable(format!(
            "not the JSON it should be: {:?} at byte {}",
            error.classify(),
            error.column()
        ))
    })
}

/// What a text says, if it can be read at all.
pub(crate) fn sound<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    from_json(text)
        .inspect_err(|error| tracing::warn!(%error, "a damaged value is taken as absent"))
        .ok()
}

pub(crate) fn to_json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Unreadable(error.to_string()))
}

/// SQLite's integers are signed.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(crate) fn millis(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn span(millis: i64) -> std::time::Duration {
    std::time::Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
