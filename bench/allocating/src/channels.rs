//! Buffers that one task allocates and another frees.

use tokio::runtime::Builder;
use tokio::sync::mpsc;

/// Number of channels, each with a task that sends and one that receives.
const CHANNELS: u8 = 4;
/// Buffers that a channel holds.
const CAPACITY: usize = 64;

/// Returns the bytes that were received, and the sum of their last ones.
pub fn run(bytes: usize, buffers: usize) -> usize {
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    runtime.block_on(async move {
        let receivers: Vec<_> = (0..CHANNELS)
            .map(|channel| {
                let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(CAPACITY);
                tokio::spawn(async move {
                    for i in 0..buffers {
                        let mut buffer = vec![0; bytes];
                        buffer[i % bytes] = channel;
                        buffer[bytes - 1] = 1;
                        sender.send(buffer).await.expect("a receiver");
                    }
                });
                tokio::spawn(async move {
                    let mut sum = 0;
                    while let Some(buffer) = receiver.recv().await {
                        sum += buffer.len() + buffer[bytes - 1] as usize;
                    }
                    sum
                })
            })
            .collect();
        let mut sum = 0;
        for receiver in receivers {
            sum += receiver.await.expect("a task that ended");
        }
        sum
    })
}
