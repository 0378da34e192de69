# Defines `source_of NAME`, which unpacks the source of a Debian package into ./NAME.
printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s main\n' \
    'http://deb.debian.org/debian bookworm' > sources.list
mkdir -p lists/partial
apt="apt-get -q -o Dir::Etc::sourcelist=$PWD/sources.list -o Dir::Etc::sourceparts=/dev/null
    -o Dir::State::lists=$PWD/lists -o APT::Sandbox::User=root"
$apt update
source_of() {
    $apt source --download-only "$1"
    mkdir "$1"
    tar -C "$1" --strip-components=1 -xf "$1"_*.orig.tar.*
}
