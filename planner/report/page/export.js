// Beside the graph: the small map of the whole, and the graph as an SVG or PNG file.

const MAP = { w: 74, margin: 10 };
const MOST = 6000; // boxes of an SVG of the whole graph; of more the part in sight is written

// The whole graph as bars, and the part in sight.
function paintMap(pane) {
  const { map, graph: g, scene, view, size } = pane;
  if (!map) return;
  const whole = scene.high * view.unit <= size.h && scene.wide * view.unit <= size.w;
  map.hidden = whole || !g.count;
  if (map.hidden || !map.clientHeight) return;
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [MAP.w, map.clientHeight];
  if (map.width !== Math.round(w * ratio) || map.height !== Math.round(h * ratio) || !pane.mapped) {
    map.width = Math.round(w * ratio);
    map.height = Math.round(h * ratio);
    pane.mapped = null;
  }
  const pen = map.getContext("2d");
  pane.mapped ??= mapOf(pane, pen, ratio, w, h);
  pen.putImageData(pane.mapped, 0, 0);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const [top, bottom] = [toWorld(pane, 0, 0)[1], toWorld(pane, 0, size.h)[1]].map((y) => (clamp(y, 0, scene.high) / scene.high) * h);
  pen.strokeStyle = palette.chosen;
  pen.lineWidth = 2;
  pen.strokeRect(2, top + 1, w - 4, Math.max(3, bottom - top - 2));
}

function mapOf(pane, pen, ratio, w, h) {
  const { graph: g, scene } = pane;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = palette.paper;
  pen.fillRect(0, 0, w, h);
  const row = Math.max(1, Math.min(8, h / Math.max(1, scene.high)));
  for (let y = 0; y < h; y += row) {
    const a = rankAt(scene.tops, (y / h) * scene.high + 1e-6);
    const b = Math.min(g.ranks, Math.max(a + 1, rankAt(scene.tops, ((y + row) / h) * scene.high + 1e-6)));
    barOf(pane, pen, a, b, { x: MAP.margin, y, wide: w - 2 * MAP.margin - 8, high: row > 3 ? row - 1 : row + 0.5 });
    for (const [sums, color, x] of [[pane.bars.marks, palette.mark, w - 15], [pane.bars.news, palette.news, w - 9]]) {
      if (sums[b] <= sums[a]) continue;
      pen.fillStyle = color;
      pen.fillRect(x, y, 4, Math.max(1, row - 1));
    }
  }
  return pen.getImageData(0, 0, Math.round(w * ratio), Math.round(h * ratio));
}

// A pen that writes SVG: the part of a canvas's pen that `draw.js` uses.
class SvgPen {
  constructor() {
    this.parts = [];
    this.path = "";
    this.globalAlpha = 1;
  }
  beginPath() { this.path = ""; }
  moveTo(x, y) { this.path += `M${short(x)} ${short(y)}`; }
  lineTo(x, y) { this.path += `L${short(x)} ${short(y)}`; }
  bezierCurveTo(...at) { this.path += `C${at.map(short).join(" ")}`; }
  roundRect(x, y, w, h, r) {
    this.path += `M${short(x + r)} ${short(y)}h${short(w - 2 * r)}a${short(r)} ${short(r)} 0 0 1 ${short(r)} ${short(r)}v${short(h - 2 * r)}a${short(r)} ${short(r)} 0 0 1 ${short(-r)} ${short(r)}h${short(2 * r - w)}a${short(r)} ${short(r)} 0 0 1 ${short(-r)} ${short(-r)}v${short(2 * r - h)}a${short(r)} ${short(r)} 0 0 1 ${short(r)} ${short(-r)}z`;
  }
  fill() { this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}"${this.alpha()}/>`); }
  stroke() { this.parts.push(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"/>`); }
  fillRect(x, y, w, h) { this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" fill="${this.fillStyle}"${this.alpha()}/>`); }
  fillText(text, x, y) {
    const [, weight = "400", size, family] = /^(?:(\d+) )?([\d.]+)px (.*)$/.exec(this.font);
    const anchor = { left: "start", right: "end", center: "middle" }[this.textAlign] ?? "start";
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" fill="${this.fillStyle}" font-size="${size}" font-weight="${weight}" font-family="${family}" text-anchor="${anchor}">${escaped(text)}</text>`);
  }
  alpha() { return this.globalAlpha < 1 ? ` fill-opacity="${this.globalAlpha}"` : ""; }
}

const short = (x) => Number(x.toFixed(1));
const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[^\t\n\x20-\ud7ff\ue000-\ufffd]/g, "\ufffd");

// The graph as it is folded and coloured, whole where it has not too many boxes.
function svgOf(pane) {
  const { graph: g, scene, view, size } = pane;
  const whole = scene.items <= MOST;
  const part = whole
    ? { size: { w: scene.wide * 80 + 40, h: scene.high * 80 + 40 }, view: { ...view, unit: 80, x: scene.wide / 2, y: scene.high / 2 } }
    : { size, view: { ...view } };
  const pen = new SvgPen();
  paintScene({ ...pane, ...part }, pen);
  const title = `${data.page.model} on ${data.page.target}`;
  return `<svg xmlns="${document.querySelector("svg").namespaceURI}" viewBox="0 0 ${short(part.size.w)} ${short(part.size.h)}" width="${short(part.size.w)}" height="${short(part.size.h)}"><title>${escaped(title)}</title>${pen.parts.join("")}</svg>`;
}

function save(blob, name) {
  const link = make("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const fileName = (end) => `${data.page.model.replace(/[^\w.-]+/g, "_").slice(0, 60) || "plan"}${end}`;
const saveSvg = (pane) => save(new Blob([svgOf(pane)], { type: "image/svg+xml" }), fileName(".svg"));
const savePng = (pane) => pane.canvas.toBlob((blob) => save(blob, fileName(".png")));
