// Builds object graphs that grow and are dropped, a cache of buffers that outlives them, and JSON
// of both. The data is the same in every run. V8 keeps objects in a heap of its own; malloc serves
// buffers, the compilers, the engine's hash tables, and its threads.
"use strict";

const GENERATIONS = 6;
const NODES = 12_000;
const BUFFERS = 3_000;
const CACHED = 8_000;

let state = 20240229;
function random(below) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
}

/// Makes nodes that point at earlier ones, and back.
function makeGraph(generation) {
    const nodes = [];
    for (let id = 0; id < NODES; id++) {
        const node = {
            id,
            name: `node ${generation}.${id}`,
            neighbours: new Set(),
            tags: new Map(),
            weights: [],
        };
        for (let edge = 0; id > 0 && edge < 3; edge++) {
            const other = nodes[random(id)];
            node.neighbours.add(other);
            other.neighbours.add(node);
            node.weights.push(random(1000) / 7);
        }
        node.tags.set("colour", random(16)).set(node.name, node.weights.length);
        nodes.push(node);
    }
    return nodes;
}

/// Counts the nodes that can be reached from the first.
function reach(nodes) {
    const seen = new Set([nodes[0]]);
    for (const node of seen) {
        for (const neighbour of node.neighbours) {
            seen.add(neighbour);
        }
    }
    return seen.size;
}

function flat(node) {
    const neighbours = [...node.neighbours].map((other) => other.id);
    return { ...node, neighbours, tags: [...node.tags] };
}

const cache = new Map();
let check = 0;
for (let generation = 0; generation < GENERATIONS; generation++) {
    const nodes = makeGraph(generation);
    const text = JSON.stringify(nodes.map(flat));
    check += reach(nodes) + JSON.parse(text).length;
    for (let turn = 0; turn < BUFFERS; turn++) {
        const buffer = Buffer.alloc(64 + random(16_000), turn & 255);
        check += buffer[buffer.length - 1];
        cache.set(random(CACHED), buffer);
    }
    check += Buffer.from(text).length - text.length;
}
check += cache.size;

const fills = Array.from({ length: BUFFERS }, (_, turn) => turn & 255);
const bytes = fills.reduce((sum, byte) => sum + byte);
const expected = GENERATIONS * (2 * NODES + bytes) + cache.size;
if (check !== expected) {
    console.error(`graph.js: checksum ${check}, expected ${expected}`);
    process.exit(1);
}
