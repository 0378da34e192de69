"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const ROW = 20;
  const ROWS_AT_ONCE = 50;
  const LIBRARY_GREY = 0.35;

  // The choices of the reader.
  const chosen = {
    allocated: data.allocated,
    objects: data.objects,
    side: data.difference ? "grown" : "now",
    inverted: false,
    search: "",
  };
  let root = null;
  let zoomed = null;
  let rowsShown = ROWS_AT_ONCE;

  const make = (kind, text, name) => {
    const element = document.createElement(kind);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  };

  const bytes = (number) => {
    const size = Math.abs(number);
    const sign = number < 0 ? "-" : "";
    if (size < 1024) return sign + Math.round(size) + " B";
    if (size < 1 << 20) return sign + (size / 1024).toFixed(1) + " KiB";
    if (size < 10 * 2 ** 30) return sign + (size / (1 << 20)).toFixed(1) + " MiB";
    return sign + (size / 2 ** 30).toFixed(1) + " GiB";
  };
  const count = (number) => Math.round(number).toLocaleString("en-US");
  const amount = (number) => (chosen.objects ? count(number) : bytes(number));
  const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(1) : "0.0") + " %";
  const signed = (number, text) => (number > 0 ? "+" : "") + text(number);

  // Numbers of a stack: live bytes and objects, allocated bytes and objects; then the same before.
  const place = () => (chosen.allocated ? 2 : 0) + (chosen.objects ? 1 : 0);
  const now = (numbers) => numbers[place()];
  const before = (numbers) => (data.difference ? numbers[4 + place()] : 0);
  const width = (numbers) => {
    switch (chosen.side) {
      case "before": return before(numbers);
      case "grown": return Math.max(0, now(numbers) - before(numbers));
      case "shrunk": return Math.max(0, before(numbers) - now(numbers));
      default: return now(numbers);
    }
  };

  const frameName = (id) => (id < 0 ? "(small stacks)" : data.frames[id][0]);
  const where = (id) => {
    if (id < 0 || !data.frames[id][2]) return "";
    return data.frames[id][2] + (data.frames[id][3] ? ":" + data.frames[id][3] : "");
  };

  function tree() {
    const top = node(null, null);
    for (const [frames, numbers] of data.stacks) {
      const size = width(numbers);
      if (!(size > 0)) continue;
      let at = top;
      add(at, numbers, size);
      const calls = frames.length ? frames : [-1];
      for (let step = 0; step < calls.length; step++) {
        const id = calls[chosen.inverted ? calls.length - 1 - step : step];
        // Lines of one function are one frame.
        const key = id < 0 ? id : data.frames[id][1];
        let next = at.children.get(key);
        if (!next) {
          next = node(at, id);
          at.children.set(key, next);
        }
        at = next;
        add(at, numbers, size);
      }
    }
    return top;
  }
  function node(parent, id) {
    const depth = parent ? parent.depth + 1 : 0;
    return { parent, id, depth, size: 0, now: 0, before: 0, stacks: 0, children: new Map() };
  }
  function add(at, numbers, size) {
    at.size += size;
    at.now += now(numbers);
    at.before += before(numbers);
    at.stacks += 1;
  }

  function hue(text) {
    let hash = 7;
    for (let i = 0; i < text.length; i++) hash = (hash * 31 + text.charCodeAt(i)) >>> 0;
    return hash;
  }
  function color(at) {
    if (data.difference) {
      const larger = Math.max(at.now, at.before);
      const change = larger ? (at.now - at.before) / larger : 0;
      if (Math.abs(change) < 0.005) return "var(--same)";
      const strength = 30 + 50 * Math.min(1, Math.abs(change));
      return `hsl(${change > 0 ? 8 : 212} ${strength}% var(--light))`;
    }
    if (at.id === null) return "var(--same)";
    // The module or crate picks the colour.
    const name = frameName(at.id);
    const group = hue(name.split("::")[0].split("+")[0]);
    const isLibrary = at.id >= 0 && data.frames[at.id][4];
    const strength = isLibrary ? `calc(var(--strength) * ${LIBRARY_GREY})` : "var(--strength)";
    return `hsl(${8 + group % 42} ${strength} calc(var(--light) + ${hue(name) % 7}%))`;
  }

  function matcher() {
    const wanted = chosen.search.trim();
    if (!wanted) return null;
    let pattern;
    try {
      pattern = new RegExp(wanted, "i");
    } catch {
      pattern = new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
    }
    return (id) => id !== null && id >= 0
      && (pattern.test(data.frames[id][1]) || pattern.test(data.frames[id][2]));
  }

  function draw() {
    const graph = byId("graph");
    const total = graph.clientWidth;
    const matches = matcher();
    const fragment = document.createDocumentFragment();
    let deepest = 0;
    const box = (at, left, size, above) => {
      const element = make("div", at.id === null ? "all" : frameName(at.id), "frame");
      element.style.left = left + "px";
      element.style.width = Math.max(1, size - 1) + "px";
      element.style.top = at.depth * ROW + "px";
      element.style.background = color(at);
      if (size < 12) element.textContent = "";
      if (size < 12) element.style.padding = "0";
      if (above) element.classList.add("above");
      if (matches && matches(at.id)) element.classList.add("found");
      element.node = at;
      fragment.append(element);
      deepest = Math.max(deepest, at.depth);
    };
    const below = (at, left, size) => {
      box(at, left, size, false);
      let x = left;
      const children = [...at.children.values()].sort((a, b) => b.size - a.size);
      for (const child of children) {
        const part = size * child.size / at.size;
        if (part < 0.7) break;
        below(child, x, part);
        x += part;
      }
    };
    for (let at = zoomed.parent; at; at = at.parent) box(at, 0, total, true);
    if (root.size > 0) below(zoomed, 0, total);
    graph.replaceChildren(fragment);
    graph.style.height = (root.size > 0 ? (deepest + 1) * ROW : 0) + "px";
    byId("nothing").hidden = root.size > 0;
    byId("reset").hidden = zoomed === root;
    let found = 0;
    if (matches) {
      const walk = (at) => {
        if (matches(at.id)) found += at.size;
        else at.children.forEach(walk);
      };
      walk(root);
    }
    byId("matches").textContent = matches ? `${percent(found, root.size)} in matches` : "";
  }

  function rows() {
    const matches = matcher();
    const difference = data.difference;
    // The other unit has a column of its own.
    const [other, otherPlace] = chosen.objects ? ["bytes", 0] : ["objects", 1];
    const otherText = chosen.objects ? bytes : count;
    const heads = difference
      ? ["growth", "now", "before", other, "stack, innermost first"]
      : [chosen.allocated ? "allocated" : "live", "share", other, "stack, innermost first"];
    byId("columns").replaceChildren(...heads.map((head) => make("th", head)));
    const value = (numbers) => (difference ? now(numbers) - before(numbers) : now(numbers));
    const all = data.stacks.reduce((sum, stack) => sum + now(stack[1]), 0);
    const stacks = [...userStacks(matches).values()].filter(([, numbers]) =>
      Math.round(value(numbers)) !== 0);
    const sign = chosen.side === "shrunk" ? -1 : 1;
    stacks.sort((a, b) => sign * (value(b[1]) - value(a[1])));
    byId("rows").replaceChildren(...stacks.slice(0, rowsShown).map(([frames, numbers]) => {
      const row = make("tr");
      const at = (chosen.allocated ? 2 : 0) + otherPlace;
      if (difference) {
        const growth = value(numbers);
        const name = growth > 0 ? "more-grown" : "more-shrunk";
        row.append(make("td", signed(growth, amount), name), make("td", amount(now(numbers))),
          make("td", amount(before(numbers))),
          make("td", signed(numbers[at] - numbers[4 + at], otherText)));
      } else {
        row.append(make("td", amount(now(numbers))), make("td", percent(now(numbers), all)),
          make("td", otherText(numbers[at])));
      }
      row.append(stackCell(frames));
      return row;
    }));
    byId("more").hidden = stacks.length <= rowsShown;
    byId("more").textContent = `Show more of ${count(stacks.length)} stacks`;
  }
  // Stacks that differ in frames of standard libraries only are one row.
  function userStacks(matches) {
    const sums = new Map();
    for (const [frames, numbers] of data.stacks) {
      if (matches && !frames.some(matches)) continue;
      const own = frames.filter((id) => !data.frames[id][4]);
      const key = (own.length ? own : frames).join();
      const sum = sums.get(key);
      if (sum) numbers.forEach((number, at) => { sum[1][at] += number; });
      else sums.set(key, [frames, numbers.slice()]);
    }
    return sums;
  }
  function stackCell(frames) {
    const cell = make("td");
    const calls = frames.slice().reverse();
    if (!calls.length) {
      cell.textContent = "(small stacks)";
      return cell;
    }
    let first = calls.findIndex((id) => !data.frames[id][4]);
    if (first < 0) first = 0;
    const details = make("details");
    const summary = make("summary", frameName(calls[first]));
    const spot = where(calls[first]).split("/").pop();
    if (spot) summary.append(make("span", "  " + spot, "place"));
    const own = calls.slice(first + 1).filter((id) => !data.frames[id][4]);
    const callers = own.slice(0, 5).map((id) => frameName(id));
    if (callers.length) summary.append(make("div", "← " + callers.join(" ← "), "callers"));
    const list = make("ol");
    for (const id of calls) {
      const item = make("li", data.frames[id][1], data.frames[id][4] ? "library" : "");
      const at = where(id);
      if (at) item.append(make("span", "  " + at, "place"));
      list.append(item);
    }
    details.append(summary, list);
    cell.append(details);
    return cell;
  }

  function ledger() {
    if (!data.ledger) {
      byId("below").className = "alone";
      return;
    }
    byId("ledger").hidden = false;
    const { resident, parts } = data.ledger;
    byId("resident").textContent = bytes(resident) + " resident";
    const sum = parts.reduce((all, part) => all + part[2], 0);
    for (const [kind, label, size, meaning] of parts) {
      const share = make("span", undefined, "part-" + kind);
      share.style.width = 100 * size / sum + "%";
      share.title = `${label}: ${bytes(size)}`;
      byId("bar").append(share);
      const row = make("tr");
      const name = make("td");
      name.append(make("i", undefined, "part-" + kind), label);
      name.title = meaning;
      row.append(name, make("td", bytes(size)), make("td", percent(size, sum)));
      byId("parts").append(row);
    }
    const total = make("tr", undefined, "sum");
    total.append(make("td", "sum"), make("td", bytes(sum)), make("td", percent(sum, resident)));
    total.title = "The kernel counts " + bytes(resident);
    byId("parts").append(total);
  }

  function tip(event) {
    const element = event.target.closest ? event.target.closest(".frame") : null;
    const box = byId("tip");
    box.hidden = !element;
    if (!element) return;
    const at = element.node;
    const lines = [make("b", at.id === null ? "all" : at.id < 0 ? frameName(-1)
      : data.frames[at.id][1])];
    if (at.id !== null && where(at.id)) lines.push(make("div", where(at.id)));
    const what = chosen.allocated ? "allocated" : "live";
    const unit = chosen.objects ? " objects" : "";
    const numbers = `${amount(at.now)}${unit} ${what}`;
    const of = `${percent(at.size, root.size)} of the picture`;
    const stacks = at.stacks === 1 ? "1 stack" : `${count(at.stacks)} stacks`;
    lines.push(make("div", `${numbers}; ${of}; ${stacks}`));
    if (data.difference) {
      const growth = signed(at.now - at.before, amount);
      lines.push(make("div", `${growth} from ${amount(at.before)}`));
    }
    box.replaceChildren(...lines);
    const { width: wide, height: high } = box.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - wide - 8);
    const y = event.clientY + 18 + high > innerHeight ? event.clientY - high - 10
      : event.clientY + 18;
    box.style.left = Math.max(4, x) + "px";
    box.style.top = Math.max(4, y) + "px";
  }

  function choice(id, options, current, choose) {
    byId(id).replaceChildren(...options.map(([value, label, title]) => {
      const button = make("button", label);
      button.title = title || "";
      button.setAttribute("aria-pressed", String(value === current()));
      button.onclick = () => {
        choose(value);
        update();
      };
      return button;
    }));
  }
  function choices() {
    choice("what", [[false, "Live", "What is held now"],
      [true, "Allocated", "All that was allocated since profiling began"]],
      () => chosen.allocated, (value) => { chosen.allocated = value; });
    choice("unit", [[false, "Bytes"], [true, "Objects"]],
      () => chosen.objects, (value) => { chosen.objects = value; });
    if (data.difference) {
      choice("side", [["grown", "Growth"], ["shrunk", "Loss"], ["now", "Now"],
        ["before", "Before"]], () => chosen.side, (value) => { chosen.side = value; });
    }
    choice("order", [[false, "Callers on top"],
      [true, "Allocating functions on top", "Which functions allocate, for all callers together"]],
      () => chosen.inverted, (value) => { chosen.inverted = value; });
  }

  function update() {
    choices();
    root = tree();
    zoomed = root;
    draw();
    rows();
  }

  byId("headline").textContent = data.headline;
  byId("facts").textContent = data.facts;
  byId("remarks").replaceChildren(...data.remarks.map((remark) => make("li", remark)));
  byId("legend").hidden = !data.difference;
  byId("graph").onclick = (event) => {
    const element = event.target.closest(".frame");
    if (!element) return;
    zoomed = element.node;
    byId("tip").hidden = true;
    draw();
  };
  byId("reset").onclick = () => {
    zoomed = root;
    draw();
  };
  byId("more").onclick = () => {
    rowsShown *= 4;
    rows();
  };
  byId("search").oninput = (event) => {
    chosen.search = event.target.value;
    draw();
    rows();
  };
  document.onmousemove = tip;
  document.onkeydown = (event) => {
    if (event.key === "/" && event.target !== byId("search")) {
      event.preventDefault();
      byId("search").focus();
    } else if (event.key === "Escape") {
      byId("search").value = "";
      chosen.search = "";
      zoomed = root;
      draw();
      rows();
    }
  };
  onresize = draw;
  // A link may name what to show: page.html#allocated,objects,inverted,now
  for (const word of location.hash.slice(1).split(",")) {
    if (word === "allocated" || word === "live") chosen.allocated = word === "allocated";
    if (word === "objects" || word === "bytes") chosen.objects = word === "objects";
    if (word === "inverted") chosen.inverted = true;
    if (data.difference && ["grown", "shrunk", "now", "before"].includes(word)) chosen.side = word;
    if (word.startsWith("search=")) chosen.search = decodeURIComponent(word.slice(7));
  }
  byId("search").value = chosen.search;
  ledger();
  update();
})();
