// sizes.cpp with sampled blocks: small blocks are sampled while slots are free.
// expect: exit 0
// env: EBB_SAMPLE=1
// ways: preload
#include "sizes.cpp"
