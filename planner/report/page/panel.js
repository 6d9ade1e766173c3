// The panel beside the graph: what is chosen, its ports, the steps behind a type, and what one may ask instead.
// What it shows as text is text, never markup.

const panel = document.getElementById("view-panel");
const side = document.getElementById("view-side");
let active = null; // the pane that the panel speaks of

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

function classed(element, name) {
  element.className = name;
  return element;
}

function titled(element, title) {
  element.title = title;
  return element;
}

function overview() {
  const { graph: g } = active;
  const found = [...differences(g), ...floatList(g)];
  if (g.rescales.id.length) found.push(make("h3", "Rescales and casts, by cause"), ...rescaleList(g));
  found.push(classed(make("p", "Choose a box to see why its kernel runs as it does. A group opens on a double click or Enter."), "quiet"));
  return found;
}

// What people look for: kernels in float, by cause, the largest of each first.
function floatList(g) {
  const { text, nodes } = g.data.floats ?? { text: [], nodes: [] };
  const many = nodes.reduce((sum, mine) => sum + mine.length, 0);
  if (!many) return [make("h3", "No kernel runs in float")];
  const listed = text.map((said, i) => folded(g.texts[said], "", nodes[i].slice(0, 100).map((node) => make("li", "", button(g.nameOf(node), () => goTo(node)))), nodes[i].length - 100));
  return [classed(make("h3", `${plural(many, "kernel")} in float`), "float"), ...listed];
}

// A sentence that opens to a list.
function folded(said, more, items, left = 0) {
  const list = make("ul", "", ...items);
  if (left > 0) list.append(make("li", `and ${left} more, in the table below`));
  return classed(make("details", "", make("summary", said, classed(make("span", more), "quiet")), list), "cause");
}

// What is new since the other plan: totals, then every change, those of a kernel with a way to it.
function differences(g) {
  if (!g.data.changes) return [];
  const { changes } = g;
  const list = make("ul");
  for (const [name, before, after] of changes.totals) list.append(make("li", `${name}: ${before} → ${after}`));
  changes.text.slice(0, 200).forEach((text, i) => {
    const node = changes.node[i];
    const item = make("li", `${g.texts[text]} `);
    if (node >= 0) item.append(titled(button("show", () => goTo(node)), `show ${g.nameOf(node)}`));
    list.append(item);
  });
  if (changes.text.length > 200) list.append(make("li", `and ${changes.text.length - 200} more: qplan diff`));
  if (!changes.text.length) list.append(make("li", "the plans decide the same"));
  return [make("h3", plural(changes.text.length, "difference")), list];
}

function differencesAt(g, node) {
  const list = make("ul");
  g.changes.node.forEach((at, i) => at === node && list.append(make("li", g.texts[g.changes.text[i]])));
  return list.childElementCount ? [make("h4", "Differences"), list] : [];
}

function rescaleList(g) {
  const groups = new Map();
  const order = g.rescales.id.map((_, i) => i).sort((a, b) => g.rescales.cost[b] - g.rescales.cost[a] || a - b);
  for (const rescale of order) {
    const cause = g.texts[g.rescales.cause?.[rescale]] ?? "";
    groups.set(cause, [...(groups.get(cause) ?? []), rescale]);
  }
  const costOf = (mine) => mine.reduce((sum, rescale) => sum + g.rescales.cost[rescale], 0);
  return [...groups].sort(([, a], [, b]) => costOf(b) - costOf(a)).map(([cause, mine]) => folded(cause, ` ${mine.length.toLocaleString("en")}, cost ${costOf(mine).toLocaleString("en")}`, mine.slice(0, 100).map((rescale) => {
    const go = button(g.texts[g.rescales.id[rescale]], () => openRescale(rescale));
    return make("li", "", go, ` ${g.texts[g.rescales.kind[rescale]]}, cost ${g.rescales.cost[rescale].toLocaleString("en")}`);
  }), mine.length - 100));
}

function facts(entries) {
  return make("dl", "", ...entries.flatMap(([name, text]) => [make("dt", name), make("dd", text)]));
}

