# node with object graphs, JSON, strings, buffers, worker threads.
# packages: nodejs
# also: harden
# version: node --version
. "$(dirname "$0")/on.sh"

cat > script.js <<'JS'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const zlib = require('zlib');

function work(seed) {
    const map = new Map();
    for (let i = 0; i < 15000; i++) {
        const key = 'key' + (i * seed) % 3001;
        const entry = map.get(key) || { key, hits: 0, places: [] };
        entry.hits++;
        if (entry.places.length < 5) entry.places.push({ i, text: key.repeat(3) });
        map.set(key, entry);
    }
    const text = JSON.stringify([...map.values()].sort((a, b) => (a.key < b.key ? -1 : 1)));
    const same = JSON.stringify(JSON.parse(text)) === text;
    const buffers = [];
    for (let i = 0; i < 300; i++) buffers.push(Buffer.alloc(10000 + i * 100, i));
    const packed = zlib.deflateSync(Buffer.concat(buffers));
    const whole = zlib.inflateSync(packed).length;
    const hash = crypto.createHash('sha256').update(text).digest('hex').slice(0, 16);
    return `${seed}: ${map.size} ${same} ${whole} ${hash}`;
}

if (isMainThread) {
    const workers = [3, 5, 7, 11, 13, 17].map((seed) => new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: seed });
        worker.on('message', resolve);
        worker.on('error', reject);
    }));
    Promise.all(workers).then((lines) => {
        console.log([work(2), ...lines].join('\n'));
    });
} else {
    parentPort.postMessage(work(workerData));
}
JS
on node script.js
