// What if: edits that the reader collects, and the way to whoever can plan again, a host.
//
// Contract, version 1. Data: the JSON blocks #view-data and #view-log (the log, and texts that it alone has, from
// `log_texts` on), together `qplan.view/1` as `qplan view --json` writes it, and in the first
// `page`: {live, plan, target, model}. `live` says that a host listens.
//
// window.planPage: {version, live,
//   document(): the edits as the body of an annotations file {format, values, ports, kernels},
//   annotations(): the same as YAML, command(): the shell command that plans again with them,
//   edit({of, at, value}): one more, `of` is "value" | "port" | "kernel", `at` its name or address, `value` the
//     text that an annotations file has (`!quant.none`, `!quant.any<i16>`, a uniform type, `float`, `dynamic`, `i16`),
//   undo(), clear(),
//   select(name): a kernel, or an input or output; "" for none,
//   mark(names): draw these kernels as changed; `show` of the plan that has them otherwise may come later,
//   show(view): draw another `qplan.view/1` of the same model, made with `before` the plan of this page; null draws
//     the plan of this page,
//   read(section): show a section below the graph, by the id of its heading,
//   measured(quality): that of the plan that is shown, {text, grade, measured_on}, for its card,
//   say(text): a line at the edits, such as "planning" or why it failed}
//
// Events on `document`, bubbling CustomEvents:
//   qplan:edit    after each change; detail {action: "edit" | "undo" | "clear", of, at, value, document}
//   qplan:select  detail {name}; "" where nothing is chosen
//   qplan:study   detail {at}: the trade-offs of a value or rescale are asked for
// In a frame whose data say `live` the same go to the parent as messages {type, detail}, and messages from the
// parent {type: "qplan:mark", names}, {type: "qplan:show", view}, {type: "qplan:say", text}, {type: "qplan:select", name},
// {type: "qplan:read", section}, {type: "qplan:measured", quality} call the functions. So a page without an origin
// (`sandbox allow-scripts`) needs no right to ask the server anything.
// Edits count from the plan that the page was opened with: a host plans that one again with the whole `document`.

const about = data.page ?? { live: false, plan: "plan.json", target: "" };
const SECTIONS = { value: "values", port: "ports", kernel: "kernels" };
const opened = data; // the view of the plan that the page was opened with
const edits = []; // {of, at, value}, in order; the later of one place counts

function editsDocument() {
  const found = { format: "qplan.annotations/1" };
  for (const { of, at, value } of edits) (found[SECTIONS[of]] ??= {})[at] = value;
  return found;
}

// JSON's strings are YAML's, whatever is in a name.
function annotationsText() {
  const lines = ["format: qplan.annotations/1"];
  for (const [section, entries] of Object.entries(editsDocument())) {
    if (section === "format") continue;
    lines.push(`${section}:`);
    for (const [at, value] of Object.entries(entries)) lines.push(`  ${JSON.stringify(at)}: ${JSON.stringify(value)}`);
  }
  return `${lines.join("\n")}\n`;
}

function commandText() {
  return "qplan replan plan.json --edits edits.yaml --out again.json\nqplan view again.json --before plan.json --out again.html";
}

function tell(type, detail) {
  document.dispatchEvent(new CustomEvent(type, { detail }));
  if (about.live && window.parent !== window) window.parent.postMessage({ type, detail }, "*");
}

function changeEdits(action, edit) {
  if (action === "edit") edits.push(edit);
  else if (action === "undo") edit = edits.pop();
  else edits.length = 0;
  showEdits();
  tell("qplan:edit", { action, ...edit, document: editsDocument() });
}

window.planPage = {
  version: 1,
  live: about.live,
  document: editsDocument,
  annotations: annotationsText,
  command: commandText,
  edit: ({ of, at, value }) => changeEdits("edit", { of, at, value }),
  undo: () => edits.length && changeEdits("undo"),
  clear: () => edits.length && changeEdits("clear"),
  select: (name) => selectNamed(name),
  mark: (names) => markChanged(names),
  show: (view) => showView(view ?? opened),
  read: (section) => readSection(section),
  measured: (quality) => showQuality(quality),
  say: (text) => sayOfEdits(text),
};

