#!/usr/bin/env python3
"""A small shop's night batch: import orders, index them, report on them, archive them, forget most.

Python serves requests of up to 512 bytes itself. Documents, long texts, buffers, growing tables and
SQLite's pages are larger and come from malloc, with many sizes and lifetimes mixed. Live memory
grows to just under 200 MiB and shrinks again. Each run uses the same data and needs no packages:

    ebb compare -- python3 examples/churn.py
"""

import json
import random
import re
import sqlite3
import zlib
from collections import defaultdict

DAYS = 9
ORDERS_A_DAY = 900
KEPT_DAYS = 5
WORDS = """ebb flow tide shore sand shell gull wave drift anchor harbour mast sail rope keel
lantern buoy current reef salt breeze cliff dune lagoon pier net boat captain crew chart""".split()


def prose(rng, words):
    return " ".join(rng.choices(WORDS, k=words))


def make_order(rng, number):
    """An order as a partner sends it: a JSON text of one to a few tens of kilobytes."""
    lines = [
        {
            "sku": f"{rng.choice(WORDS)}-{rng.randrange(5000)}",
            "count": rng.randrange(1, 20),
            "price": rng.randrange(100, 100_000),
            "description": prose(rng, rng.randrange(90, 200)),
        }
        for _ in range(min(24, int(rng.paretovariate(1.0))))
    ]
    note = prose(rng, int(60 * rng.paretovariate(1.1)) % 4000)
    return json.dumps(
        {"number": number, "customer": rng.randrange(3000), "note": note, "lines": lines}
    )


def import_day(database, day, texts):
    """Parses the day's orders, writes them to the database and to a compressed archive."""
    orders = []
    archive = zlib.compressobj(1)
    packed = bytearray()
    for text in texts:
        order = json.loads(text)
        order["words"] = re.findall(r"\w+", order["note"])[:400]
        orders.append(order)
        packed += archive.compress(text.encode())
        database.execute(
            "INSERT INTO orders VALUES (?, ?, ?, ?)",
            (order["number"], day, order["customer"], text),
        )
    packed += archive.flush()
    database.commit()
    return orders, bytes(packed)


def index(orders):
    """Indexes the words of descriptions and notes for a search."""
    postings = defaultdict(list)
    for order in orders:
        number = order["number"]
        for line in order["lines"]:
            postings[line["sku"]].append(number)
            postings[line["description"][:600]].append(number)
        for word in set(order["words"]):
            postings[word].append(number)
    return postings


def report(orders):
    """One page for each customer, joined into one document."""
    pages = defaultdict(list)
    for order in orders:
        total = sum(line["count"] * line["price"] for line in order["lines"])
        pages[order["customer"]].append(
            f"{order['number']:>9} {total / 100:>12.2f}  {order['note'].upper()}"
        )
    return "\f".join(
        "\n".join([f"customer {customer}", *rows]) for customer, rows in sorted(pages.items())
    )


def main():
    rng = random.Random(20240229)
    database = sqlite3.connect(":memory:")
    database.execute(
        "CREATE TABLE orders (number INTEGER PRIMARY KEY, day INTEGER, customer INTEGER, text TEXT)"
    )
    database.execute("CREATE INDEX by_customer ON orders (customer, day)")
    live = {}
    archives = []
    check = 0
    for day in range(DAYS):
        texts = [make_order(rng, day * ORDERS_A_DAY + number) for number in range(ORDERS_A_DAY)]
        orders, packed = import_day(database, day, texts)
        archives.append(packed)
        live[day] = (orders, index(orders))
        check = zlib.crc32(report(orders).encode(), check)
        if len(live) > KEPT_DAYS:
            oldest = min(live)
            del live[oldest]
            database.execute("DELETE FROM orders WHERE day = ?", (oldest,))
            database.commit()
        busiest = database.execute(
            "SELECT customer, group_concat(text) FROM orders GROUP BY customer "
            "ORDER BY length(group_concat(text)) DESC LIMIT 3"
        )
        check = zlib.crc32(" ".join(text for _, text in busiest).encode(), check)

    # At the end of the night only yesterday's data stays.
    for day in range(DAYS - 1):
        live.pop(day, None)
    database.execute("DELETE FROM orders WHERE day < ?", (DAYS - 1,))
    database.commit()
    restored = sum(len(zlib.decompress(packed)) for packed in archives)
    print(f"{DAYS * ORDERS_A_DAY} orders, {restored / 2**20:.0f} MiB of text, checksum {check:08x}")


if __name__ == "__main__":
    main()