function ofGroup(g, group) {
  const nodes = nodesIn(g, group);
  const kinds = starts(nodes.map((node) => g.nodes.kind[node]), g.kinds.length);
  const entries = g.kinds.flatMap((kind, i) => (kinds[i + 1] > kinds[i] ? [[kind, plural(kinds[i + 1] - kinds[i], "kernel")]] : []));
  for (const name of ["macs", "work", "lost", "share"]) {
    const found = figureOf(g, g.count + group, name);
    if (found) entries.push([MODES[name].title, `${MODES[name].text(found)} ${name === "macs" ? "" : MODES[name].unit}`]);
  }
  const is = active.folded.has(group) ? "unfold" : "fold";
  const list = make("ul");
  for (const node of nodes.slice(0, 60)) list.append(make("li", "", button(g.nameOf(node), () => goTo(node)), ` ${g.texts[g.nodes.kernel[node]]}`));
  if (nodes.length > 60) list.append(make("li", `and ${nodes.length - 60} more`));
  return [make("h3", pathOf(g, group)), button(is, () => toggle(active, group)), facts(entries), make("h4", "Kernels"), list];
}

function ofNode(g, node) {
  const entries = [];
  const isModel = g.isModel(node);
  if (!isModel) entries.push(["kernel", g.texts[g.nodes.kernel[node]]]);
  entries.push([g.kinds[g.nodes.kind[node]] === "float" ? "float, because" : isModel ? "is" : "kernel variant", g.texts[g.nodes.why[node]]]);
  if (g.nodes.bits[node] !== null) entries.push(["accumulator", `needs ${g.nodes.bits[node]} bits`]);
  for (const name of ["macs", "work", "lost", "share"]) {
    const found = g.nodes[name][node];
    if (found) entries.push([MODES[name].title, `${MODES[name].text(found)} ${name === "macs" ? "" : MODES[name].unit}`]);
  }
  if (g.nodes.sqnr[node] != null) entries.push(["output, if only this is quantized", `${g.nodes.sqnr[node].toFixed(1)} dB`]);
  const found = [make("h3", g.nameOf(node)), facts(entries)];
  if (!isModel && !active.isBefore) found.push(kernelAsks(g, node));
  for (const out of [0, 1]) {
    const list = classed(make("ul"), "ports");
    for (const port of portsOf(g, node)) if (g.ports.out[port] === out && g.texts[g.ports.value[port]]) list.append(portItem(g, port));
    if (list.childElementCount) found.push(make("h4", out ? "Results" : "Operands"), list);
  }
  found.push(...differencesAt(g, node));
  return found;
}

function portItem(g, port) {
  const name = g.texts[g.ports.value[port]];
  const asks = titled(button(`${g.ports.out[port] ? "out" : "in"}[${g.ports.index[port]}]`, () => explainPort(port)), `why ${addressOf(g, port)} has its type`);
  const value = g.valueOf(name);
  const shape = value === undefined ? "" : g.texts[g.values.shape[value]];
  const item = make("li", "", asks, " ", make("code", `${name}: ${g.texts[g.ports.type[port]]}`));
  if (shape) item.append(" ", classed(make("span", shape), "quiet"));
  const edge = g.ports.out[port] ? undefined : g.edgesInto[g.ports.node[port]].find((i) => readerPort(g, i) === port);
  if (edge !== undefined) {
    item.append(" ", wayTo(g, "from", g.edges.from[edge]));
    const rescale = g.edges.rescale[edge];
    if (rescale >= 0) item.append(" ", classed(button(g.texts[g.rescales.kind[rescale]], () => openRescale(rescale)), "rescale"));
  }
  if (g.ports.out[port]) {
    const readers = new Set(g.edgesOutOf[g.ports.node[port]].filter((i) => g.ports.value[readerPort(g, i)] === g.ports.value[port]).map((i) => g.edges.to[i]));
    for (const reader of [...readers].slice(0, 12)) item.append(" ", wayTo(g, "to", reader));
    if (readers.size > 12) item.append(` and ${readers.size - 12} more`);
  }
  return item;
}

function wayTo(g, word, node) {
  return titled(button(`${word} ${tail(g.nameOf(node))}`, () => goTo(node)), g.nameOf(node));
}

