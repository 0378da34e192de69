// The same with sampled blocks among the others, small ones: as long as there are slots, each.
// expect: exit 0
// env: EBB_SAMPLE=1
// ways: preload
#include "sizes.cpp"
