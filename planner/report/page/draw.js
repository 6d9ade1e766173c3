// Drawing: far away a bar for each row of pixels, nearer boxes, then names, then types and shapes.
// Every function draws a pane with a pen: a canvas's, or one that writes SVG (`export.js`).

const FAR = 7; // pixels a rank below which ranks are bars
const NAMES = 15; // from which boxes have names
const TYPES = 76; // and types, shapes
const LIMITS = [0.001, 160];
const LEAST_FLOAT = 8; // pixels that float kernels in a folded group have at least
const GUTTER = 15; // pixels between names at the side
const SANS = "system-ui, sans-serif";
const MONO = "ui-monospace, monospace";
const LETTER = 0.6; // width of an average letter, in font sizes

const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

function paneOf(canvas, graph) {
  const pane = {
    canvas, graph, pen: canvas.getContext("2d"), waiting: false,
    folded: foldedAtFirst(graph), scene: null, scale: null, bars: null, size: { w: 0, h: 0 },
    view: {
      x: 0, y: 0, unit: 40, // the world's place at the middle of the canvas, pixels a rank
      selected: null, // an item: a node, or `count` + a group
      address: "", // of what the panel explains
      level: "", visible: 0, frames: 0, painted: 0, first: 0, // milliseconds: of the last frame; until the first stood
      nodes: graph.count, edges: graph.edges.from.length, groups: graph.groups.name.length,
    },
  };
  pane.scene = sceneOf(graph, pane.folded); // colours come with the dress
  return pane;
}

// After groups were folded or unfolded, or colours changed.
function reshape(pane) {
  pane.scene = sceneOf(pane.graph, pane.folded);
  recolor(pane);
}

function recolor(pane) {
  const g = pane.graph;
  pane.scale = scaleOf(g, mode);
  const sums = (amountOf) => {
    const found = new Float64Array(g.ranks + 1);
    for (let node = 0; node < g.count; node++) found[g.nodes.rank[node] + 1] += amountOf(node);
    for (let rank = 0; rank < g.ranks; rank++) found[rank + 1] += found[rank];
    return found;
  };
  const marked = new Set(g.edges.to.filter((_, edge) => g.edges.rescale[edge] >= 0));
  pane.bars = {
    kinds: g.kinds.map((_, kind) => sums((node) => Number(g.nodes.kind[node] === kind))),
    shares: pane.scale && sums((node) => pane.scale.share(pane.scale.numbers[node])),
    marks: sums((node) => Number(marked.has(node))),
    news: sums((node) => Number(g.changed.has(node))),
    all: sums(() => 1),
  };
  pane.groupColors = new Map();
  pane.mapped = null;
}

function refresh(pane) {
  if (pane.waiting) return;
  pane.waiting = true;
  requestAnimationFrame(() => {
    pane.waiting = false;
    paint(pane);
  });
}

function toScreen({ view, size }, x, y) {
  return [(x - view.x) * view.unit + size.w / 2, (y - view.y) * view.unit + size.h / 2];
}

function toWorld({ view, size }, x, y) {
  return [(x - size.w / 2) / view.unit + view.x, (y - size.h / 2) / view.unit + view.y];
}

function paint(pane) {
  const began = performance.now();
  const { canvas, view } = pane;
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: w, clientHeight: h } = canvas;
  if (!w || !h) return;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  // The upper edge stays where it was: a frame on a page is low, or has no height at all, until the page has measured it.
  const isFirst = !pane.size.h;
  if (!isFirst) pane.view.y += (h - pane.size.h) / 2 / pane.view.unit;
  pane.size = { w, h };
  if (isFirst && view.selected === null) openAt(pane);
  pane.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  paintScene(pane, pane.pen);
  paintMap(pane);
  view.painted = performance.now() - began;
  view.first ||= performance.now();
  view.frames += 1;
}

