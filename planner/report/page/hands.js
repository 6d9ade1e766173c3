// Hands: choice, search, pointer, touch, wheel and keys; two panes move as one.

const panes = [];
const box = document.getElementById("view-find");
const hits = document.getElementById("view-hits");

// ---- choice -------------------------------------------------------------------------------------------------

function itemName(g, item) {
  if (item >= g.count) return pathOf(g, item - g.count);
  return g.isModel(item) ? addressOf(g, g.firstPort[item]) : g.nameOf(item);
}

function itemNamed(g, name) {
  const node = g.nodeOf(name);
  if (node !== undefined) return node;
  for (let i = 0; i < g.groups.name.length; i++) if (pathOf(g, i) === name) return g.count + i;
  for (let at = 0; at < g.count; at++) if (g.isModel(at) && (itemName(g, at) === name || g.nameOf(at) === name)) return at;
  return null;
}

function select(item, { told = true } = {}) {
  const { graph: g, view } = active;
  view.selected = item;
  view.address = item === null ? "" : itemName(g, item);
  panel.replaceChildren(...(item === null ? overview() : item >= g.count ? ofGroup(g, item - g.count) : ofNode(g, item)));
  side.scrollTop = 0;
  for (const pane of panes) {
    if (pane !== active) {
      const twin = item === null ? null : itemNamed(pane.graph, view.address);
      Object.assign(pane.view, { selected: twin, address: twin === null ? "" : view.address });
      if (twin !== null) moveTo(pane, twin);
    }
    refresh(pane);
  }
  if (!told) return;
  keepLink(view.address);
  tell("qplan:select", { name: view.address });
}

let link = ""; // as we left it
// The page's address leads to what is chosen; no step of the browser's history for each. In a frame the host keeps it:
// a frame without an address of its own would go to its host's.
function keepLink(name) {
  if (window.parent !== window) return;
  link = name ? `#kernel=${encodeURIComponent(name)}` : "#";
  if (link !== (location.hash || "#")) location.replace(link);
}

function selectNamed(name) {
  active = panes.at(-1);
  const item = name ? itemNamed(active.graph, name) : null;
  if (item === null) select(null);
  else goTo(item);
}

function fromLink() {
  const found = /^#kernel=(.+)$/.exec(location.hash);
  if (!found || location.hash === link) return;
  let name = found[1];
  try { name = decodeURIComponent(name); } catch { /* not ours: a name as it is */ }
  selectNamed(name);
}

// An item comes into sight: groups around it are opened.
function moveTo(pane, item) {
  const { graph: g, folded } = pane;
  let around = item < g.count ? g.home[item] : g.groups.parent[item - g.count];
  let changed = false;
  for (; around >= 0; around = g.groups.parent[around]) changed = folded.delete(around) || changed;
  if (changed) reshape(pane);
  const { x, y } = placeOf(g, pane.scene, item);
  Object.assign(pane.view, { x, y, unit: Math.max(pane.view.unit, item < g.count ? TYPES + 2 : NAMES + 20) });
  refresh(pane);
}

function goTo(item, { keep = false } = {}) {
  moveTo(active, item);
  if (!keep) select(item);
}

// The box of a group stays where it was on the screen.
function toggle(pane, group, wanted = !pane.folded.has(group)) {
  const item = pane.graph.count + group;
  for (const each of panes) {
    const twin = each === pane ? item : itemNamed(each.graph, pathOf(pane.graph, group));
    if (twin === null || twin < each.graph.count) continue;
    const top = () => each.scene.tops[each.graph.groups.rank[twin - each.graph.count]];
    const before = top();
    if (wanted) each.folded.add(twin - each.graph.count);
    else each.folded.delete(twin - each.graph.count);
    reshape(each);
    each.view.y += top() - before;
    refresh(each);
  }
  active = pane;
  select(item);
}

function foldAll(wanted) {
  for (const pane of panes) {
    pane.folded = wanted ? new Set(pane.graph.groups.name.keys()) : new Set();
    reshape(pane);
  }
  fitAll();
}

// ---- find ---------------------------------------------------------------------------------------------------

function find() {
  const wanted = box.value.trim().toLowerCase();
  hits.replaceChildren();
  if (!wanted) return;
  active = panes.at(-1);
  const { graph: g } = active;
  let found = 0;
  for (let node = 0; node < g.count && found < 30; node++) {
    const words = [g.nameOf(node), g.texts[g.nodes.kernel[node]], ...portsOf(g, node).filter((port) => g.ports.out[port]).map((port) => g.texts[g.ports.value[port]])];
    const hit = words.find((word) => word.toLowerCase().includes(wanted));
    if (hit === undefined) continue;
    found += 1;
    hits.append(make("li", "", button(g.nameOf(node), () => { hits.replaceChildren(); goTo(node); active.canvas.focus(); }), ` ${hit === g.nameOf(node) ? g.texts[g.nodes.kernel[node]] : hit}`));
  }
  if (!found) hits.append(make("li", "no kernel or value has that in its name"));
}

