// Decodes replies by streams, and does not end the streams: their windows stay.
#include <stdlib.h>
#include <string.h>

enum { REPLIES = 400, WINDOW_BYTES = 32768, REPLY_BYTES = 100000 };

struct stream {
    unsigned char *window;
    size_t at;
};

static void stream_begin(struct stream *stream) {
    stream->window = malloc(WINDOW_BYTES); // LEAK
    stream->at = 0;
    if (stream->window == NULL) abort();
}

static void stream_decode(struct stream *stream, unsigned char *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        stream->window[stream->at++ % WINDOW_BYTES] = (unsigned char)i;
        out[i] = stream->window[(stream->at * 7) % WINDOW_BYTES];
    }
}

static unsigned decode(void) {
    struct stream stream;
    stream_begin(&stream);
    memset(stream.window, 0, WINDOW_BYTES);
    unsigned char *reply = malloc(REPLY_BYTES);
    if (reply == NULL) abort();
    stream_decode(&stream, reply, REPLY_BYTES);
    unsigned sum = reply[REPLY_BYTES / 2];
    free(reply);
    return sum;
}

int main(void) {
    volatile unsigned sum = 0;
    unsigned char *settings = calloc(1, 2 << 20);
    if (settings == NULL) abort();
    for (int i = 0; i < REPLIES; i++) sum += decode() + settings[i];
    free(settings);
    return 0;
}
