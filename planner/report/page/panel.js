// The panel beside the graph: what is chosen, its ports, and the steps behind a type.
// What it shows as text is text, never markup. After `draw.js`, in the same script.

function make(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function button(text, action) {
  const made = make("button", text);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

function goTo(node, { keep = false } = {}) {
  const [x, y] = centre(node);
  [view.x, view.y] = [x, y];
  view.unit = Math.max(view.unit, TYPES + 2);
  if (!keep) select(node);
  refresh();
}

function select(node) {
  view.selected = node;
  view.address = node === null ? "" : isModel(node) ? addressOf(firstPort[node]) : nameOf(node);
  panel.replaceChildren(...(node === null ? overview() : ofNode(node)));
  panel.scrollTop = 0;
  refresh();
}

function overview() {
  const legend = make("ul");
  legend.className = "legend";
  kinds.forEach((kind, i) => {
    const amount = nodes.kind.reduce((sum, found) => sum + (found === i), 0);
    const patch = make("i");
    patch.style.background = colorOf(kind, dark);
    const what = kind === "model" ? "inputs and outputs of the model" : kind === "float" ? "kernels in float" : `kernels on ${kind}`;
    legend.append(make("li", "", patch, `${amount} ${what}`));
  });
  const patch = make("i");
  patch.className = "rescale";
  legend.append(make("li", "", patch, `${rescales.id.length} rescales and casts`));
  if (data.changes) legend.append(make("li", "", news(), `${changes.text.length} differences from ${texts[changes.plan].slice(0, 15)}…`));
  const keys = "Drag to move, wheel to zoom, click a kernel. Keys: arrows, + and -, 0 whole, j and k next and previous kernel, r next rescale, d next difference, f find, Esc.";
  const found = [make("h3", "Graph"), legend, make("p", keys), ...differences()];
  if (rescales.id.length) found.push(make("h3", "Rescales, the dearest first"), rescaleList());
  return found;
}

function news() {
  const patch = make("i");
  patch.className = "news";
  return patch;
}

// What is new since the other plan: totals, then every change, those of a kernel with a way to it.
function differences() {
  if (!data.changes) return [];
  const list = make("ul");
  for (const [name, before, after] of changes.totals) list.append(make("li", `${name}: ${before} → ${after}`));
  changes.text.slice(0, 200).forEach((text, i) => {
    const node = changes.node[i];
    const item = make("li", `${texts[text]} `);
    if (node >= 0) item.append(button("show", () => goTo(node)));
    list.append(item);
  });
  if (changes.text.length > 200) list.append(make("li", `and ${changes.text.length - 200} more: qplan diff`));
  if (!changes.text.length) list.append(make("li", "the plans decide the same"));
  return [make("h3", "Differences"), list];
}

function differencesAt(node) {
  const list = make("ul");
  changes.node.forEach((at, i) => at === node && list.append(make("li", texts[changes.text[i]])));
  return list.childElementCount ? [make("h4", "Differences"), list] : [];
}

function rescaleList() {
  const order = rescales.id.map((_, i) => i).sort((a, b) => rescales.cost[b] - rescales.cost[a] || a - b);
  const list = make("ol");
  for (const rescale of order.slice(0, 200)) {
    const go = button(texts[rescales.id[rescale]], () => openRescale(rescale));
    list.append(make("li", "", go, ` ${texts[rescales.kind[rescale]]}, costs ${rescales.cost[rescale].toLocaleString("en")}`));
  }
  if (order.length > 200) list.append(make("li", `and ${order.length - 200} more, in the table below`));
  return list;
}

function ofNode(node) {
  const facts = make("dl");
  const fact = (name, text) => facts.append(make("dt", name), make("dd", text));
  if (!isModel(node)) fact("kernel", texts[nodes.kernel[node]]);
  fact(kinds[nodes.kind[node]] === "float" ? "float, because" : isModel(node) ? "is" : "row", texts[nodes.why[node]]);
  if (nodes.bits[node] !== null) fact("its sums need", `${nodes.bits[node]} bits`);
  const found = [make("h3", nameOf(node)), facts];
  for (const out of [0, 1]) {
    const list = make("ul");
    list.className = "ports";
    for (const port of portsOf(node)) if (ports.out[port] === out && texts[ports.value[port]]) list.append(portItem(port));
    if (list.childElementCount) found.push(make("h4", out ? "Results" : "Operands"), list);
  }
  found.push(...differencesAt(node), button("whole graph", () => { select(null); fit(); }));
  return found;
}

function portItem(port) {
  const name = texts[ports.value[port]];
  const asks = titled(button(`${ports.out[port] ? "out" : "in"}[${ports.index[port]}]`, () => explainPort(port)), `why ${addressOf(port)} has its type`);
  const item = make("li", "", asks, " ", make("code", `${name}: ${texts[ports.type[port]]}`));
  const edge = ports.out[port] ? undefined : edgesInto[ports.node[port]].find((i) => readerPort(i) === port);
  if (edge !== undefined) {
    item.append(" ", wayTo("from", edges.from[edge]));
    if (edges.rescale[edge] >= 0) item.append(" ", marked(button(texts[rescales.kind[edges.rescale[edge]]], () => openRescale(edges.rescale[edge]))));
  }
  if (ports.out[port]) {
    const readers = new Set(edgesOutOf[ports.node[port]].filter((i) => ports.value[readerPort(i)] === ports.value[port]).map((i) => edges.to[i]));
    for (const reader of [...readers].slice(0, 12)) item.append(" ", wayTo("to", reader));
    if (readers.size > 12) item.append(` and ${readers.size - 12} more`);
  }
  return item;
}

function marked(element) {
  element.className = "rescale";
  return element;
}

function titled(element, title) {
  element.title = title;
  return element;
}

function wayTo(word, node) {
  return titled(button(`${word} ${tail(nameOf(node))}`, () => goTo(node)), nameOf(node));
}

function explainPort(port) {
  const node = ports.node[port];
  if (view.selected !== node) select(node);
  const address = addressOf(port);
  const name = texts[ports.value[port]];
  show(address, texts[ports.type[port]], stepOf(address) ?? decided(name), lossOf(name));
}

// The step that decided a value, null where none did.
function decided(name) {
  const i = valueOf(name);
  return i === undefined ? null : values.step[i];
}

function lossOf(name) {
  const i = valueOf(name);
  const found = [];
  if (i !== undefined && values.lost[i] >= 0.005) found.push(`its readers lose ${values.lost[i].toFixed(2)} bits against a type of their own`);
  if (i !== undefined && values.clip[i]) found.push(`${(100 * values.clip[i]).toFixed(2)}% of its range is cut off`);
  return found;
}

function show(address, type, step, notes) {
  view.address = address;
  panel.querySelector(".why")?.remove();
  const why = make("section", "", make("h4", `${address} is ${type}, because`));
  why.className = "why";
  if (step === null) why.append(make("p", `No step: ${texts[nodes.why[view.selected]]}.`));
  else why.append(chain(step, 1, new Set()));
  for (const note of notes) why.append(make("p", note));
  panel.append(why);
  why.scrollIntoView({ block: "nearest" });
}

// The steps behind a step, as a list in a list; the same walk as `planner.explain`.
function chain(step, depth, seen) {
  seen.add(step);
  const rule = texts[steps.rule[step]];
  const said = { n: step, port: texts[steps.port[step]], type: texts[steps.type[step]], rule, source: texts[steps.source[step]] };
  const text = (data.wordings[rule] ?? data.wordings[""]).replace(/\{(\w+)\}/g, (_, key) => said[key]);
  const item = make("li", "", linked(text, said.port));
  for (const text of steps.refused[step]) item.append(make("div", `not ${texts[text]}`));
  if (depth < data.depth) {
    for (const cause of steps.because[step]) if (!seen.has(cause)) item.append(chain(cause, depth + 1, seen));
  }
  return make("ul", "", item);
}

// A step's words, with a way to the kernel whose port it speaks of.
function linked(text, address) {
  const node = nodeOf(address.replace(/\.(in|out)\[\d+\]$/, ""));
  return node === undefined ? make("span", text) : make("span", "", `${text} `, button("show", () => goTo(node, { keep: true })));
}

function openRescale(rescale) {
  const edge = edges.rescale.indexOf(rescale);
  if (edge < 0) return;
  goTo(edges.to[edge]);
  const why = make("section", "", make("h4", texts[rescales.id[rescale]]));
  why.className = "why";
  const port = readerPort(edge);
  why.append(make("p", `${texts[rescales.kind[rescale]]} of ${rescales.elements[rescale].toLocaleString("en")} elements, costs ${rescales.cost[rescale].toLocaleString("en")}:`));
  why.append(make("p", "", make("code", `${texts[rescales.from[rescale]]}`)), make("p", "", "to ", make("code", texts[rescales.to[rescale]])));
  const name = texts[ports.value[port]];
  for (const step of [decided(name), stepOf(addressOf(port)) ?? null]) if (step !== null) why.append(chain(step, 1, new Set()));
  panel.querySelector(".why")?.remove();
  panel.append(why);
  view.address = texts[rescales.id[rescale]];
}