box.addEventListener("input", find);
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter") hits.querySelector("button")?.click();
  if (event.key === "Escape") { box.value = ""; find(); active.canvas.focus(); }
});

// ---- places -------------------------------------------------------------------------------------------------

function fit(pane) {
  const { canvas: { clientWidth: w, clientHeight: h }, graph: g, scene, view } = pane;
  view.x = scene.wide / 2;
  view.y = scene.high / 2;
  view.unit = clamp(Math.min((w - 30) / scene.wide, (h - 20) / Math.max(scene.high, 1)), LIMITS[0], 52);
  refresh(pane);
}

const fitAll = () => panes.forEach(fit);

const OPENINGS = [32, 38, 44, 52, 60]; // pixels a rank

// Whole where its names are whole then, else its beginning with whole names: the small map has the rest.
function openAt(pane) {
  fit(pane);
  const { view, canvas, scene } = pane;
  if (!pane.graph.count || isRead(pane, view.unit)) return;
  view.unit = OPENINGS.find((unit) => isRead(pane, unit)) ?? 44;
  view.y = canvas.clientHeight / 2 / view.unit - 0.4;
  const [node] = scene.shown.find((row) => row.length) ?? [0];
  if (pane.scene.wide * view.unit > canvas.clientWidth) view.x = placeOf(pane.graph, scene, node).x;
}

function zoom(pane, factor, px = pane.size.w / 2, py = pane.size.h / 2) {
  for (const each of panes) {
    const { view } = each;
    const [x, y] = toWorld(each, px, py);
    view.unit = clamp(view.unit * factor, LIMITS[0], LIMITS[1]);
    const [nx, ny] = toWorld(each, px, py);
    view.x += x - nx;
    view.y += y - ny;
    refresh(each);
  }
}

function pan(dx, dy) {
  for (const { view } of panes) {
    view.x += dx / view.unit;
    view.y += dy / view.unit;
  }
  panes.forEach(refresh);
}

function itemAt(pane, x, y) {
  const { graph: g, scene } = pane;
  const isIn = (item) => {
    const place = placeOf(g, scene, item);
    return Math.abs(x - place.x) <= place.w / 2 && Math.abs(y - place.y) <= place.h / 2;
  };
  const rank = rankAt(scene.tops, y);
  const node = (scene.shown[rank] ?? []).find(isIn);
  if (node !== undefined) return node;
  const folded = scene.boxes.find((i) => isIn(g.count + i));
  if (folded !== undefined) return g.count + folded;
  const titled_ = scene.frames.findLast((i) => {
    const frame = frameOf(g, scene, i);
    return x >= frame.x && x <= frame.x + frame.w && y >= frame.y && y <= frame.y + TITLE;
  });
  return titled_ === undefined ? null : g.count + titled_;
}

// ---- pointers -----------------------------------------------------------------------------------------------

function listen(pane) {
  const { canvas } = pane;
  const held = new Map(); // pointers that are down: where, and whether one has moved
  let moved = false;
  const place = (event) => {
    const at = canvas.getBoundingClientRect();
    return [event.clientX - at.left, event.clientY - at.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    active = pane;
    if (!held.size) moved = false;
    held.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return;
    const [before, now] = [held.get(event.pointerId), place(event)];
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    if (!moved && Math.abs(dx) + Math.abs(dy) < 4) return;
    moved = true;
    const other = [...held].find(([id]) => id !== event.pointerId)?.[1];
    held.set(event.pointerId, now);
    if (!other) return pan(-dx, -dy);
    const away = ([x, y]) => Math.max(10, Math.hypot(x - other[0], y - other[1]));
    zoom(pane, away(now) / away(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
  });
  canvas.addEventListener("pointerup", (event) => {
    const clicked = held.delete(event.pointerId) && !moved && !held.size;
    if (!clicked) return;
    const [px, py] = place(event);
    if (pane.view.level === "bars") zoom(pane, (3 * FAR) / pane.view.unit, px, py);
    else select(itemAt(pane, ...toWorld(pane, px, py)));
  });
  canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  canvas.addEventListener("dblclick", (event) => {
    const item = pane.view.level === "bars" ? null : itemAt(pane, ...toWorld(pane, ...place(event)));
    if (item !== null && item >= pane.graph.count) toggle(pane, item - pane.graph.count);
  });
  canvas.addEventListener("wheel", (event) => {
    // Whoever reads on scrolls past; a click takes hold of the graph.
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    const [x, y] = place(event);
    zoom(pane, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), x, y);
  }, { passive: false });
  canvas.addEventListener("focus", () => { active = pane; });
  canvas.addEventListener("keydown", (event) => onKey(pane, event));
  new ResizeObserver(() => refresh(pane)).observe(canvas);
}

function listenMap(pane) {
  const { map } = pane;
  const jump = (event) => {
    if (!event.buttons) return;
    const at = map.getBoundingClientRect();
    pan(0, ((event.clientY - at.top) / at.height * pane.scene.high - pane.view.y) * pane.view.unit);
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); jump(event); });
  map.addEventListener("pointermove", jump);
}

