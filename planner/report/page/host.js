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
//   say(text): a line at the edits, such as "planning" or why it failed}
//
// Events on `document`, bubbling CustomEvents:
//   qplan:edit    after each change; detail {action: "edit" | "undo" | "clear", of, at, value, document}
//   qplan:select  detail {name}; "" where nothing is chosen
//   qplan:study   detail {at}: the trade-offs of a value or rescale are asked for
// In a frame whose data say `live` the same go to the parent as messages {type, detail}, and messages from the
// parent {type: "qplan:mark", names}, {type: "qplan:show", view}, {type: "qplan:say", text}, {type: "qplan:select", name},
// {type: "qplan:read", section} call the functions. So a
// page without an origin (`sandbox allow-scripts`) needs no right to ask the server anything.
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
  read: (section) => document.getElementById(section)?.scrollIntoView(),
  say: (text) => sayOfEdits(text),
};

if (about.live) {
  const CALLS = { "qplan:mark": ({ names }) => markChanged(names), "qplan:show": ({ view }) => planPage.show(view), "qplan:read": ({ section }) => planPage.read(section), "qplan:say": ({ text }) => sayOfEdits(text), "qplan:select": ({ name }) => selectNamed(name) };
  window.addEventListener("message", (event) => {
    if (event.source === window.parent && window.parent !== window) CALLS[event.data?.type]?.(event.data);
  });
}

// ---- what is offered, and what was chosen ---------------------------------------------------------------------

const WIDTHS = ["i4", "i8", "u8", "i16"];

// Buttons that ask something of a place; `texts` are (label, what an annotations file has there).
function asks(of, at, texts, help) {
  const list = classed(make("div", "", ...texts.map(([label, value]) => titled(button(label, () => planPage.edit({ of, at, value })), `ask ${value} of ${at}`))), "asks");
  return make("div", "", classed(make("span", help), "quiet"), list);
}

function kernelAsks(g, node) {
  return asks("kernel", g.nameOf(node), [["float", "float"], ["dynamic", "dynamic"], ...WIDTHS.map((width) => [width, width])], "What if it ran in");
}

// A result is asked of the value, for all its readers; an operand of the port alone.
function portAsks(g, port) {
  const [of, at] = g.ports.out[port] ? ["value", g.texts[g.ports.value[port]]] : ["port", addressOf(g, port)];
  const type = g.texts[g.ports.type[port]];
  const texts = type.startsWith("!quant.uniform") ? [["pin as it is", type]] : [];
  texts.push(["float", "!quant.none"], ...WIDTHS.map((width) => [width, `!quant.any<${width}>`]));
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

function showEdits() {
  const place = document.getElementById("view-edits");
  place.hidden = !edits.length;
  if (!edits.length) return place.replaceChildren();
  const list = make("ul", "", ...edits.map(({ of, at, value }) => make("li", "", `${of} `, make("code", at), " → ", make("code", shortType(value)))));
  const file = make("pre", annotationsText());
  const parts = [make("h3", `What if: ${plural(edits.length, "edit")}`), list];
  parts.push(classed(make("p", "The figures at the top and the tables are of the plan without them."), "quiet"));
  parts.push(classed(make("div", "", button("undo", planPage.undo), button("clear", planPage.clear), button("save edits.yaml", () => save(new Blob([annotationsText()], { type: "text/yaml" }), "edits.yaml"))), "asks"));
  if (!about.live) parts.push(classed(make("p", "This page cannot plan. Save the edits beside plan.json, and run the command:"), "quiet"));
  parts.push(make("h4", "edits.yaml", " ", copier(annotationsText, "edits.yaml")), file);
  parts.push(make("h4", "Command", " ", copier(commandText, "the command")), make("pre", commandText()), Object.assign(make("p"), { id: "view-said", role: "status" }));
  place.replaceChildren(...parts);
  side.scrollTop = place.offsetTop;
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

// Another plan of the same model: folds, place and choice stay, by name.
function showView(view) {
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
