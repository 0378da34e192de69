"""Tokenizes like `bench/built-in`'s `tokenizer`, with the Python package `tokenizers`."""

import argparse
import itertools
import json
import os
import time

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel


def resident_kib():
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("vocabulary")
    parser.add_argument("merges")
    parser.add_argument("text")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    arguments = parser.parse_args()

    tokenizer = Tokenizer(BPE.from_file(arguments.vocabulary, arguments.merges))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    with open(arguments.text, encoding="utf-8") as file:
        text = file.read()
    lines = text.splitlines()
    batches = [lines[at : at + arguments.batch] for at in range(0, len(lines), arguments.batch)]
    in_turn = itertools.cycle(batches)

    def encode(calls):
        return sum(
            len(encoding)
            for batch in itertools.islice(in_turn, calls)
            for encoding in tokenizer.encode_batch(batch, add_special_tokens=False)
        )

    encode(1)
    after_one = resident_kib()
    encode(arguments.calls - len(batches) - 1)
    begin = time.perf_counter()
    tokens = encode(len(batches))
    seconds = time.perf_counter() - begin
    if tokens != arguments.tokens:
        raise SystemExit(f"{tokens} tokens, but the text has {arguments.tokens}")
    figures = {
        "time_s": seconds,
        "mib_per_s": len(text.encode()) / 2**20 / seconds,
        "after_1_kib": after_one,
        f"after_{arguments.calls}_kib": resident_kib(),
    }
    print(json.dumps(figures))


main()
