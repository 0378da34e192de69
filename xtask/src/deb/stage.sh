# Makes an installed tree what Debian's packages have: stripped, compressed manuals, no licence
# beside the one in `copyright`. Runs in the prefix.
strip --strip-unneeded --remove-section=.comment --remove-section=.note \
    bin/ebb "$LIB"/libebbmalloc*.so.*.*
gzip -9n share/man/man1/*
rm share/doc/ebbmalloc/LICENSE
mv share/zsh/site-functions share/zsh/vendor-completions
chmod 644 "$LIB"/libebbmalloc*.so.*.*
