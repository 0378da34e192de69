# Defines `on PROGRAM ARGUMENTS...`, by which every script here runs a program on the library.
# The runner sets LIBRARY to the library under test (empty for none), and the library's settings.
set -euo pipefail

on() {
    LD_PRELOAD=$LIBRARY "$@"
}

# Prints a checksum of standard input, for output that is too long to print.
digest() {
    sha256sum | cut -c 1-16
}
