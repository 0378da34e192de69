# git with commits, history, packing, a clone and a check of it all.
# packages: git
# also: check harden
# version: git --version
. "$(dirname "$0")/on.sh"

export GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=Tester GIT_AUTHOR_EMAIL=tester@example.org
export GIT_AUTHOR_DATE='2020-02-02T02:02:02Z'
export GIT_COMMITTER_NAME=Tester GIT_COMMITTER_EMAIL=tester@example.org
export GIT_COMMITTER_DATE='2020-02-02T02:02:02Z'

mkdir -p source/{a,b,c}/{d,e}
git -c init.defaultBranch=main init -q source
cd source
for version in 1 2 3; do
    for number in $(seq 1 25); do
        for dir in a/d b/e c; do
            seq "$number" "$version" $((number * 20)) > "$dir/file$number"
        done
    done
    on git add .
    on git commit -q -m "Version $version"
done
on git log --stat --patch | digest
on git rev-parse HEAD
on git blame c/file20 | digest
on git checkout -q -b side HEAD~2
echo more > c/extra
on git add c/extra
on git commit -q -m 'On the side'
on git merge -q -m 'Together' main
on git rev-parse HEAD
on git gc -q --aggressive
on git fsck --full --strict
cd ..
on git clone -q --no-local source copy
on git -C copy archive HEAD | digest
on git -C copy grep -c 7 HEAD -- a | digest