function paintScene(pane, pen) {
  const { view, size, scene } = pane;
  pen.fillStyle = palette.paper;
  pen.fillRect(0, 0, size.w, size.h);
  const [top, bottom] = [toWorld(pane, 0, 0)[1], toWorld(pane, 0, size.h)[1]];
  const [first, last] = [rankAt(scene.tops, Math.max(0, top)), Math.min(pane.graph.ranks, 1 + rankAt(scene.tops, bottom))];
  view.level = view.unit < FAR ? "bars" : view.unit < NAMES ? "boxes" : "names";
  view.visible = 0;
  if (view.level === "bars") {
    const full = scene.wide * view.unit;
    const wide = Math.max(full, 90);
    paintBars(pane, pen, { x: toScreen(pane, 0, 0)[0] + (full - wide) / 2, wide });
  } else {
    paintFrames(pane, pen);
    paintEdges(pane, pen, first, last);
    paintBoxes(pane, pen, first, last);
  }
  if (view.level !== "names") paintGutter(pane, pen, first, last);
}

// A bar for each row of pixels, or for each rank where a rank is higher: shares of what is there.
function paintBars(pane, pen, { x: from, wide }) {
  const { view, size, scene, bars, graph: g } = pane;
  const step = Math.max(1, view.unit);
  const start = step === 1 ? 0 : toScreen(pane, 0, scene.tops[rankAt(scene.tops, Math.max(0, toWorld(pane, 0, 0)[1]))])[1];
  const high = step > 3 ? step - 1 : step + 0.5;
  for (let y = start; y < size.h; y += step) {
    const [above, below] = [toWorld(pane, 0, y + 0.01)[1], toWorld(pane, 0, y + step + 0.01)[1]];
    if (below <= 0 || above >= scene.high) continue;
    const a = rankAt(scene.tops, Math.max(0, above));
    const b = Math.min(g.ranks, Math.max(a + 1, rankAt(scene.tops, below)));
    view.visible += barOf(pane, pen, a, b, { x: from, y, wide, high });
    const flag = (sums, color, x, w, top, tall) => {
      if (sums && sums[b] <= sums[a]) return;
      pen.fillStyle = color;
      pen.fillRect(x, top, w, tall);
    };
    flag(bars.marks, palette.mark, from + wide + 3, 9, y, high);
    flag(bars.news, palette.news, from + wide + 15, 9, y, high);
    const chosen = view.selected === null ? -1 : view.selected < g.count ? g.nodes.rank[view.selected] : g.groups.rank[view.selected - g.count];
    if (chosen >= a && chosen < b) flag(null, palette.chosen, from - 14, 10, y - 1, Math.max(step, 3));
  }
}

function barOf(pane, pen, a, b, { x, y, wide, high }) {
  const { bars } = pane;
  const all = bars.all[b] - bars.all[a];
  if (!all) return 0;
  if (bars.shares) {
    pen.fillStyle = rampAt(clamp((bars.shares[b] - bars.shares[a]) / all, 0, 1));
    pen.fillRect(x, y, wide, high);
    return all;
  }
  bars.kinds.forEach((sums, kind) => {
    const part = (wide * (sums[b] - sums[a])) / all;
    if (!part) return;
    pen.fillStyle = colorOfKind(pane.graph.kinds[kind]);
    pen.fillRect(x, y, part, high);
    x += part;
  });
  return all;
}

