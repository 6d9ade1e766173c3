"use strict";
// The graph of a plan on a canvas: far away a bar for each rank, nearer boxes, then names and types.
// Draws what `view.py` wrote and decides nothing. First of three files that the page has as one script:
// `panel.js` is the words beside the canvas, `hands.js` pointer, keys and search, and the start.

const data = JSON.parse(document.getElementById("view-data").textContent);
const canvas = document.getElementById("view-canvas");
const panel = document.getElementById("view-panel");
const pen = canvas.getContext("2d");
const { nodes, ports, edges, rescales, values, steps, texts, kinds } = data;

// Sizes in world units: a column is 1 wide, a rank 1 high; `view.unit` pixels are one rank.
const WIDE = 2.9; // a column in ranks
const BOX = { w: 2.5, h: 0.6 };
const NEAR = 34; // pixels a rank from which names are drawn
const TYPES = 76; // and port types
const FAR = 7; // pixels a rank below which ranks are bars
const LIMITS = [0.001, 160];
const COLORS = {
  light: { paper: "#fff", ink: "#1b1f24", line: "#8b95a1", soft: "#e9edf1", mark: "#c62f2f", chosen: "#b4520a", news: "#087f5b" },
  dark: { paper: "#14171a", ink: "#e6e9ec", line: "#737d88", soft: "#262b31", mark: "#ff6b61", chosen: "#ffab5e", news: "#51cf90" },
};

// ---- what the data says, in arrays to draw from -------------------------------------------------------------

const count = nodes.name.length;
const ranks = count ? 1 + nodes.rank.reduce((most, rank) => Math.max(most, rank), 0) : 0;
const columns = count ? 1 + nodes.column.reduce((most, column) => Math.max(most, column), 0) : 1;
const byRank = rows(nodes.rank, ranks);
const edgesByRank = rows(edges.from.map((node) => nodes.rank[node]), ranks);
const spans = edges.from.map((node, i) => nodes.rank[edges.to[i]] - nodes.rank[node]);
const longest = spans.reduce((most, span) => (span <= 48 ? Math.max(most, span) : most), 1);
const farEdges = spans.flatMap((span, i) => (span > longest ? [i] : []));
const bars = kinds.map((_, kind) => sums((node) => nodes.kind[node] === kind));
const red = starts(edges.to.filter((_, edge) => edges.rescale[edge] >= 0).map((node) => nodes.rank[node]), ranks);
const firstPort = starts(ports.node, count);
const edgesInto = rows(edges.to, count);
const edgesOutOf = rows(edges.from, count);
const changes = data.changes ?? { node: [], text: [], totals: [] }; // since another plan
const changed = new Set(changes.node.filter((node) => node >= 0));
const green = sums((node) => changed.has(node));
const nodeOf = index(nodes.name, (node) => !isModel(node)); // kernel name to node
const stepOf = index(steps.port); // port, value or kernel to the step that speaks of it
const valueOf = index(values.name);

// Names to places, made when first asked.
function index(names, wanted = () => true) {
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

// Of nodes, by rank.
function sums(wanted) {
  return starts(nodes.rank.filter((_, node) => wanted(node)), ranks);
}

const nameOf = (node) => texts[nodes.name[node]];
const isModel = (node) => kinds[nodes.kind[node]] === "model";
const centre = (node) => [(nodes.column[node] + 0.5) * WIDE, nodes.rank[node] + 0.5];

function addressOf(port) {
  const node = ports.node[port];
  return `${isModel(node) ? "@model" : nameOf(node)}.${ports.out[port] ? "out" : "in"}[${ports.index[port]}]`;
}

// Long names end in what tells them apart.
const tail = (text, most = 28) => (text.length > most ? `…${text.slice(1 - most)}` : text);

function portsOf(node) {
  return Array.from({ length: firstPort[node + 1] - firstPort[node] }, (_, i) => firstPort[node] + i);
}

// The port of an edge's reader.
function readerPort(edge) {
  const node = edges.to[edge];
  return firstPort[node] + (isModel(node) ? 0 : edges.port[edge]);
}

function colorOf(kind, dark) {
  if (kind === "float") return dark ? "#5c6570" : "#b9c0c8";
  if (kind === "model") return dark ? "#2f353c" : "#f4f6f8";
  const bits = Number((/\d+/.exec(kind) || ["8"])[0]);
  const hue = bits <= 4 ? 285 : bits <= 8 ? (kind.startsWith("u") ? 200 : 222) : bits <= 16 ? 165 : 130;
  return `hsl(${hue} ${dark ? "42% 42%" : "62% 80%"})`;
}

// ---- state --------------------------------------------------------------------------------------------------

const view = {
  x: 0, y: 0, unit: 40, // the world's place at the middle of the canvas, pixels a rank
  selected: null, // a node
  address: "", // of what the panel explains
  level: "", visible: 0, frames: 0, painted: 0, first: 0, // milliseconds: of the last frame; until the first stood
  nodes: count, edges: edges.from.length,
};
window.__view = view;
let palette = COLORS.light;
let dark = false;
let waiting = false;

function fit() {
  const { clientWidth: w, clientHeight: h } = canvas;
  view.x = (columns * WIDE) / 2;
  view.y = ranks / 2;
  view.unit = clamp(Math.min((w - 30) / (columns * WIDE), (h - 20) / Math.max(ranks, 1)), LIMITS[0], 44);
  refresh();
}

function clamp(x, low, high) {
  return Math.max(low, Math.min(high, x));
}

function refresh() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    paint();
  });
}