if (about.live) {
  const CALLS = { "qplan:mark": ({ names }) => markChanged(names), "qplan:show": ({ view }) => planPage.show(view), "qplan:read": ({ section }) => planPage.read(section), "qplan:measured": ({ quality }) => showQuality(quality), "qplan:say": ({ text }) => sayOfEdits(text), "qplan:select": ({ name }) => selectNamed(name) };
  window.addEventListener("message", (event) => {
    if (event.source === window.parent && window.parent !== window) CALLS[event.data?.type]?.(event.data);
  });
}

// ---- what is offered, and what was chosen ---------------------------------------------------------------------

// Buttons that ask something of a place; `texts` are (label, what an annotations file has there).
function asks(of, at, texts, help) {
  const list = classed(make("div", "", ...texts.map(([label, value]) => titled(button(label, () => planPage.edit({ of, at, value })), `ask ${value} of ${at}`))), "asks");
  return make("div", "", classed(make("span", help), "quiet"), list);
}

// What the target has beside what is there: `offers.py` knows its kernel variants.
function kernelAsks(g, node) {
  const now = g.kinds[g.nodes.kind[node]];
  const others = offerOf(g, node).kernel.filter((name) => name !== now);
  if (!others.length) return classed(make("p", `${about.target} runs ${g.texts[g.nodes.kernel[node]]} in no other way.`), "quiet");
  return asks("kernel", g.nameOf(node), others.map((name) => [name, name]), "What if it ran in");
}

const NO_OFFER = { kernel: [], in: [], out: [] };
const offerOf = (g, node) => g.data.offers?.[g.nodes.offer?.[node]] ?? NO_OFFER;

// Storages at a port; an input or output of the model has those of the kernels around it.
function storagesAt(g, port) {
  const node = g.ports.node[port];
  if (!g.isModel(node)) return offerOf(g, node)[g.ports.out[port] ? "out" : "in"][g.ports.index[port]] ?? [];
  const value = g.ports.value[port];
  const near = [...g.edgesOutOf[node].map((edge) => readerPort(g, edge)), ...g.edgesInto[node].flatMap((edge) => portsOf(g, g.edges.from[edge]).filter((other) => g.ports.out[other]))];
  return [...new Set(near.filter((other) => g.ports.value[other] === value && !g.isModel(g.ports.node[other])).flatMap((other) => storagesAt(g, other)))];
}

// A result is asked of the value, for all its readers; an operand of the port alone.
function portAsks(g, port) {
  const [of, at] = g.ports.out[port] ? ["value", g.texts[g.ports.value[port]]] : ["port", addressOf(g, port)];
  const type = g.texts[g.ports.type[port]];
  const now = /^(?:!quant\.uniform<)?([iu]\d+|f\dE\w+)/.exec(type)?.[1];
  const texts = now ? [["float", "!quant.none"]] : [];
  if (type.startsWith("!quant.uniform")) texts.unshift(["fix this type", type]); // many scales are shown in short
  texts.push(...storagesAt(g, port).filter((name) => name !== now).map((name) => [name, `!quant.any<${name}>`]));
  if (!texts.length) return classed(make("p", `${about.target} has no other type here.`), "quiet");
  return asks(of, at, texts, `What if ${of === "value" ? "the value" : "this operand"} were`);
}

function copier(text, name) {
  const made = titled(button("copy", async () => {
    made.textContent = (await copied(text())) ? "copied" : "select and copy";
    setTimeout(() => { made.textContent = "copy"; }, 1500);
  }), `copy ${name}`);
  return made;
}

// The clipboard may be refused, as in a frame without an origin; a selection may not.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", text);
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

const bar = document.getElementById("what-if");

function showEdits() {
  showBar();
  const place = document.getElementById("view-edits");
  place.hidden = !edits.length;
  if (!edits.length) return place.replaceChildren();
  const list = make("ul", "", ...edits.map(({ of, at, value }) => make("li", "", `${of} `, make("code", at), " → ", make("code", shortType(value)))));
  const file = make("pre", annotationsText());
  const parts = [make("h3", `What if: ${plural(edits.length, "edit")}`), list];
  if (!about.live) parts.push(classed(make("p", "This page cannot plan: its cards and tables are of the plan without the edits. Save the edits beside plan.json, and run the command:"), "quiet"));
  parts.push(classed(make("div", "", button("save edits.yaml", () => save(new Blob([annotationsText()], { type: "text/yaml" }), "edits.yaml"))), "asks"));
  parts.push(make("h4", "edits.yaml", " ", copier(annotationsText, "edits.yaml")), file);
  parts.push(make("h4", "Command", " ", copier(commandText, "the command")), make("pre", commandText()));
  place.replaceChildren(...parts);
  side.scrollTop = place.offsetTop;
}