// ---- keys ---------------------------------------------------------------------------------------------------

function step(by) {
  const { graph: g, view } = active;
  const from = view.selected === null ? (by > 0 ? -1 : g.count) : view.selected < g.count ? view.selected : nodesIn(g, view.selected - g.count)[0];
  if (g.count) goTo(clamp(from + by, 0, g.count - 1));
}

function nextRescale() {
  const { graph: g, view } = active;
  const last = g.rescales.id.findIndex((id) => g.texts[id] === view.address);
  for (let i = 1; i <= g.rescales.id.length; i++) {
    const rescale = (last + i) % g.rescales.id.length;
    if (g.edges.rescale.includes(rescale)) return openRescale(rescale);
  }
}

function nextDifference() {
  active = panes.at(-1);
  const { graph: g, view } = active;
  const order = [...g.changed].sort((a, b) => a - b);
  if (order.length) goTo(order.find((node) => view.selected === null || node > view.selected) ?? order[0]);
}

// Along an edge, or to what stands beside; without a choice the view moves.
function along(down, right) {
  const { graph: g, view, scene } = active;
  if (view.selected === null) return pan(80 * right, 80 * down);
  const members = view.selected < g.count ? [view.selected] : nodesIn(g, view.selected - g.count);
  const here = placeOf(g, scene, view.selected);
  const near = new Set();
  if (down) {
    const ends = members.flatMap((node) => (down > 0 ? g.edgesOutOf[node].map((edge) => g.edges.to[edge]) : g.edgesInto[node].map((edge) => g.edges.from[edge])));
    for (const end of ends) near.add(scene.item[end]);
  } else {
    const rank = view.selected < g.count ? g.nodes.rank[view.selected] : g.groups.rank[view.selected - g.count];
    for (const node of scene.shown[rank]) near.add(node);
    for (const i of scene.boxes) if (g.groups.rank[i] <= rank && rank < g.groups.rank[i] + g.groups.ranks[i]) near.add(g.count + i);
  }
  near.delete(view.selected);
  const [best] = [...near]
    .map((item) => ({ item, at: placeOf(g, scene, item) }))
    .filter(({ at }) => (down ? true : (at.x - here.x) * right > 0))
    .sort((a, b) => Math.abs(a.at.x - here.x) + Math.abs(a.at.y - here.y) - Math.abs(b.at.x - here.x) - Math.abs(b.at.y - here.y));
  if (best) goTo(best.item);
}

// A group opens or closes; of a kernel the first port explains itself; without a choice the middle is chosen.
function enter() {
  const { graph: g, view, scene, size } = active;
  if (view.selected === null) {
    const found = itemAt(active, ...toWorld(active, size.w / 2, size.h / 2));
    const rank = Math.min(g.ranks - 1, rankAt(scene.tops, clamp(view.y, 0, scene.high)));
    if (g.count) goTo(found ?? scene.item[nearestNode(g, scene, rank)]);
  } else if (view.selected >= g.count) toggle(active, view.selected - g.count);
  else panel.querySelector("button")?.focus();
}

function nearestNode(g, scene, rank) {
  const row = scene.shown.slice(rank).find((nodes) => nodes.length) ?? [];
  return row[0] ?? 0;
}

const KEYS = {
  ArrowLeft: () => along(0, -1), ArrowRight: () => along(0, 1), ArrowUp: () => along(-1, 0), ArrowDown: () => along(1, 0),
  "+": () => zoom(active, 1.25), "=": () => zoom(active, 1.25), "-": () => zoom(active, 0.8), 0: fitAll, Enter: enter,
  j: () => step(1), k: () => step(-1), u: () => planPage.undo(), r: nextRescale, d: nextDifference, f: () => box.focus(), "/": () => box.focus(),
  Escape: () => select(null),
};
const SHIFTED = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80] };

function onKey(pane, event) {
  active = pane;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const moves = event.shiftKey ? SHIFTED[event.key] : undefined;
  const action = moves ? () => pan(...moves) : KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}