function explainPort(port) {
  const { graph: g, view } = active;
  const node = g.ports.node[port];
  if (view.selected !== node) select(node);
  const address = addressOf(g, port);
  const name = g.texts[g.ports.value[port]];
  const why = explained(address, g.texts[g.ports.type[port]], g.stepOf(address) ?? decided(g, name), lossOf(g, name));
  if (!active.isBefore) why.append(portAsks(g, port));
}

// The step that decided a value, null where none did.
function decided(g, name) {
  const i = g.valueOf(name);
  return i === undefined || !g.steps ? null : g.values.step[i];
}

function lossOf(g, name) {
  const i = g.valueOf(name);
  const found = [];
  if (i !== undefined && g.values.lost[i] >= 0.005) found.push(`consumers lose ${g.values.lost[i].toFixed(2)} bits of resolution, compared with a type of their own`);
  if (i !== undefined && g.values.clip[i]) found.push(`${(100 * g.values.clip[i]).toFixed(2)}% of its range is clipped`);
  return found;
}

function explained(address, type, step, notes) {
  const { graph: g, view } = active;
  view.address = address;
  panel.querySelector(".why")?.remove();
  const why = classed(make("section", "", make("h4", `${address} is ${type}, because`)), "why");
  if (step === null) why.append(make("p", `No step: ${g.texts[g.nodes.why[view.selected]]}.`));
  else why.append(chain(g, step, 1, new Set()));
  for (const note of notes) why.append(make("p", note));
  panel.append(why);
  side.scrollTop = why.offsetTop;
  return why;
}

// The steps behind a step, as a list in a list; the same walk as `planner.explain`.
function chain(g, step, depth, seen) {
  const { steps, texts } = g;
  seen.add(step);
  const rule = texts[steps.rule[step]];
  const said = { n: step, port: texts[steps.port[step]], type: texts[steps.type[step]], rule, source: texts[steps.source[step]] };
  const text = (g.data.wordings[rule] ?? g.data.wordings[""]).replace(/\{(\w+)\}/g, (_, key) => said[key]);
  const item = make("li", "", linked(g, text, said.port));
  for (const text of steps.refused[step]) item.append(make("div", `not ${texts[text]}`));
  if (depth < g.data.depth) {
    for (const cause of steps.because[step]) if (!seen.has(cause)) item.append(chain(g, cause, depth + 1, seen));
  }
  return make("ul", "", item);
}

// A step's words, with a way to the kernel whose port it speaks of.
function linked(g, text, address) {
  const node = g.nodeOf(address.replace(/\.(in|out)\[\d+\]$/, ""));
  return node === undefined ? make("span", text) : make("span", "", `${text} `, titled(button("show", () => goTo(node, { keep: true })), `show ${g.nameOf(node)}`));
}

function openRescale(rescale) {
  const { graph: g, view } = active;
  const edge = g.edges.rescale.indexOf(rescale);
  if (edge < 0) return;
  goTo(g.edges.to[edge]);
  const why = classed(make("section", "", make("h4", g.texts[g.rescales.id[rescale]])), "why");
  const port = readerPort(g, edge);
  why.append(make("p", `${g.texts[g.rescales.kind[rescale]]} of ${g.rescales.elements[rescale].toLocaleString("en")} elements, costs ${g.rescales.cost[rescale].toLocaleString("en")}:`));
  why.append(make("p", "", make("code", `${g.texts[g.rescales.from[rescale]]}`)), make("p", "", "to ", make("code", g.texts[g.rescales.to[rescale]])));
  const name = g.texts[g.ports.value[port]];
  for (const step of [decided(g, name), g.stepOf(addressOf(g, port)) ?? null]) if (step !== null) why.append(chain(g, step, 1, new Set()));
  if (about.live && !active.isBefore) why.append(studier(g.texts[g.rescales.id[rescale]]));
  panel.querySelector(".why")?.remove();
  panel.append(why);
  view.address = g.texts[g.rescales.id[rescale]];
}

// A host may draw what a value or rescale could be traded for; offline `qplan view --pareto` does.
function studier(at) {
  return classed(make("div", "", titled(button("trade-offs", () => tell("qplan:study", { at })), `draw the trade-offs of ${at}`)), "asks");
}
