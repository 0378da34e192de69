# Chromium without a screen: a page that builds a tree, computes and draws by script; its DOM.
# packages: chromium fonts-dejavu-core
# version: chromium --version
# timeout: 600
# when: long
# note: it defines `malloc` itself (PartitionAlloc): the library is loaded, but serves no block
. "$(dirname "$0")/on.sh"

cat > page.html <<'HTML'
<!DOCTYPE html><html><body>
<canvas id=c width=200 height=100></canvas><pre id=out></pre><div id=list></div><script>
const lines = [], list = document.getElementById('list');
for (let i = 0; i < 3000; i++) {
    const row = document.createElement('p');
    row.textContent = 'row ' + i * 7919 % 5003;
    list.append(row);
}
lines.push('rows ' + list.querySelectorAll('p').length);
const map = new Map();
for (let i = 0; i < 100000; i++) map.set('k' + i % 9001, { i, text: 'x'.repeat(i % 50) });
lines.push('map ' + map.size + ' ' + JSON.stringify([...map]).length);
const context = document.getElementById('c').getContext('2d');
for (let i = 0; i < 100; i++) {
    context.fillStyle = `rgb(${i * 2},0,${255 - i})`;
    context.fillRect(i * 2, 0, 2, 100);
}
lines.push('canvas ' + context.getImageData(100, 50, 1, 1).data.join());
list.style.width = '300px';
lines.push('layout ' + list.offsetWidth + ' ' + (list.offsetHeight > 3000));
let sum = 0, rounds = 0;
function round() {
    for (let i = 0; i < 20000; i++) sum = (sum * 31 + i) % 1000003;
    if (++rounds < 10) return void setTimeout(round, 10);
    lines.push('rounds ' + rounds + ' ' + sum);
    list.remove();
    document.getElementById('out').textContent = lines.join('\n');
}
setTimeout(round, 10);
</script></body></html>
HTML
on chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$PWD/profile" --no-first-run --virtual-time-budget=20000 \
    --dump-dom "file://$PWD/page.html" > dom 2> err
cat err >&2
sed -n 's/.*<pre id="out">//; /^rows/,/<\/pre>/p' dom
# Shells around it use the library. If its own processes do too, the note above is out of date.
case $LIBRARY in
    *libebbmalloc.so)
        grep -q -E '^ebbmalloc: allocated_bytes +0 B' err || echo "blocks come from the library"
        ;;
esac
