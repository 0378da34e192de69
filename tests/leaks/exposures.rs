//! Logs each event once per user. The set of what was logged has no bound.

use std::collections::{HashMap, HashSet};

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    user: String,
    rule: String,
}

#[derive(Default)]
struct Sampling {
    seen: HashSet<Key>,
}

impl Sampling {
    fn is_new(&mut self, key: &Key) -> bool {
        if self.seen.contains(key) {
            return false;
        }
        self.seen.insert(key.clone()); // LEAK
        true
    }
}

/// Events that wait until they are sent.
#[derive(Default)]
struct Queue(Vec<HashMap<String, String>>);

impl Queue {
    fn add(&mut self, key: &Key) {
        let event = [("user", &key.user), ("rule", &key.rule)];
        self.0.push(event.into_iter().map(|(name, value)| (name.into(), value.clone())).collect());
        if self.0.len() == 1000 {
            self.0.clear();
        }
    }
}

fn main() {
    let (mut sampling, mut queue) = (Sampling::default(), Queue::default());
    for nth in 0..60_000 {
        let user = format!("{nth:0>100}");
        for rule in ["a", "b", "a"] {
            let key = Key { user: user.clone(), rule: rule.repeat(30) };
            if sampling.is_new(&key) {
                queue.add(&key);
            }
        }
    }
    std::hint::black_box((sampling.seen.len(), queue.0.len()));
    std::process::exit(0);
}
