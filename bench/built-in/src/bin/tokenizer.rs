//! Runs GPT-2's tokenizer on a text, batch by batch, like a program that feeds a language model.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use built_in::{Chosen, resident};
use clap::Parser;
use serde_json::json;
use tokenizers::Tokenizer;
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

#[global_allocator]
static GLOBAL: Chosen = Chosen;

#[derive(Parser)]
#[command(
    about = "Tokenizes a text; TOKENIZERS_PARALLELISM and RAYON_NUM_THREADS give the threads"
)]
struct Cli {
    /// A JSON object: tokens and their numbers
    vocabulary: PathBuf,
    /// Pairs of tokens to merge, best first
    merges: PathBuf,
    text: PathBuf,
    /// Cut the text into this many documents; 0: into lines
    #[arg(long, default_value_t = 0)]
    documents: usize,
    /// Lines or documents in a call
    #[arg(long, default_value_t = 1000)]
    batch: usize,
    /// Calls, which take the batches of the text in turn; only the last ones, which make up the
    /// whole text, are timed
    #[arg(long)]
    calls: usize,
    /// Tokens that the text must have
    #[arg(long)]
    tokens: usize,
    /// Seconds to wait at the end
    #[arg(long, default_value_t = 0)]
    idle: u64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let name = |path: &PathBuf| path.to_string_lossy().into_owned();
    let model = BPE::from_file(&name(&cli.vocabulary), &name(&cli.merges)).build();
    let mut tokenizer = Tokenizer::new(model.map_err(anyhow::Error::from_boxed)?);
    tokenizer.with_pre_tokenizer(Some(ByteLevel::default().add_prefix_space(false)));
    let text = fs::read_to_string(&cli.text)?;
    let lines: Vec<&str> = text.lines().collect();
    let inputs = if cli.documents == 0 { lines } else { documents(&text, &lines, cli.documents) };
    let encode = |batch: &[&str]| -> Result<usize> {
        let encodings =
            tokenizer.encode_batch(batch.to_vec(), false).map_err(anyhow::Error::from_boxed)?;
        Ok(encodings.iter().map(|encoding| encoding.len()).sum())
    };

    let batches = inputs.chunks(cli.batch);
    let warm_up = cli.calls.checked_sub(batches.len()).context("--calls: fewer than batches")?;
    let mut batches = batches.cycle();
    let mut after_one = 0.0;
    for call in 0..warm_up {
        encode(batches.next().unwrap_or_default())?;
        if call == 0 {
            after_one = resident::kib();
        }
    }
    let begin = Instant::now();
    let tokens = batches.take(cli.calls - warm_up).map(encode).sum::<Result<usize>>()?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(tokens == cli.tokens, "{tokens} tokens, but the text has {}", cli.tokens);

    let mut figures = json!({
        "time_s": seconds,
        "mib_per_s": text.len() as f64 / f64::from(1 << 20) / seconds,
        "after_1_kib": after_one,
        format!("after_{}_kib", cli.calls): resident::kib(),
    });
    if cli.idle > 0 {
        sleep(Duration::from_secs(cli.idle));
        figures[format!("idle_{}s_kib", cli.idle)] = json!(resident::kib());
    }
    println!("{figures}");
    Ok(())
}

/// Cuts the text into this many parts of whole lines, as equal as possible.
fn documents<'a>(text: &'a str, lines: &[&'a str], count: usize) -> Vec<&'a str> {
    let offset = |line: usize| {
        lines.get(line).map_or(text.len(), |line| line.as_ptr().addr() - text.as_ptr().addr())
    };
    let first = |document: usize| offset(document * lines.len() / count);
    (0..count).map(|document| &text[first(document)..first(document + 1)]).collect()
}
