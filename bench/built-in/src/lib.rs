//! Defines the allocator of the programs in `bin/`, chosen by a feature of this package.

#[path = "../../loads/src/resident.rs"]
pub mod resident;
mod through;

pub use through::Through;

macro_rules! choices {
    ($($feature:literal: $allocator:path,)*) => {
        $(
            #[cfg(feature = $feature)]
            pub use $allocator as Chosen;
        )*
        #[cfg(not(any($(feature = $feature),*)))]
        pub use std::alloc::System as Chosen;
    };
}

choices! {
    "ebbmalloc": ebbmalloc::EbbMalloc,
    "mimalloc2": mimalloc::MiMalloc,
    "mimalloc3": mimalloc::MiMalloc,
    "jemalloc": tikv_jemallocator::Jemalloc,
    "snmalloc": snmalloc_rs::SnMalloc,
    "rpmalloc": rpmalloc::RpMalloc,
    "tcmalloc": tcmalloc_better::TCMalloc,
}
