//! Writes the tunables of all layers as tables, for `docs/tuning.md`.

use core::fmt::{Result, Write};

use crate::tuning::{Tunable, document};
use crate::{backend, central, engine, frontend, safety, telemetry};

/// The layers, lowest first.
const LAYERS: [(&str, &[Tunable]); 6] = [
    ("Front end", frontend::tuning::ALL),
    ("Back end", backend::tuning::ALL),
    ("Telemetry", telemetry::tuning::ALL),
    ("Safety", safety::tuning::ALL),
    ("Central free lists", central::tuning::ALL),
    ("Engine", engine::tuning::ALL),
];

/// Writes the tables of all layers in Markdown.
pub fn document_tuning(out: &mut impl Write) -> Result {
    for (layer, tunables) in LAYERS {
        write!(out, "\n## {layer}\n\n")?;
        document(tunables, out)?;
    }
    Ok(())
}
