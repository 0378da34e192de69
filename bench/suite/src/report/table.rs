//! The tables.

use crate::conditions::Conditions;
use crate::results::Record;

pub fn markdown(conditions: &Conditions, records: &[Record], failures: &str) -> String {
    let _ = records;
    format!("{}\n\n{failures}", conditions.machine)
}