// A line that stays in sight: the edits, what they change, and the way back.
function showBar() {
  bar.hidden = !edits.length;
  if (!edits.length) return bar.replaceChildren();
  const { at, value } = edits.at(-1);
  const more = edits.length > 1 ? ` and ${plural(edits.length - 1, "more edit")}` : "";
  const said = Object.assign(make("span"), { id: "view-said", role: "status" });
  return bar.replaceChildren(make("span", "", make("b", "What if "), make("code", at), ` → ${shortType(value)}${more}`), button("undo", planPage.undo), button("clear", planPage.clear), said);
}

function readSection(section) {
  const place = document.getElementById(section);
  if (!place) return;
  if (place.tagName === "DETAILS") place.open = true;
  place.scrollIntoView();
}

function sayOfEdits(text) {
  const place = document.getElementById("view-said");
  if (place) place.textContent = text;
}

function markChanged(names) {
  const pane = panes.at(-1);
  pane.graph.changed = new Set(names.map((name) => pane.graph.nodeOf(name)).filter((node) => node !== undefined));
  reshape(pane);
  legend(pane);
}

// ---- cards ------------------------------------------------------------------------------------------------------

const cards = [...document.querySelectorAll("#cards .card")].map((card) => ({ card, title: card.querySelector("h2").textContent, whole: [...card.childNodes], figure: card.querySelector(".figure").firstChild.textContent.trim() }));

// The cards of the plan that is shown: old → new where a figure changed; null gives those of the plan of this page back.
function showCards(found) {
  for (const { card, title, whole, figure } of cards) {
    const now = found?.find((one) => one.title === title);
    card.classList.toggle("changed", Boolean(now) && now.figure !== figure);
    if (!now || (now.figure === figure && title !== "Quality")) card.replaceChildren(...whole);
    else card.replaceChildren(whole[0], figureOfCard(title, figure, now), ...now.notes.map((text) => classed(make("p", text), "quiet")), ...causesOfCard(now));
  }
}

function figureOfCard(title, before, { figure, level }) {
  const isMeasured = title !== "Quality" || level;
  const made = classed(make("p", isMeasured && figure !== before ? `${before} → ${figure} ` : `${figure} `), `figure ${level}`);
  if (level) made.append(classed(make("span", level), "level"));
  return made;
}

function causesOfCard({ causes }) {
  return causes?.length ? [classed(make("ul", "", ...causes.map((text) => titled(make("li", text), text))), "reasons")] : [];
}

function showQuality({ text, grade, measured_on: on }) {
  showCards(data.cards.map((card) => (card.title === "Quality" ? { ...card, figure: text, level: grade, notes: [`SQNR of the worst output with the edits, ${on}`] } : card)));
}

function unmeasured(found) {
  const { figure } = cards.find(({ title }) => title === "Quality") ?? {};
  const notes = ["The plan with these edits. The quality button measures it.", figure && figure !== "not measured" ? `Without the edits: ${figure}` : ""].filter(Boolean);
  return found.map((card) => (card.title === "Quality" ? { ...card, notes } : card));
}

// Another plan of the same model: folds, place and choice stay, by name.
function showView(view) {
  showCards(view === opened ? null : unmeasured(view.cards ?? []));
  const pane = panes.at(-1);
  const chosen = pane.view.selected === null ? "" : itemName(pane.graph, pane.view.selected);
  const open = new Set(pane.scene.frames.map((i) => pathOf(pane.graph, i)));
  data = view;
  pane.graph = graphOf(view);
  pane.folded = new Set([...pane.graph.groups.name.keys()].filter((i) => !open.has(pathOf(pane.graph, i))));
  Object.assign(pane.view, { nodes: pane.graph.count, edges: pane.graph.edges.from.length, selected: null });
  reshape(pane);
  legend(pane);
  selectNamed(chosen);
}
