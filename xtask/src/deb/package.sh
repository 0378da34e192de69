# Makes a Debian package from what it takes of stage/usr. Runs in the folder of stage.
tree=$NAME
mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/$NAME"
chmod -R u=rwX,go=rX "$tree" stage
for path in $FILES; do
    for found in stage/usr/$path; do
        to=$tree/usr/$(dirname "${found#stage/usr/}")
        mkdir -p "$to"
        cp -a "$found" "$to"
        rm -r "$found"
    done
done

doc=$tree/usr/share/doc/$NAME
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
    printf 'Source: %s\n\nFiles: *\n' "$HOMEPAGE"
    printf 'Copyright: %s\nLicense: MIT\n' "$(sed -n 's/^Copyright (c) //p' "$ROOT/LICENSE")"
    sed -n '/^Permission/,$ s/^/ /p' "$ROOT/LICENSE" | sed 's/^ $/ ./'
} > "$doc/copyright"
{
    printf 'ebbmalloc (%s) unstable; urgency=medium\n\n' "$VERSION"
    printf '  * What is new: CHANGELOG.md in\n    %s\n\n' "$HOMEPAGE"
    printf ' -- %s  %s\n' "$MAINTAINER" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n > "$doc/changelog.Debian.gz"

# The libraries that its programs and libraries need, in the oldest version that has all they use.
depends=$NEEDS
for file in "$tree"/usr/bin/* "$tree"/usr/lib/*/lib*.so.*.*; do
    [ -f "$file" ] || continue
    found=$(dpkg-shlibdeps -O "$file")
    depends="${depends:+$depends, }${found#shlibs:Depends=}"
done
if [ "$NAME" = libebbmalloc0 ]; then
    printf '%s' "$SYMBOLS" > "$tree/DEBIAN/symbols"
    for file in "$tree"/usr/lib/*/*.so.0; do
        name=$(basename "$file" .so.0)
        printf '%s 0 libebbmalloc0 (>= %s)\n' "$name" "${VERSION%-*}"
    done > "$tree/DEBIAN/shlibs"
    printf 'activate-noawait ldconfig\n' > "$tree/DEBIAN/triggers"
fi
{
    printf '%s' "$CONTROL" | sed '/^Description:/,$ d'
    printf 'Depends: %s\n' "$depends"
    find "$tree/usr" -type f -printf '%s\n' |
        awk '{ kib += int(($1 + 1023) / 1024) } END { print "Installed-Size: " kib }'
    printf '%s' "$CONTROL" | sed -n '/^Description:/,$ p'
} > "$tree/DEBIAN/control"
(cd "$tree" && find usr -type f | LC_ALL=C sort | xargs md5sum) > "$tree/DEBIAN/md5sums"
chmod -R u=rwX,go=rX "$tree"
dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$tree" . > /dev/null