// Names beside the graph where boxes are too small for them: of scopes, outer ones first, else of kernels.
function paintGutter(pane, pen, first, last) {
  const { graph: g, scene, view, size } = pane;
  const taken = new Set();
  const edge = Math.max(8, Math.min(toScreen(pane, 0, 0)[0], size.w / 2 - 45) - 24);
  const put = (text, y, weight) => {
    const row = Math.round(y / GUTTER);
    if (y < 8 || y > size.h - 4 || taken.has(row) || taken.has(row - 1)) return;
    taken.add(row);
    pen.font = `${weight} 11px ${SANS}`;
    pen.textAlign = edge > 120 ? "right" : "left";
    const shown = shortened(text, Math.max(edge, 120), 11);
    pen.fillStyle = palette.paper;
    pen.globalAlpha = 0.8;
    const wide = shown.length * 6.2 + 6;
    pen.fillRect(edge > 120 ? edge - wide : 5, y - 7, wide, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = weight === 600 ? palette.ink : palette.dim;
    pen.fillText(shown, edge > 120 ? edge : 8, y + 4);
  };
  const depth = (i) => (i < 0 ? 0 : 1 + depth(g.groups.parent[i]));
  const seen = [...scene.frames, ...scene.boxes].filter((i) => g.groups.rank[i] < last && g.groups.rank[i] + g.groups.ranks[i] > first);
  for (const i of seen.sort((a, b) => depth(a) - depth(b) || g.groups.rank[a] - g.groups.rank[b])) {
    const [top, bottom] = [scene.tops[g.groups.rank[i]], scene.tops[g.groups.rank[i] + g.groups.ranks[i]]];
    put(pathOf(g, i), Math.max(toScreen(pane, 0, Math.min(top + 0.5, (top + bottom) / 2))[1], 12), 600);
  }
  const step = Math.max(1, Math.floor((2 * GUTTER) / view.unit));
  for (let rank = first - (first % step); rank < last; rank += step) {
    const [node] = scene.shown[rank] ?? [];
    if (node !== undefined) put(g.nameOf(node), toScreen(pane, 0, (scene.tops[rank] + scene.tops[rank + 1]) / 2)[1], 400);
  }
}

function paintFrames(pane, pen) {
  const { graph: g, scene, view, size } = pane;
  for (const i of scene.frames) {
    const frame = frameOf(g, scene, i);
    const [x, y] = toScreen(pane, frame.x, frame.y);
    const [w, h] = [frame.w * view.unit, frame.h * view.unit];
    if (y > size.h || y + h < 0 || x > size.w || x + w < 0) continue;
    const chosen = view.selected === g.count + i;
    pen.fillStyle = palette.soft;
    pen.strokeStyle = chosen ? palette.chosen : palette.frame;
    pen.lineWidth = chosen ? 2.5 : 1;
    pen.beginPath();
    pen.roundRect(x, y, w, h, Math.min(8, view.unit * 0.15));
    pen.globalAlpha = 0.55;
    pen.fill();
    pen.globalAlpha = 1;
    pen.stroke();
    const size_ = clamp(view.unit * 0.3, 9, 13);
    if (view.unit < NAMES) continue;
    pen.fillStyle = palette.dim;
    pen.textAlign = "left";
    pen.font = `600 ${size_}px ${SANS}`;
    // The title stays in sight while its frame is.
    const at = clamp(y + view.unit * 0.22 + size_ / 2, Math.min(14, y + h - 4), y + h);
    pen.fillText(shortened(`▾ ${g.texts[g.groups.name[i]]}`, w - 12, size_), Math.max(x + 7, 6), at);
  }
}

function paintEdges(pane, pen, first, last) {
  const { graph: g, scene, view } = pane;
  const seen = new Set(scene.far);
  for (let at = Math.floor(first / BUCKET); at <= Math.floor(last / BUCKET); at++) for (const edge of scene.buckets[at] ?? []) seen.add(edge);
  for (const edge of seen) {
    const [from, to] = [g.edges.from[edge], g.edges.to[edge]];
    if (g.nodes.rank[from] >= last + g.ranks || g.nodes.rank[to] < first) continue;
    const [a, b] = [scene.item[from], scene.item[to]];
    const touched = view.selected !== null && (a === view.selected || b === view.selected);
    const marked = scene.marks.has(edge);
    pen.lineWidth = touched ? 2 : 1.2;
    pen.strokeStyle = touched ? palette.chosen : marked ? palette.mark : palette.line;
    const end = paintEdge(pane, pen, edge, a, b);
    if (marked) paintMark(pane, pen, edge, end, b < g.count);
    if (view.unit >= TYPES && b < g.count) paintShape(pane, pen, edge, end);
  }
}

// From the lower side of one item to the upper of another, by the lanes of the layout; where it ends.
function paintEdge(pane, pen, edge, a, b) {
  const { graph: g, scene, view } = pane;
  const [source, reader] = [placeOf(g, scene, a), placeOf(g, scene, b)];
  const [ax, ay] = toScreen(pane, source.x, source.y + source.h / 2);
  const into = b < g.count ? g.edgesInto[b] : [];
  const place = into.length > 1 ? (into.indexOf(edge) + 1) / (into.length + 1) - 0.5 : 0;
  const [bx, by] = toScreen(pane, reader.x + place * reader.w * 0.8, reader.y - reader.h / 2);
  pen.beginPath();
  pen.moveTo(ax, ay);
  let [x, y] = [ax, ay];
  const first = g.nodes.rank[g.edges.from[edge]] + 1;
  const half = view.unit * 0.28;
  g.edges.bends[edge].forEach((column, i) => {
    const [top, bottom] = [scene.tops[first + i], scene.tops[first + i + 1]];
    if (bottom - top < 0.4) return;
    const [px, py] = toScreen(pane, acrossAt(scene.across, column + 0.5) * WIDE, (top + bottom) / 2);
    if (py - half <= y || py + half >= by) return; // inside a folded group
    bow(pen, x, y, px, py - half);
    pen.lineTo(px, py + half);
    [x, y] = [px, py + half];
  });
  bow(pen, x, y, bx, by);
  pen.stroke();
  return [bx, by];
}

function bow(pen, ax, ay, bx, by) {
  const half = (by - ay) / 2;
  pen.bezierCurveTo(ax, ay + half, bx, by - half, bx, by);
}

function paintMark({ graph: g, view }, pen, edge, [x, y], isOne) {
  const size = clamp(view.unit * 0.09, 2, 7);
  pen.fillStyle = palette.mark;
  pen.fillRect(x - size, y - 2.2 * size, 2 * size, 1.4 * size);
  if (view.unit < TYPES || !isOne || g.edgesInto[g.edges.to[edge]].length > 1) return;
  pen.font = `10px ${MONO}`;
  pen.textAlign = "left";
  pen.fillText(g.texts[g.rescales.kind[g.edges.rescale[edge]]], x + size + 4, y - size);
}

function paintShape({ graph: g, view }, pen, edge, [x, y]) {
  const value = g.valueOf(g.texts[g.ports.value[readerPort(g, edge)]]);
  const text = value === undefined ? "" : g.texts[g.values.shape[value]];
  const beside = g.edgesInto[g.edges.to[edge]].length;
  if (!text || (beside > 1 && text.length * 6 + 14 > (BOX.w * 0.8 * view.unit) / (beside + 1))) return;
  pen.font = `10px ${MONO}`;
  pen.textAlign = "right";
  pen.fillStyle = palette.dim;
  pen.fillText(text, x - 10, y - view.unit * 0.09);
}

function paintBoxes(pane, pen, first, last) {
  const { graph: g, scene, view, size } = pane;
  const paintItem = (item) => {
    const { x: wx, y: wy, w, h } = placeOf(g, scene, item);
    const [x, y] = toScreen(pane, wx, wy);
    const [wide, high] = [w * view.unit, h * view.unit];
    if (x + wide / 2 < 0 || x - wide / 2 > size.w || y + high / 2 < 0 || y - high / 2 > size.h) return;
    view.visible += item < g.count ? 1 : g.groups.last[item - g.count] - g.groups.first[item - g.count];
    const color = colorOf(pane, item);
    const chosen = item === view.selected;
    pen.fillStyle = color;
    pen.strokeStyle = chosen ? palette.chosen : palette.line;
    pen.lineWidth = chosen ? 3 : 1;
    pen.beginPath();
    pen.roundRect(x - wide / 2, y - high / 2, wide, high, Math.min(5, high / 4));
    pen.fill();
    if (item >= g.count) paintStripe(pane, pen, item, { x: x - wide / 2 + 4, y: y + high / 2 - Math.max(2, high * 0.14), wide: wide - 8, high: Math.max(3, high * 0.14) });
    if (view.unit >= NAMES || chosen) pen.stroke();
    if (isChanged(g, item)) paintNews(pen, x - wide / 2, y - high / 2, high / 3);
    if (view.unit >= NAMES) paintNames(pane, pen, item, { x, y, wide, high, ink: inkOn(color) });
  };
  for (let rank = first; rank < last; rank++) scene.shown[rank].forEach(paintItem);
  for (const i of scene.boxes) if (g.groups.rank[i] < last && g.groups.rank[i] + g.groups.ranks[i] > first) paintItem(g.count + i);
}

function isChanged(g, item) {
  return g.changed.size > 0 && (item < g.count ? g.changed.has(item) : nodesIn(g, item - g.count).some((node) => g.changed.has(node)));
}

function colorOf(pane, item) {
  const { graph: g, scale, groupColors } = pane;
  if (item < g.count) return scale && !g.isModel(item) ? rampAt(scale.share(scale.numbers[item])) : colorOfKind(g.kinds[g.nodes.kind[item]]);
  if (!groupColors.has(item)) {
    const kinds = nodesIn(g, item - g.count).map((node) => g.nodes.kind[node]);
    const often = starts(kinds, g.kinds.length);
    const most = g.kinds.map((_, kind) => kind).sort((a, b) => often[b + 1] - often[b] - often[a + 1] + often[a])[0];
    const color = scale ? rampAt(scale.share(Math.min(figureOf(g, item, mode), scale.most))) : colorOfKind(g.kinds[most]);
    groupColors.set(item, { color, shares: g.kinds.map((_, kind) => (often[kind + 1] - often[kind]) / kinds.length) });
  }
  return groupColors.get(item).color;
}

// On the lower side of a folded group: which storages are in it; float is seen however small its share is.
function paintStripe(pane, pen, item, { x, y, wide, high }) {
  colorOf(pane, item);
  if (pane.scale) return;
  const { shares } = pane.groupColors.get(item);
  const float = shares[pane.graph.kinds.indexOf("float")];
  const least = float ? Math.max(float, Math.min(0.5, LEAST_FLOAT / wide)) : 0;
  shares.forEach((share, kind) => {
    const part = wide * (pane.graph.kinds[kind] === "float" ? least : float < 1 ? (share * (1 - least)) / (1 - float) : 0);
    pen.fillStyle = colorOfKind(pane.graph.kinds[kind]);
    if (part) pen.fillRect(x, y, part, high);
    x += part;
  });
}

// A corner of its own colour on what another plan has otherwise.
function paintNews(pen, x, y, size) {
  pen.fillStyle = palette.news;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x + size, y);
  pen.lineTo(x, y + size);
  pen.fill();
}

