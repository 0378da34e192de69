# Installs, uses and removes the packages in $DEBS on a fresh Debian. Needs root.
suite=$(. /etc/os-release; echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
    sed -n "s/ $suite$//p" | head -n 1)
lintian --fail-on error "$DEBS"/*.deb

if [ ! -e root.tar ]; then
    rm -rf fresh
    debootstrap --variant=minbase --include=gcc,libc6-dev,pkg-config,man-db,bash-completion \
        "$suite" fresh "$mirror"
    tar -C fresh -cf root.tar .
fi
rm -rf fresh
mkdir fresh
tar -C fresh -xf root.tar
mkdir fresh/debs
cp "$DEBS"/*.deb "$EXAMPLES/calls.c" "$EXAMPLES/hello.c" fresh/debs

cat > fresh/debs/try.sh <<'END'
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
cd /debs
# Caches and logs of the system's own tools may differ.
state() {
    find / -xdev -path /proc -prune -o -path /debs -prune -o -path /tmp -prune -o \
        -path /var/cache -prune -o -path /var/log -prune -o -path /var/lib/dpkg -prune -o -print |
        sort
}
state > before

dpkg -i ./*.deb
is_ours() { grep -q '^served by ebbmalloc 0\.'; }
cc hello.c -o hello
LD_PRELOAD=libebbmalloc.so.0 ./hello | is_ours
ebb run -- ./hello | is_ours
cc calls.c -o calls $(pkg-config --cflags --libs ebbmalloc)
./calls | is_ours
cc hello.c -o object "$(pkg-config --variable=object ebbmalloc)"
./object | is_ours
man ebb > manual
grep -q '^EXIT STATUS' manual
man ebb-profile > manual
bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader ebb || :
    complete -p ebb' > completion
[ -f /usr/share/ebbmalloc/alerts.yml ]

dpkg --remove ebbmalloc
# The library alone serves.
LD_PRELOAD=libebbmalloc.so.0 ./hello | is_ours
dpkg --purge ebbmalloc libebbmalloc-dev libebbmalloc0
state > after
diff before after
if LD_PRELOAD=libebbmalloc.so.0 ./hello | is_ours; then exit 1; fi
END
unshare --mount --pid --fork --mount-proc="$PWD/fresh/proc" chroot fresh sh /debs/try.sh
