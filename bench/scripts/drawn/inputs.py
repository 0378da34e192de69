"""Writes the input that programs of the group `drawn` share: the same files on every machine."""

import json
import math
import random
import struct
import sys
import wave
from pathlib import Path

# Of Python's generator only `random()` gives the same numbers in every version.
draw = random.Random(20240229).random

COMMON = """about above account across action after again against always among answer area around
autumn balance before begin below beside better between beyond bottle bread bridge bring brother
build butter careful carry castle central change children circle clean clear climb cloud coast
colour common company complete corner country cover cross current danger daughter degree depend
describe desert differ distance doctor double dream drive early earth effect engine enough evening
every example explain family farther father figure finger finish floor flower follow forest forward
friend garden gather general gentle glass grand great green ground happen harbour heart heavy
history holiday hundred imagine increase indeed interest island journey kitchen language laugh
learn letter little machine market matter measure middle minute moment mother mountain music
narrow nature never notice number ocean often open order other paper people perhaps person picture
place plain plant please pocket point possible power present pretty problem produce promise
question quick quiet rather reach ready reason remember result return river round sailor school
season second section sentence serious seven shadow shore should silver simple single sister
something sound south special spring stand station story strange stream street strong sudden
summer supply surface system table teacher thing thousand through together towards travel trouble
under until usual valley village visit voice water weather welcome western window winter wonder
world yellow yesterday young""".split()
SYLLABLES = "ebb flow tide sho re sa nd shel lgu llw ave dri ft anch or har bo ur ma st".split()


def number(below):
    return int(draw() * below)


def choice(of):
    return of[number(len(of))]


def name():
    return "".join(choice(SYLLABLES) for _ in range(2 + number(3)))


def sentence():
    words = [choice(COMMON) if number(5) else name() for _ in range(5 + number(12))]
    return " ".join(words).capitalize() + "."


def paragraph():
    return " ".join(sentence() for _ in range(3 + number(6)))


def text():
    return "\n\n".join(paragraph() for _ in range(3_000)) + "\n"


def prose():
    """Text of English words alone, for spelling."""
    lines = (" ".join(choice(COMMON) for _ in range(12)) for _ in range(8_000))
    return "\n".join(lines) + "\n"


def markdown():
    parts = []
    for chapter in range(150):
        parts.append(f"# Chapter {chapter}: {name()}\n\n{paragraph()}")
        parts.append("\n".join(f"- **{name()}** {sentence()} `{name()}()`" for _ in range(8)))
        rows = "\n".join(f"| {name()} | {number(1000)} | {sentence()} |" for _ in range(6))
        parts.append(f"| name | number | text |\n|---|---|---|\n{rows}")
        parts.append(f"```c\nint {name()}(void) {{ return {number(100)}; }}\n```")
        parts.append(f"> {paragraph()} [{name()}](https://example.org/{name()})")
    return "\n\n".join(parts) + "\n"


def manual():
    """reStructuredText."""
    parts = []
    for chapter in range(60):
        title = f"Chapter {chapter} {name()}"
        parts.append(f"{title}\n{'=' * len(title)}\n\n{paragraph()}")
        parts.append("\n".join(f"* **{name()}** {sentence()} ``{name()}``" for _ in range(6)))
        parts.append("::\n\n" + "\n".join(f"    {name()} = {number(1000)}" for _ in range(4)))
        parts.append(f".. note:: {sentence()}")
    return "\n\n".join(parts) + "\n"


def rows(count):
    for row in range(count):
        yield row, name(), choice(COMMON), number(1_000), round(draw() * 100, 3), sentence()


def table():
    lines = (f'{i},{who},{town},{n},{x},"{note}"' for i, who, town, n, x, note in rows(40_000))
    return "id,name,town,number,share,note\n" + "\n".join(lines) + "\n"


def records():
    keys = ("id", "name", "town", "number", "share", "note")
    return [
        dict(zip(keys, row), tags=[choice(COMMON) for _ in range(4)], at={"x": draw(), "y": draw()})
        for row in rows(15_000)
    ]