function paintNames({ graph: g, view }, pen, item, { x, y, wide, high, ink }) {
  const types = view.unit >= TYPES;
  const { lines, size, up } = nameIn(g, item, { wide, high, unit: view.unit });
  pen.fillStyle = ink;
  pen.textAlign = "center";
  pen.font = `600 ${size}px ${SANS}`;
  lines.forEach((line, i) => pen.fillText(line, x, y - up * high + size * (0.36 + 1.08 * (i - (lines.length - 1) / 2))));
  if (item >= g.count) {
    const group = item - g.count;
    const inside = plural(g.groups.last[group] - g.groups.first[group], "kernel");
    pen.font = `${Math.min(11, size)}px ${SANS}`;
    if (up > 0.1) pen.fillText(shortened(inside, wide - 8, 11), x, y + high * 0.28);
    return;
  }
  if (!types) return;
  pen.font = `11px ${SANS}`;
  pen.fillText(shortened(g.texts[g.nodes.kernel[item]], wide - 8, 11, true), x, y + high * 0.1);
  const out = portsOf(g, item).find((port) => g.ports.out[port]) ?? portsOf(g, item)[0];
  if (out === undefined) return;
  pen.font = `9.5px ${MONO}`;
  pen.fillText(shortened(shortType(g.texts[g.ports.type[out]]), wide - 8, 10.5, true), x, y + high * 0.36);
}