function toScreen(x, y) {
  return [(x - view.x) * view.unit + canvas.clientWidth / 2, (y - view.y) * view.unit + canvas.clientHeight / 2];
}

function toWorld(x, y) {
  return [(x - canvas.clientWidth / 2) / view.unit + view.x, (y - canvas.clientHeight / 2) / view.unit + view.y];
}

// ---- drawing ------------------------------------------------------------------------------------------------

function paint() {
  const began = performance.now();
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: w, clientHeight: h } = canvas;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = palette.paper;
  pen.fillRect(0, 0, w, h);
  const top = clamp(Math.floor(toWorld(0, 0)[1]), 0, ranks);
  const bottom = clamp(Math.ceil(toWorld(0, h)[1]), 0, ranks);
  view.level = view.unit < FAR ? "bars" : view.unit < NEAR ? "boxes" : "names";
  view.visible = 0;
  if (view.level === "bars") {
    paintBars(w, h);
  } else {
    paintEdges(top, bottom);
    paintBoxes(top, bottom, w);
  }
  view.painted = performance.now() - began;
  view.first ||= performance.now();
  view.frames += 1;
}

// A bar for each row of pixels, or for each rank where a rank is higher: shares of what is there.
function paintBars(w, h) {
  const step = Math.max(1, view.unit);
  const [left] = toScreen(0, 0);
  const full = columns * WIDE * view.unit;
  const start = step === 1 ? 0 : toScreen(0, Math.max(0, Math.floor(toWorld(0, 0)[1])))[1];
  const wide = Math.max(full, 90);
  const from = left + full / 2 - wide / 2;
  for (let y = start; y < h; y += step) {
    const a = clamp(Math.floor(toWorld(0, y + 0.01)[1]), 0, ranks);
    const b = clamp(Math.max(a + 1, Math.floor(toWorld(0, y + step + 0.01)[1])), 0, ranks);
    if (a >= ranks || toWorld(0, y + step)[1] <= 0) continue;
    const amounts = bars.map((bar) => bar[b] - bar[a]);
    const all = amounts.reduce((sum, amount) => sum + amount, 0);
    let x = from;
    amounts.forEach((amount, kind) => {
      if (!amount) return;
      const share = (wide * amount) / all;
      pen.fillStyle = colorOf(kinds[kind], dark);
      pen.fillRect(x, y, share, step > 3 ? step - 1 : step + 0.5);
      x += share;
    });
    if (red[b] > red[a]) {
      pen.fillStyle = palette.mark;
      pen.fillRect(from + wide + 3, y, 9, step > 3 ? step - 1 : step + 0.5);
    }
    if (green[b] > green[a]) {
      pen.fillStyle = palette.news;
      pen.fillRect(from + wide + 15, y, 9, step > 3 ? step - 1 : step + 0.5);
    }
    if (view.selected !== null && nodes.rank[view.selected] >= a && nodes.rank[view.selected] < b) {
      pen.fillStyle = palette.chosen;
      pen.fillRect(from - 14, y - 1, 10, Math.max(step, 3));
    }
    view.visible += all;
  }
}

