// Calls a function while exceptions unwind the stack, and where they are caught.
typedef void (*look_fn)();

static look_fn look;

struct Late {
    int number;
    ~Late() { look(); }
};

__attribute__((noinline)) static int thrower(int depth) {
    Late late{depth};
    if (depth == 0)
        throw depth;
    return thrower(depth - 1) + late.number;
}

extern "C" void each_exception(look_fn given) {
    look = given;
    for (int depth = 0; depth < 5; depth++) {
        try {
            thrower(depth);
        } catch (int caught) {
            Late late{caught};
            look();
            try {
                throw;
            } catch (...) {
                look();
            }
        }
    }
}