// The name of an item as lines, how large they are, and how far above the middle of its box they stand.
function nameIn(g, item, { wide, high, unit }) {
  const preferred = clamp(unit * 0.3, LEAST_FONT, 13);
  if (item >= g.count) {
    const up = unit >= 40 ? 0.18 : 0.06;
    return { up, ...fitted(`▸ ${g.texts[g.groups.name[item - g.count]]}`, { wide: wide - 8, high: (up > 0.1 ? 0.5 : 0.8) * high, preferred, end: false }) };
  }
  const types = unit >= TYPES;
  const title = g.nameOf(item);
  const last = title.slice(title.lastIndexOf("/") + 1) || title;
  const isName = types || g.isModel(item);
  return { up: types ? 0.25 : 0, ...fitted(isName ? last : g.texts[g.nodes.kernel[item]], { wide: wide - 8, high: (types ? 0.36 : 1) * high, preferred, end: !isName }) };
}

// Whether all names are whole at a zoom; with very many boxes nobody looks.
function isRead({ graph: g, scene }, unit) {
  if (unit < NAMES + 3 || scene.items > MANY) return false;
  const items = [...scene.shown.flat(), ...scene.boxes.map((i) => g.count + i)];
  return items.every((item) => {
    const { w, h } = placeOf(g, scene, item);
    return !nameIn(g, item, { wide: w * unit, high: h * unit, unit }).cut;
  });
}

