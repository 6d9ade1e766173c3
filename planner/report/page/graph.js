"use strict";
// The graph of a plan as arrays and look-ups, made of what `view.py` wrote; draws and decides nothing.
// First of the files that the page has as one script. A graph is one plan's: a page with two plans has two.

let data = JSON.parse(document.getElementById("view-data").textContent);

function graphOf(given) {
  const { nodes, ports, edges, rescales, values, texts, kinds, groups } = given;
  const count = nodes.name.length;
  const highest = (numbers) => numbers.reduce((most, number) => Math.max(most, number), 0);
  const ranks = Math.max(count ? 1 + highest(nodes.rank) : 0, highest(groups.rank.map((rank, i) => rank + groups.ranks[i])));
  const columns = Math.max(count ? 1 + highest(nodes.column) : 1, highest(groups.column.map((column, i) => column + groups.columns[i])));
  const kindIs = (node, kind) => kinds[nodes.kind[node]] === kind;
  let known = null;
  const g = {
    data: given, nodes, ports, edges, rescales, values, texts, kinds, groups, count, ranks, columns,
    get steps() { return logOf(given); }, // null until the page has been read
    firstPort: starts(ports.node, count),
    edgesInto: rows(edges.to, count),
    edgesOutOf: rows(edges.from, count),
    home: new Int32Array(count).fill(-1), // the innermost group of each node
    inner: rows(groups.parent.map((parent) => parent + 1), groups.name.length + 1), // groups in each, all at 0
    nodeOf: index(nodes.name, texts, (node) => !kindIs(node, "model")), // kernel name to node
    stepOf: (name) => (known ??= g.steps && index(g.steps.port, texts))?.(name), // port, value or kernel to its step
    valueOf: index(values.name, texts),
    changes: given.changes ?? { node: [], text: [], totals: [] }, // since another plan
    isModel: (node) => kindIs(node, "model"),
    nameOf: (node) => texts[nodes.name[node]],
  };
  g.changed = new Set(g.changes.node.filter((node) => node >= 0));
  groups.first.forEach((first, i) => {
    for (let at = first; at < groups.last[i]; at++) g.home[given.order[at]] = i;
  });
  return g;
}

// The log, and the texts that it alone has, stand at the end of the page, and are read when first asked for.
function logOf(given) {
  if (given.steps || document.readyState === "loading") return given.steps;
  const log = JSON.parse(document.getElementById("view-log").textContent);
  for (const text of log.texts) given.texts.push(text);
  given.steps = log.steps;
  return given.steps;
}

// Names to places, made when first asked.
function index(names, texts, wanted = () => true) {
  let known = null;
  return (name) => {
    known ??= new Map(names.flatMap((text, i) => (wanted(i) ? [[texts[text], i]] : [])));
    return known.get(name);
  };
}

function rows(keys, length) {
  const found = Array.from({ length }, () => []);
  keys.forEach((key, i) => found[key].push(i));
  return found;
}

// How many keys lie below each number: where its own start, and any stretch of them is a difference.
function starts(keys, length) {
  const found = new Int32Array(length + 1);
  keys.forEach((key) => (found[key + 1] += 1));
  for (let i = 0; i < length; i++) found[i + 1] += found[i];
  return found;
}

function addressOf(g, port) {
  const node = g.ports.node[port];
  return `${g.isModel(node) ? "@model" : g.nameOf(node)}.${g.ports.out[port] ? "out" : "in"}[${g.ports.index[port]}]`;
}

function portsOf(g, node) {
  return Array.from({ length: g.firstPort[node + 1] - g.firstPort[node] }, (_, i) => g.firstPort[node] + i);
}

// The port of an edge's reader.
function readerPort(g, edge) {
  const node = g.edges.to[edge];
  return g.firstPort[node] + (g.isModel(node) ? 0 : g.edges.port[edge]);
}

// `layers.0/attn`, whole.
function pathOf(g, group) {
  const parts = [];
  for (let at = group; at >= 0; at = g.groups.parent[at]) parts.unshift(g.texts[g.groups.name[at]]);
  return parts.join("/");
}

// Nodes of a group, in order.
function nodesIn(g, group) {
  return g.data.order.slice(g.groups.first[group], g.groups.last[group]);
}

// Names that a scope shares with the box around it are not said twice; long ones end in what tells them apart.
const tail = (text, most = 28) => (text.length > most ? `…${text.slice(1 - most)}` : text);
const plural = (amount, word) => `${amount.toLocaleString("en")} ${word}${amount === 1 ? "" : "s"}`;

// `u8 ×0.0123 zp -5` for `!quant.uniform<u8:f32, 0.012345678:-5>`.
function shortType(text) {
  const found = /^!quant\.uniform<([^:]+):[^,]+, ([-+0-9.eE]+)(?::(-?\d+))?>$/.exec(text);
  return found ? `${found[1]}  ×${Number(found[2]).toPrecision(4)}${found[3] ? `  zp ${found[3]}` : ""}` : text;
}