function paintEdges(top, bottom) {
  const seen = [];
  for (let rank = Math.max(0, top - longest); rank < bottom; rank++) {
    for (const edge of edgesByRank[rank]) if (rank + spans[edge] >= top && spans[edge] <= longest) seen.push(edge);
  }
  for (const edge of farEdges) {
    const rank = nodes.rank[edges.from[edge]];
    if (rank < bottom && rank + spans[edge] >= top) seen.push(edge);
  }
  const chosen = view.selected;
  for (const edge of seen) {
    const touched = chosen !== null && (edges.from[edge] === chosen || edges.to[edge] === chosen);
    pen.lineWidth = touched ? 2 : 1;
    pen.strokeStyle = touched ? palette.chosen : edges.rescale[edge] >= 0 ? palette.mark : palette.line;
    const [ax, ay] = toScreen(...below(edges.from[edge], edge));
    const [bx, by] = toScreen(...above(edges.to[edge], edge));
    pen.beginPath();
    pen.moveTo(ax, ay);
    let [x, y] = [ax, ay];
    edges.bends[edge].forEach((column, i) => {
      const [px, py] = toScreen((column + 0.5) * WIDE, nodes.rank[edges.from[edge]] + 1.5 + i);
      bow(x, y, px, py - view.unit * 0.28);
      pen.lineTo(px, py + view.unit * 0.28);
      [x, y] = [px, py + view.unit * 0.28];
    });
    bow(x, y, bx, by);
    pen.stroke();
    if (edges.rescale[edge] >= 0) paintRescale(edge, bx, by);
  }
}

function bow(ax, ay, bx, by) {
  const half = (by - ay) / 2;
  pen.bezierCurveTo(ax, ay + half, bx, by - half, bx, by);
}

function paintRescale(edge, x, y) {
  const size = clamp(view.unit * 0.09, 2, 7);
  pen.fillStyle = palette.mark;
  pen.fillRect(x - size, y - 2.2 * size, 2 * size, 1.4 * size);
  if (view.unit < TYPES) return;
  pen.font = "10px ui-monospace, monospace";
  pen.textAlign = "left";
  pen.fillText(texts[rescales.kind[edges.rescale[edge]]], x + size + 4, y - size);
}

// Where an edge leaves and enters a box: inputs side by side on the upper side.
function below(node) {
  const [x, y] = centre(node);
  return [x, y + BOX.h / 2];
}

function above(node, edge) {
  const [x, y] = centre(node);
  const into = edgesInto[node];
  const place = into.length > 1 ? (into.indexOf(edge) + 1) / (into.length + 1) - 0.5 : 0;
  return [x + place * BOX.w * 0.8, y - BOX.h / 2];
}

function paintBoxes(top, bottom, w) {
  const [wide, high] = [BOX.w * view.unit, BOX.h * view.unit];
  for (let rank = top; rank < bottom; rank++) {
    for (const node of byRank[rank]) {
      const [x, y] = toScreen(...centre(node));
      if (x + wide / 2 < 0 || x - wide / 2 > w) continue;
      view.visible += 1;
      pen.fillStyle = colorOf(kinds[nodes.kind[node]], dark);
      pen.strokeStyle = node === view.selected ? palette.chosen : palette.line;
      pen.lineWidth = node === view.selected ? 3 : 1;
      pen.beginPath();
      pen.roundRect(x - wide / 2, y - high / 2, wide, high, Math.min(5, high / 4));
      pen.fill();
      if (view.level === "names" || node === view.selected) pen.stroke();
      if (changed.has(node)) paintNews(x - wide / 2, y - high / 2, high / 3);
      if (view.level === "names") paintNames(node, x, y, wide, high);
    }
  }
}

// A corner of its own colour on what another plan has otherwise.
function paintNews(x, y, size) {
  pen.fillStyle = palette.news;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x + size, y);
  pen.lineTo(x, y + size);
  pen.fill();
}

function paintNames(node, x, y, wide, high) {
  pen.fillStyle = palette.ink;
  pen.textAlign = "center";
  const types = view.unit >= TYPES;
  pen.font = `600 ${types ? 13 : 11}px system-ui, sans-serif`;
  const title = isModel(node) ? nameOf(node) : texts[nodes.kernel[node]];
  pen.fillText(shortened(title, wide - 8), x, types ? y - high * 0.16 : y + 4);
  if (!types) return;
  pen.font = "11px system-ui, sans-serif";
  pen.fillText(shortened(isModel(node) ? texts[nodes.kernel[node]] : nameOf(node), wide - 8), x, y + high * 0.1);
  const out = portsOf(node).find((port) => ports.out[port]) ?? portsOf(node)[0];
  if (out === undefined) return;
  pen.font = "9.5px ui-monospace, monospace";
  pen.fillText(shortened(shortType(texts[ports.type[out]]), wide - 8), x, y + high * 0.36);
}

// `u8 0.0123 -5` for `!quant.uniform<u8:f32, 0.012345678:-5>`.
function shortType(text) {
  const found = /^!quant\.uniform<([^:]+):[^,]+, ([-+0-9.eE]+)(?::(-?\d+))?>$/.exec(text);
  return found ? `${found[1]}  ×${Number(found[2]).toPrecision(4)}${found[3] ? `  zp ${found[3]}` : ""}` : text;
}

function shortened(text, wide) {
  if (pen.measureText(text).width <= wide) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${text.slice(0, middle)}…`).width <= wide) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}