const MANY = 500;
const LEAST_FONT = 8.5;
const BREAKS = /(?<=[_/.:\- ])|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/;
let fits = new Map(); // of the last zoom, what `fitted` found

// A name in as few lines as it takes, in the largest letters that it fits in; where it fits in none, its end is cut off
// (`end`), or the start, where the end tells names apart.
function fitted(text, { wide, high, preferred, end }) {
  const key = `${text}\n${Math.round(wide)} ${Math.round(high)}`;
  const known = fits.get(key);
  if (known) return known;
  let found = null;
  for (let size = preferred; !found && size > LEAST_FONT - 1; size -= 1) {
    const at = Math.max(size, LEAST_FONT);
    const lines = wrapped(text, Math.floor(wide / (at * LETTER)));
    if (lines && lines.length * at * 1.08 <= high + 1) found = { lines, size: at };
  }
  found ??= { lines: [shortened(text, wide, LEAST_FONT, end)], size: LEAST_FONT, cut: true };
  if (fits.size > 4000) fits = new Map();
  fits.set(key, found);
  return found;
}

// Lines of at most so many letters, broken between words; null where a word is longer.
function wrapped(text, letters) {
  const lines = [""];
  for (const word of text.split(BREAKS)) {
    if (word.length > letters) return null;
    if (lines.at(-1).length + word.length <= letters) lines[lines.length - 1] += word;
    else lines.push(word);
  }
  return lines;
}

// By the width of an average letter: measuring each text would take most of a frame. Cut at the start unless `end` says so.
function shortened(text, wide, size, end = false) {
  const letters = Math.floor(wide / (size * LETTER));
  if (text.length <= letters) return text;
  return letters < 2 ? "" : end ? `${text.slice(0, letters - 1)}…` : `…${text.slice(1 - letters)}`;
}
