# Read by every script here. `on PROGRAM ARGUMENTS...` runs a program on the library under test, which the
# runner names in LIBRARY (empty: on none), together with the library's own settings.
set -euo pipefail

on() {
    LD_PRELOAD=$LIBRARY "$@"
}

# A checksum of standard input, for output that is too long to print.
digest() {
    sha256sum | cut -c 1-16
}
