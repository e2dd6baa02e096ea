//! What SQLite's errors mean to callers.

use rusqlite::ErrorCode;

use crate::error::StoreError;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        // Names code and message; never a statement's values.
        let text = error.to_string();
        match code {
            Some(ErrorCode::DiskFull) => {
                Self::Full(format!("{text}; make room on the disk of the data folder"))
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(format!(
                "{text}; restore the database from a backup, or see `evenkeel store check`"
            )),
            Some(ErrorCode::ReadOnly) => Self::Unavailable(format!(
                "{text}; the file system of the data folder is read-only"
            )),
            Some(ErrorCode::ConstraintViolation) => Self::Damaged(format!(
                "a rule of the schema was about to be broken: {text}"
            )),
            Some(_) => Self::Unavailable(text),
            None => {
                if let rusqlite::Error::FromSqlConversionFailure(column, ..)
                | rusqlite::Error::IntegralValueOutOfRange(column, _)
                | rusqlite::Error::InvalidColumnType(column, ..)
                | rusqlite::Error::Utf8Error(column, _) = error
                {
                    Self::Unreadable(format!("column {column} does not hold what it should"))
                } else {
                    Self::Unavailable(text)
                }
            }
        }
    }
}

/// An input/output error on a file system without room is about room: SQLite reports a full disk
/// so where it grows its shared memory or log.
pub(crate) fn about_room(error: StoreError, folder: &std::path::Path) -> StoreError {
    let StoreError::Unavailable(text) = &error else {
        return error;
    };
    match rustix::fs::statvfs(folder) {
        Ok(room) if room.f_bavail == 0 => StoreError::Full(format!(
            "{text}; make room on the disk of {}",
            folder.display()
        )),
        Ok(_) | Err(_) => error,
    }
}
