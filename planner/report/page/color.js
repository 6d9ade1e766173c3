// Colours: of the page's light and dark dress, of storages, and of figures; the legend says what they mean.

const COLORS = {
  light: { paper: "#ffffff", ink: "#1b1f24", dim: "#57606a", line: "#98a2ae", soft: "#f3f5f8", frame: "#d3d9e0", mark: "#8a1fa0", chosen: "#1b4fd0", news: "#087f5b", float: "#da7a22", model: "#f6f8fa", ramp: ["#f2f4f7", "#f7c98b", "#b4520a", "#6e1f05"] },
  dark: { paper: "#14171a", ink: "#e6e9ec", dim: "#a4adb7", line: "#68727d", soft: "#1c2126", frame: "#3a424b", mark: "#e29bf0", chosen: "#8ab4ff", news: "#51cf90", float: "#e08a30", model: "#22272c", ramp: ["#262c33", "#6b4524", "#d07b2f", "#ffd9a8"] },
};
const STORED = { // by the most bits
  light: [[4, "#dccbf7", "#dccbf7"], [8, "#c5d5fa", "#bde4f1"], [16, "#bfe8d6", "#bfe8d6"], [64, "#d5e8bb", "#d5e8bb"]],
  dark: [[4, "#5d4788", "#5d4788"], [8, "#39548f", "#2c6076"], [16, "#2c6752", "#2c6752"], [64, "#4d6a2e", "#4d6a2e"]],
};
// What a box may be coloured by: its words, the figure of a node, how a group adds up, how far colours are apart.
const MODES = {
  storage: { title: "storage" },
  share: { title: "share of the noise", unit: "of the noise", add: "sum", log: false, text: (x) => `${(100 * x).toPrecision(3)}%` },
  lost: { title: "bits lost", unit: "bits", add: "max", log: false, text: (x) => x.toFixed(2) },
  macs: { title: "multiply-adds", unit: "multiply-adds", add: "sum", log: true, text: amount },
  work: { title: "work", unit: data.page?.work ?? "elements", add: "sum", log: true, text: amount },
};

let dark = false;
let palette = COLORS.light;
let mode = "storage";

function amount(x) {
  const step = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => x >= least);
  return step ? `${Number((x / step[0]).toPrecision(3))}${step[1]}` : `${Number(x.toPrecision(3))}`;
}

function colorOfKind(kind) {
  if (kind === "float" || kind === "model") return palette[kind];
  const bits = Number((/\d+/.exec(kind) || ["8"])[0]);
  const [, signed, not] = STORED[dark ? "dark" : "light"].find(([most]) => bits <= most) ?? STORED.light[3];
  return kind.startsWith("u") ? not : signed;
}

// The figures of all nodes under a mode as shares of the greatest, and what they are; null where there are none.
function scaleOf(g, name) {
  if (name === "storage") return null;
  const numbers = g.nodes[name];
  const most = numbers.reduce((top, number) => Math.max(top, number ?? 0), 0);
  const least = numbers.reduce((low, number) => (number ? Math.min(low, number) : low), most);
  const { log } = MODES[name];
  const share = (x) => {
    if (!x || !most) return 0;
    return log && most > least ? Math.min(1, 0.08 + (0.92 * Math.log(x / least)) / Math.log(most / least)) : Math.min(1, x / most);
  };
  return { numbers, most, least, share };
}

function figureOf(g, item, name) {
  if (item < g.count) return g.nodes[name][item] ?? 0;
  const found = nodesIn(g, item - g.count).map((node) => g.nodes[name][node] ?? 0);
  return MODES[name].add === "max" ? found.reduce((a, b) => Math.max(a, b), 0) : found.reduce((a, b) => a + b, 0);
}

function rampAt(share) {
  const at = share * (palette.ramp.length - 1);
  const i = Math.min(palette.ramp.length - 2, Math.floor(at));
  const [a, b] = [palette.ramp[i], palette.ramp[i + 1]].map((text) => [1, 3, 5].map((n) => parseInt(text.slice(n, n + 2), 16)));
  return `#${a.map((x, n) => Math.round(x + (b[n] - x) * (at - i)).toString(16).padStart(2, "0")).join("")}`;
}

// Black or white, whichever has more contrast with a colour (WCAG's relative luminance).
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map((n) => parseInt(color.slice(n, n + 2), 16) / 255).map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#15181c" : "#f5f7f9";
}

function legend(pane) {
  const { graph: g, scale } = pane;
  const list = document.getElementById("view-legend");
  const entry = (color, text) => {
    const patch = make("i");
    patch.style.background = color;
    return make("li", "", patch, text);
  };
  const found = [];
  if (!scale) {
    const amounts = starts(g.nodes.kind, g.kinds.length);
    const order = [...g.kinds.keys()].sort((a, b) => (g.kinds[b] === "float") - (g.kinds[a] === "float") || (g.kinds[a] === "model") - (g.kinds[b] === "model"));
    for (const i of order) {
      const [kind, many] = [g.kinds[i], amounts[i + 1] - amounts[i]];
      if (many) found.push(entry(colorOfKind(kind), `${kind === "model" ? "inputs and outputs" : kind} ${many.toLocaleString("en")}`));
    }
  } else if (scale.most) {
    const { text, unit, log } = MODES[mode];
    const low = log ? text(scale.least) : text(0);
    const ramp = make("i");
    ramp.className = "ramp";
    ramp.style.background = `linear-gradient(90deg, ${palette.ramp.join(",")})`;
    found.push(make("li", "", `${low} `, ramp, ` ${text(scale.most)} ${unit} a kernel`));
  } else found.push(make("li", `no kernel has any ${MODES[mode].unit}`));
  found.push(entry(palette.mark, `${g.rescales.id.length.toLocaleString("en")} rescales and casts`));
  if (g.changed.size) found.push(entry(palette.news, plural(g.changed.size, "changed kernel")));
  list.replaceChildren(...found);
}
