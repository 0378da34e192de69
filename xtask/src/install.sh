# Installs Debian packages, as root, without starting or enabling any service that was not enabled
# before.
set -eu
policy=/usr/sbin/policy-rc.d
enabled() {
    find /etc/systemd/system -path '*.wants/*.service' -printf '%f\n' | sort -u
}

before=$(enabled)
# While this file forbids it, packages start no services (Debian policy, 9.3.3).
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' > $policy
    chmod 755 $policy
    trap 'rm -f $policy' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends "$@"
for unit in $(enabled); do
    if ! printf '%s\n' "$before" | grep -q -x -F "$unit"; then
        name=${unit%.service}
        # deb-systemd-helper requires the caller's package name.
        DPKG_MAINTSCRIPT_PACKAGE=$name deb-systemd-helper disable "$unit"
        [ ! -e "/etc/init.d/$name" ] || update-rc.d "$name" disable
    fi
done