def xml():
    item = '<item id="{}" town="{}"><name>{}</name><number>{}</number><note>{}</note></item>'
    lines = (item.format(i, town, who, n, note) for i, who, town, n, _, note in rows(20_000))
    return '<?xml version="1.0"?>\n<items>\n' + "\n".join(lines) + "\n</items>\n"


def html():
    parts = []
    for row, who, town, n, x, note in rows(4_000):
        cells = f"<td>{who}<td><b>{n}</b></td><td><a href='/{town}/{row}'>{note}</a>"
        parts.append(f"<table class=t{row % 7}><tr>{cells}</table>\n<p>{note}<br>{x}")
    return "<html><head><title>Shore</title></head><body>" + "\n".join(parts) + "</body></html>\n"


def sql():
    value = "INSERT INTO item VALUES ({}, '{}', '{}', {}, {}, '{}');"
    create = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, town TEXT, number INTEGER, "
    lines = "\n".join(value.format(*row) for row in rows(30_000))
    return f"{create}share REAL, note TEXT);\nBEGIN;\n{lines}\nCOMMIT;\n"


def dot(nodes):
    edges = (f"  n{i} -> n{number(i)};" for i in range(1, nodes))
    more = (f"  n{number(nodes)} -> n{number(nodes)};" for _ in range(nodes // 4))
    return "digraph tide {\n" + "\n".join([*edges, *more]) + "\n}\n"


def c():
    """A program in C: structures, switches and loops."""
    parts = ["#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"]
    for i in range(400):
        parts.append(f"""
/** Adds up {sentence()} @param n count @return the sum */
struct item{i} {{ int number; double share; char *name; struct item{i} *next; }};
static int work{i}(struct item{i} *list, int n) {{
    int sum = {number(1000)};
    for (int k = 0; k < n; k++) {{
        switch (k % 5) {{
        case 0: sum += list ? list->number : {number(100)}; break;
        case 1: sum ^= (int)(n * {draw():.3f}); break;
        case 2: if (sum > {number(10000)}) sum -= k * {number(50)}; else sum += n; break;
        default: sum += (int)strlen("{name()}") % (k + 1);
        }}
    }}
    return sum;
}}""")
    calls = "\n".join(f"    sum += work{i}(NULL, argc + {number(20)});" for i in range(400))
    parts.append(f"int main(int argc, char **argv) {{\n    int sum = 0;\n{calls}\n"
                 '    printf("%d %s\\n", sum, argv[0]);\n    return 0;\n}\n')
    return "\n".join(parts)


def cpp():
    """A program in C++ that instantiates much of the standard library."""
    parts = ["#include <algorithm>\n#include <map>\n#include <memory>\n#include <string>\n"
             "#include <unordered_map>\n#include <vector>\n"]
    for i in range(25):
        parts.append(f"""
struct Item{i} {{ int number; std::string name; std::vector<double> shares; }};
int work{i}(std::vector<Item{i}> items) {{
    std::map<std::string, std::shared_ptr<Item{i}>> by_name;
    std::unordered_map<int, std::vector<std::string>> by_number;
    for (auto &item : items) {{
        by_name[item.name] = std::make_shared<Item{i}>(item);
        by_number[item.number % {number(100) + 1}].push_back(item.name);
    }}
    std::sort(items.begin(), items.end(), [](const Item{i} &a, const Item{i} &b) {{
        return a.number < b.number; }});
    return (int)by_name.size() + (int)by_number.size();
}}""")
    return "\n".join(parts) + "\nint main() { return work0({}) + work1({}); }\n"


def python():
    """A module in Python with types."""
    parts = ['"""A module."""\n\nfrom dataclasses import dataclass\nfrom typing import Optional\n']
    for i in range(120):
        parts.append(f'''
@dataclass
class Item{i}:
    """{sentence()}"""

    number: int
    name: str = "{name()}"
    parent: Optional["Item{i}"] = None

    def total(self, factors: list[int], names: dict[str, float]) -> float:
        """{sentence()}"""
        result = 0.0
        for index, factor in enumerate(factors):
            if factor % {number(9) + 2} == 0 and self.parent is not None:
                result += self.parent.number * factor + names.get("{name()}", {draw():.2f})
            elif index in ( 1,2,  {number(90)} ):
                result -= {{'a':1,  "b": 2}}["a"] * [x*x for x in factors   if x >3][0]
            else:
                result = max(result, float(self.number), *[n for n in names.values()])
        return result


def work{i}(items: list[Item{i}]) -> dict[str, list[float]]:
    """{sentence()}"""
    found: dict[str, list[float]] = {{}}
    for item in sorted(items, key=lambda it: it.number):
        found.setdefault(item.name, []).append(item.total([1, 2, {number(50)}], {{}}))
    return found
''')
    return "\n".join(parts)


def javascript():
    parts = []
    for i in range(600):
        parts.append(f"""
export function work{i}(items, options = {{}}) {{
  const found = new Map();
  for (const [index, item] of items.entries()) {{
    if (item.number % {number(9) + 2} === 0 && options.{choice(COMMON)}) {{
      found.set(`${{item.name}}-${{index}}`, {{ ...item, share: {draw():.3f} }});
    }} else if (index > {number(99)}) {{ break; }}
  }}
  return [...found.values()].filter((it) => it.share > {draw():.2f}).map(({{ name }}) => name);
}}""")
    return "\n".join(parts) + "\n"


def css():
    rule = ".{} > a:hover, #{} {{ color: #{:06x}; margin: {}px auto; border: 1px solid; }}"
    lines = (rule.format(name(), name(), number(1 << 24), number(40)) for _ in range(4_000))
    return "\n".join(lines) + "\n"


def picture(width, height):
    """A PPM picture: waves with noise."""
    pixels = bytearray()
    for y in range(height):
        for x in range(width):
            wave = 100 + 80 * math.sin(x / 37) * math.cos(y / 53)
            pixels += bytes((int(wave) + number(20), (x + y) & 255, (x * y >> 8) & 255))
    return f"P6\n{width} {height}\n255\n".encode() + bytes(pixels)


def sound(path, seconds):
    rate = 22_050
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        for at in range(seconds * rate):
            tone = 220 * 2 ** (at * 4 // rate % 12 / 12)
            value = 9_000 * math.sin(at / rate * tone * 2 * math.pi) + number(2_000)
            file.writeframesraw(struct.pack("<h", int(value)))


def svg():
    shape = '<path d="M{} {}q{} {} {} {}z" fill="#{:06x}" opacity="{:.2f}"/>'
    numbers = lambda: (number(1000), number(1000), *(number(200) - 100 for _ in range(4)))
    shapes = (shape.format(*numbers(), number(1 << 24), draw()) for _ in range(3_000))
    size = 'width="1000" height="1000"'
    lines = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{lines}\n</svg>\n'


def postscript():
    pages = []
    for page in range(1, 21):
        lines = "\n".join(f"72 {740 - 12 * i} moveto ({sentence()[:90]}) show" for i in range(55))
        curves = "\n".join(
            "newpath {} {} moveto {} {} {} {} {} {} curveto stroke".format(
                *(number(600) for _ in range(8))) for _ in range(40))
        font = "/Times-Roman findfont 10 scalefont setfont"
        pages.append(f"%%Page: {page} {page}\n{font}\n{lines}\n{curves}\nshowpage")
    return "%!PS-Adobe-3.0\n%%Pages: 20\n" + "\n".join(pages) + "\n%%EOF\n"


def clauses(variables, count):
    """Random clauses of three literals (DIMACS)."""
    def clause():
        literals = [(1 + number(variables)) * (1 if number(2) else -1) for _ in range(3)]
        return " ".join(map(str, literals)) + " 0"
    return f"p cnf {variables} {count}\n" + "\n".join(clause() for _ in range(count)) + "\n"


def smt():
    count = 24
    numbers = range(count)
    lines = ["(set-logic QF_LIA)"]
    lines += [f"(declare-const x{i} Int)" for i in numbers]
    lines += [f"(assert (and (>= x{i} 0) (<= x{i} 60)))" for i in numbers]
    for _ in range(40):
        a, b, c = number(count), number(count), number(count)
        lines.append(f"(assert (or (< (+ x{a} (* 3 x{b})) {50 + number(200)}) "
                     f"(> (- x{c} x{a}) {number(40)})))")
    lines.append("(assert (distinct " + " ".join(f"x{i}" for i in numbers) + "))")
    return "\n".join(lines) + "\n(check-sat)\n"


def linear():
    """A knapsack of many constraints (CPLEX LP)."""
    items, limits = 60, 12
    terms = lambda: " + ".join(f"{1 + number(50)} x{i}" for i in range(items))
    lines = "\n".join(f" c{k}: {terms()} <= {500 + number(200)}" for k in range(limits))
    names = " ".join(f"x{i}" for i in range(items))
    return f"Maximize\n obj: {terms()}\nSubject To\n{lines}\nBinary\n {names}\nEnd\n"


def genome():
    return "".join(choice("ACGT") for _ in range(400_000))


def fasta(letters):
    lines = (letters[i : i + 60] for i in range(0, len(letters), 60))
    return ">shore\n" + "\n".join(lines) + "\n"


def reads(letters):
    """Pieces of the genome with errors (FASTQ)."""
    parts = []
    for read in range(8_000):
        at = number(len(letters) - 100)
        bases = "".join(choice("ACGT") if number(50) == 0 else x for x in letters[at : at + 100])
        parts.append(f"@r{read}\n{bases}\n+\n{'I' * 100}\n")
    return "".join(parts)


def proteins():
    base = [choice("ACDEFGHIKLMNPQRSTVWY") for _ in range(220)]
    mutated = lambda: "".join(choice("ACDEFGHIKLMNPQRSTVWY") if number(4) == 0 else x for x in base)
    return "".join(f">p{i}\n{mutated()}\n" for i in range(60))


def verilog():
    """A pipeline of adders and multiplexers, and a bench for it."""
    stages = 24
    parts = ["module tide(input clk, input [15:0] a, output [15:0] q);"]
    parts += [f"reg [15:0] r{i};" for i in range(stages + 1)]
    parts.append("always @(posedge clk) begin\nr0 <= a;")
    for i in range(stages):
        term = choice(("+", "^", "&", "|", "-", "*"))
        changed = f"(r{i} {term} 16'd{number(60_000)})"
        parts.append(f"r{i + 1} <= r{i}[{number(16)}] ? {changed} : ~r{i};")
    parts.append(f"end\nassign q = r{stages};\nendmodule")
    return "\n".join(parts) + "\n"


def geojson():
    features = []
    for i, who, town, n, *_ in rows(4_000):
        x, y = draw() * 100, draw() * 80
        ring = [[x + math.cos(a / 3) * draw(), y + math.sin(a / 3) * draw()] for a in range(18)]
        features.append({
            "type": "Feature",
            "properties": {"id": i, "name": who, "town": town, "number": n},
            "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
        })
    return json.dumps({"type": "FeatureCollection", "features": features})


def main(folder):
    folder.mkdir(parents=True)
    objects, letters = records(), genome()
    files = {
        "text.txt": text(), "prose.txt": prose(), "notes.md": markdown(), "manual.rst": manual(),
        "table.csv": table(), "records.json": json.dumps(objects), "tree.xml": xml(),
        "lines.json": "\n".join(map(json.dumps, objects)) + "\n",
        "page.html": html(), "item.sql": sql(), "graph.dot": dot(320), "tree.dot": dot(4_000),
        "program.c": c(), "program.cpp": cpp(), "module.py": python(), "script.mjs": javascript(),
        "style.css": css(), "drawing.svg": svg(), "pages.ps": postscript(),
        "hard.cnf": clauses(200, 852), "large.cnf": clauses(60_000, 180_000),
        "formula.smt2": smt(), "knapsack.lp": linear(),
        "genome.fa": fasta(letters), "reads.fq": reads(letters), "proteins.fa": proteins(),
        "tide.v": verilog(), "map.geojson": geojson(),
    }
    for file, content in files.items():
        (folder / file).write_text(content)
    (folder / "picture.ppm").write_bytes(picture(1024, 768))
    sound(folder / "sound.wav", 40)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
