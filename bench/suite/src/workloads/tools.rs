//! Cases with tools that interpret a script: sqlite3, node and perl.

use std::fmt::Write;
use std::fs;

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::Kit;

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    kit.packages(&["nodejs", "perl", "sqlite3"])?;
    let orders = kit.once("orders.sql", |path| Ok(fs::write(path, orders())?))?;
    let sqlite = Job::new("/usr/bin/sqlite3")
        .args(["-batch", "-bail", ":memory:"])
        .arg(format!(".read {}", orders.display()));
    let script =
        |program: &str, name: &str| Job::new(program).arg(kit.source("scripts/tools").join(name));
    let node = script("/usr/bin/node", "graph.js");
    let perl = script("/usr/bin/perl", "words.pl");
    Ok(vec![
        Case::new("tools/sqlite", "sqlite3: a database in memory", sqlite).quick(),
        Case::new("tools/node", "node: object graphs (V8's own), JSON, buffers", node),
        Case::new("tools/perl", "perl: hashes of words", perl),
    ])
}

const CUSTOMERS: u64 = 2_000;
const ORDERS: u64 = 25_000;

/// Makes an SQL script that fails unless the sums come out as expected.
fn orders() -> String {
    let mut sql = String::from(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, town TEXT);\n\
         CREATE TABLE orders \
         (id INTEGER PRIMARY KEY, customer INTEGER, price INTEGER, note TEXT);\n\
         CREATE INDEX by_customer ON orders (customer, price);\n",
    );
    let mut kept = 0;
    let mut line = |text: std::fmt::Arguments| writeln!(sql, "{text}").expect("room in a string");
    line(format_args!("BEGIN;"));
    for id in 0..CUSTOMERS {
        line(format_args!(
            "INSERT INTO customers VALUES ({id}, 'customer {id}', 'town {}');",
            id % 97
        ));
    }
    for id in 0..ORDERS {
        let (customer, price) = (id * 7919 % CUSTOMERS, id * 104_729 % 10_007);
        let note = format!("ebb and flow {id} ").repeat((id % 23) as usize);
        line(format_args!("INSERT INTO orders VALUES ({id}, {customer}, {price}, '{note}');"));
        kept += if id % 3 == 0 { price } else { 0 };
        if id % 1_000 == 999 {
            line(format_args!("COMMIT; BEGIN;"));
        }
    }
    line(format_args!(
        "COMMIT;\n\
         CREATE INDEX by_note ON orders (note);\n\
         CREATE TABLE report AS SELECT town, count(*) AS orders, group_concat(note) AS notes\n\
         FROM orders JOIN customers ON customer = customers.id GROUP BY town ORDER BY orders;\n\
         UPDATE orders SET note = upper(note) || id WHERE id % 2;\n\
         CREATE TABLE pairs AS SELECT a.id AS a, b.id AS b FROM orders a JOIN orders b\n\
         ON a.customer = b.customer AND a.price < b.price ORDER BY b.note;\n\
         DELETE FROM orders WHERE id % 3;\n\
         DROP TABLE pairs;\n\
         CREATE TABLE checked (sum INTEGER CHECK (sum = {kept}));\n\
         INSERT INTO checked SELECT sum(price) FROM orders;\n\
         DELETE FROM orders;"
    ));
    sql
}
