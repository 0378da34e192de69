//! Sends messages through a queue with many producers and one consumer. Each message is an object,
//! and the queue's links are others; the producers allocate all of them and the consumer frees
//! them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, Thread};

use anyhow::{Result, ensure};
use fastrand::Rng;

use crate::block::{self, Block};
use crate::crew;
use crate::report::Report;
use crate::resident;
use crate::threads::Scale;

/// Of all producers together.
const MESSAGES: usize = 2_000_000;
/// Maximum number of messages that wait in the queue.
const WAITING: usize = 20_000;

pub fn run(Scale { threads, times }: Scale) -> Result<Report> {
    let all = MESSAGES * times;
    ensure!(threads >= 2, "a queue needs two threads: a producer and the consumer");
    let producers: Vec<_> = (1..threads).map(|_| Producer::default()).collect();
    let window = WAITING / producers.len();
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let work = |index: usize| match index.checked_sub(1) {
        None => consume(&receiver.lock().unwrap(), &producers, all, window),
        Some(at) => {
            let messages = crew::share(all, producers.len(), at);
            producers[at].produce(at, messages, window, &sender);
        }
    };
    let (seconds, freed) = crew::run(threads, work, resident::kib);
    let sum = |count: fn(&Producer) -> &AtomicUsize| -> usize {
        producers.iter().map(|producer| count(producer).load(Relaxed)).sum()
    };
    ensure!(sum(|p| &p.received) == all, "messages were lost");
    ensure!(sum(|p| &p.bytes_sent) == sum(|p| &p.bytes_received), "messages were changed");
    Ok(crew::report(seconds, freed))
}

struct Message {
    producer: usize,
    object: Block,
}

#[derive(Default)]
struct Producer {
    thread: OnceLock<Thread>,
    received: AtomicUsize,
    bytes_sent: AtomicUsize,
    bytes_received: AtomicUsize,
}

impl Producer {
    /// Sends messages; sleeps while `window` of them are under way.
    fn produce(&self, producer: usize, messages: usize, window: usize, queue: &Sender<Message>) {
        self.thread.set(thread::current()).expect("one thread a producer");
        let mut rng = Rng::with_seed(producer as u64);
        let mut bytes = 0;
        let mut limit = window;
        for sent in 0..messages {
            while sent >= limit {
                limit = self.received.load(Relaxed) + window;
                if sent >= limit {
                    thread::park();
                }
            }
            let object = Block::new(block::small_size(&mut rng));
            bytes += object.size();
            queue.send(Message { producer, object }).expect("the consumer lives as long");
        }
        self.bytes_sent.store(bytes, Relaxed);
    }
}

fn consume(queue: &Receiver<Message>, producers: &[Producer], messages: usize, window: usize) {
    for _ in 0..messages {
        let Message { producer, object } = queue.recv().expect("the producers live as long");
        let from = &producers[producer];
        from.bytes_received.fetch_add(object.size(), Relaxed);
        drop(object);
        let received = from.received.fetch_add(1, Relaxed) + 1;
        // Wakes the producer seldom, so that waking costs little.
        if received.is_multiple_of(window / 2) {
            from.thread.get().expect("it has sent").unpark();
        }
    }
}
