//! `allocators NAMES…`: sets up the peers with these names, or all. Prints name, library,
//! environment and origin of each, between tabs. Peers that cannot be set up are reported on
//! standard error.

use allocators::{GUARDED, PEERS, parse};

fn main() -> anyhow::Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let peers: Vec<_> = match names.is_empty() {
        true => PEERS.iter().chain(GUARDED).collect(),
        false => names.iter().map(|name| parse(name)).collect::<Result<_, _>>()?,
    };
    for peer in peers {
        match peer.set_up() {
            Ok(ready) => {
                let library = ready.library.unwrap_or_default();
                let environment: Vec<String> =
                    ready.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let environment = environment.join(" ");
                println!("{}\t{}\t{environment}\t{}", ready.name, library.display(), ready.origin);
            }
            Err(error) => eprintln!("{}: MISSING, {error:#}", peer.name),
        }
    }
    Ok(())
}
