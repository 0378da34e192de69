// Calls a function from frames that no table describes.
typedef void (*look_fn)(void);

__attribute__((noinline)) static void inner(look_fn look) {
    look();
    __asm__ volatile("");
}

void without_tables(look_fn look) {
    volatile char bytes[3000];
    bytes[0] = 1;
    inner(look);
    bytes[1] = bytes[0];
}
