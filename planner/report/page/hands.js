// Hands: search, pointer, wheel and keys; and the start of the page.
// Last of the script's three files, after `draw.js` and `panel.js`.

// ---- find ---------------------------------------------------------------------------------------------------

const box = document.getElementById("view-find");
const hits = document.getElementById("view-hits");

function find() {
  const wanted = box.value.trim().toLowerCase();
  hits.replaceChildren();
  if (!wanted) return;
  let found = 0;
  for (let node = 0; node < count && found < 30; node++) {
    const words = [nameOf(node), texts[nodes.kernel[node]], ...portsOf(node).filter((port) => ports.out[port]).map((port) => texts[ports.value[port]])];
    const hit = words.find((word) => word.toLowerCase().includes(wanted));
    if (hit === undefined) continue;
    found += 1;
    hits.append(make("li", "", button(nameOf(node), () => { hits.replaceChildren(); goTo(node); canvas.focus(); }), ` ${hit === nameOf(node) ? texts[nodes.kernel[node]] : hit}`));
  }
  if (!found) hits.append(make("li", "no kernel or value has that in its name"));
}

box.addEventListener("input", find);
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter") hits.querySelector("button")?.click();
  if (event.key === "Escape") { box.value = ""; find(); canvas.focus(); }
});

// ---- hands --------------------------------------------------------------------------------------------------

let held = null;

canvas.addEventListener("pointerdown", (event) => {
  held = { x: event.clientX, y: event.clientY, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!held) return;
  const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
  if (!held.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
  held = { x: event.clientX, y: event.clientY, moved: true };
  view.x -= dx / view.unit;
  view.y -= dy / view.unit;
  refresh();
});
canvas.addEventListener("pointerup", (event) => {
  const clicked = held && !held.moved;
  held = null;
  if (!clicked) return;
  const at = canvas.getBoundingClientRect();
  const [x, y] = toWorld(event.clientX - at.left, event.clientY - at.top);
  if (view.level === "bars") zoom(3 * FAR / view.unit, event.clientX - at.left, event.clientY - at.top);
  else select(nodeAt(x, y));
});
canvas.addEventListener("pointercancel", () => { held = null; });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const at = canvas.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.clientX - at.left, event.clientY - at.top);
}, { passive: false });

function nodeAt(x, y) {
  for (const node of byRank[Math.floor(y)] ?? []) {
    const [cx, cy] = centre(node);
    if (Math.abs(x - cx) <= BOX.w / 2 && Math.abs(y - cy) <= BOX.h / 2) return node;
  }
  return null;
}

function zoom(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
  const [x, y] = toWorld(px, py);
  view.unit = clamp(view.unit * factor, LIMITS[0], LIMITS[1]);
  const [nx, ny] = toWorld(px, py);
  view.x += x - nx;
  view.y += y - ny;
  refresh();
}

function step(by) {
  const next = view.selected === null ? (by > 0 ? 0 : count - 1) : clamp(view.selected + by, 0, count - 1);
  if (count) goTo(next);
}

function nextRescale() {
  const last = rescales.id.findIndex((id) => texts[id] === view.address);
  for (let i = 1; i <= rescales.id.length; i++) {
    const rescale = (last + i) % rescales.id.length;
    if (edges.rescale.includes(rescale)) return openRescale(rescale);
  }
}

function nextDifference() {
  const order = [...changed].sort((a, b) => a - b);
  if (order.length) goTo(order.find((node) => view.selected === null || node > view.selected) ?? order[0]);
}

const pan = (dx, dy) => () => { view.x += (dx * 80) / view.unit; view.y += (dy * 80) / view.unit; refresh(); };
const KEYS = {
  ArrowLeft: pan(-1, 0), ArrowRight: pan(1, 0), ArrowUp: pan(0, -1), ArrowDown: pan(0, 1),
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), "0": fit,
  j: () => step(1), k: () => step(-1), r: nextRescale, d: nextDifference, f: () => box.focus(), "/": () => box.focus(),
  Escape: () => select(null),
};
canvas.addEventListener("keydown", (event) => {
  const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

// Rows of the tables below, which are read after this, lead here.
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-kernel]").forEach((row) => {
  const node = nodeOf(row.dataset.kernel);
  if (node === undefined) return;
  row.append(" ", button("show", () => { goTo(node); canvas.scrollIntoView({ block: "nearest" }); canvas.focus(); }));
}));

// ---- start --------------------------------------------------------------------------------------------------

const night = window.matchMedia("(prefers-color-scheme: dark)");
function dress() {
  dark = night.matches;
  palette = dark ? COLORS.dark : COLORS.light;
  select(view.selected);
}
night.addEventListener("change", dress);
new ResizeObserver(refresh).observe(canvas);
document.getElementById("view").hidden = false;
dress();
fit();
