// The scene: what of a graph is seen with some groups folded, and where. A folded group is one box, one rank high;
// ranks that only folded groups fill have no height, all else keeps its column. Places are `nested.py`'s.

const WIDE = 2.9; // a column in ranks
const BOX = { w: 2.5, h: 0.6 };
const TITLE = 0.5; // height of the rank that holds the title of an open group
const FEW = 32; // boxes that the page opens with, as groups permit
const ALIKE = 3; // groups of one name but for its number, from which on they stay folded: the layers of a model
const FREE = 0.12; // what is left of the width of columns that nothing stands in
const BUCKET = 64; // ranks of a bucket of edges

// An item is a node, or `count` + a group. Groups that are folded, or inside one, have `cover`, the outermost.
function sceneOf(g, folded) {
  const { nodes, groups, count, ranks } = g;
  const cover = new Int32Array(groups.name.length).fill(-1);
  groups.parent.forEach((parent, i) => {
    cover[i] = parent >= 0 && cover[parent] >= 0 ? cover[parent] : folded.has(i) ? i : -1;
  });
  const item = Int32Array.from(g.home, (home, node) => (home >= 0 && cover[home] >= 0 ? count + cover[home] : node));
  const heights = new Float64Array(ranks);
  const boxes = []; // folded
  const frames = []; // open
  for (let node = 0; node < count; node++) if (item[node] === node) heights[nodes.rank[node]] = 1;
  for (let i = 0; i < cover.length; i++) {
    if (cover[i] === i) boxes.push(i);
    else if (cover[i] < 0) {
      frames.push(i);
      heights[groups.rank[i]] = Math.max(heights[groups.rank[i]], TITLE);
    }
  }
  boxes.sort((a, b) => groups.rank[a] - groups.rank[b]);
  for (const i of boxes) {
    let sum = 0;
    for (let rank = groups.rank[i]; rank < groups.rank[i] + groups.ranks[i]; rank++) sum += heights[rank];
    if (sum < 1) heights[groups.rank[i]] += 1 - sum;
  }
  const tops = new Float64Array(ranks + 1);
  for (let rank = 0; rank < ranks; rank++) tops[rank + 1] = tops[rank] + heights[rank];
  const shown = rows([], ranks);
  for (let node = 0; node < count; node++) if (item[node] === node) shown[nodes.rank[node]].push(node);
  const across = acrossOf(g, { item, boxes });
  return { item, tops, boxes, frames, shown, across, wide: acrossAt(across, g.columns) * WIDE, high: tops[ranks], items: boxes.length + shown.reduce((sum, row) => sum + row.length, 0), ...edgesOf(g, item) };
}

// Where columns go: those that no box stands in, such as the wings of a folded group, are made narrow. Ends of
// stretches, as columns before and after.
function acrossOf(g, { item, boxes }) {
  const { nodes, groups, count } = g;
  if (!groups.name.length) return { from: [0, g.columns], to: [0, g.columns] };
  const taken = [];
  for (let node = 0; node < count; node++) if (item[node] === node) taken.push([nodes.column[node], nodes.column[node] + 1]);
  for (const i of boxes) {
    const [middle, half] = [groups.column[i] + groups.columns[i] / 2, Math.min(groups.columns[i], 1.5) / 2];
    taken.push([middle - half, middle + half]);
  }
  taken.sort((a, b) => a[0] - b[0]);
  const [from, to] = [[0], [0]];
  const add = (column, slope) => {
    const last = from.length - 1;
    if (column <= from[last]) return;
    to.push(to[last] + (column - from[last]) * slope);
    from.push(column);
  };
  for (const [left, right] of taken) {
    add(left, FREE);
    add(right, 1);
  }
  add(g.columns, FREE);
  return { from, to };
}

function acrossAt({ from, to }, column) {
  let [low, high] = [0, from.length - 1];
  if (!high || column <= 0) return column;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= column) low = middle;
    else high = middle;
  }
  return to[low] + ((column - from[low]) * (to[high] - to[low])) / (from[high] - from[low]);
}

// Edges between what is seen, one of those between the same two; by buckets of the ranks that they pass.
function edgesOf(g, item) {
  const { edges, nodes, count, ranks } = g;
  const buckets = rows([], Math.ceil(ranks / BUCKET) + 1);
  const far = [];
  const known = new Map(); // edges drawn for others, by their ends
  const marks = new Set(); // those drawn that have a rescale among them
  edges.from.forEach((from, edge) => {
    const [a, b] = [item[from], item[edges.to[edge]]];
    if (a === b) return;
    if (a >= count || b >= count) {
      const key = a * (count + g.groups.name.length) + b;
      if (edges.rescale[edge] >= 0) marks.add(known.get(key) ?? edge);
      if (known.has(key)) return;
      known.set(key, edge);
    } else if (edges.rescale[edge] >= 0) marks.add(edge);
    const [first, last] = [nodes.rank[from] / BUCKET, nodes.rank[edges.to[edge]] / BUCKET].map(Math.floor);
    if (last - first > 16) far.push(edge);
    else for (let at = first; at <= last; at++) buckets[at].push(edge);
  });
  return { buckets, far, marks };
}

// Groups folded so that at most a few boxes are seen: outer ones are opened first, in order.
function foldedAtFirst(g, few = FEW) {
  const { groups } = g;
  const folded = new Set(groups.name.keys());
  const members = groups.first.map((first, i) => groups.last[i] - first);
  const inside = (i) => g.inner[i + 1].length + members[i] - g.inner[i + 1].reduce((sum, inner) => sum + members[inner], 0);
  let seen = g.count - g.inner[0].reduce((sum, i) => sum + members[i] - 1, 0);
  const waiting = [...g.inner[0]];
  const stem = (i) => g.texts[groups.name[i]].replace(/\d+/g, "#");
  if (g.count <= few) return new Set();
  while (waiting.length) {
    const level = waiting.splice(0);
    const often = new Map();
    for (const i of level) often.set(stem(i), 1 + (often.get(stem(i)) ?? 0));
    for (const i of level.sort((a, b) => members[b] - members[a])) {
      if (often.get(stem(i)) >= ALIKE || seen + inside(i) - 1 > few) continue;
      folded.delete(i);
      seen += inside(i) - 1;
      waiting.push(...g.inner[i + 1]);
    }
  }
  return folded;
}

// The rank at a height.
function rankAt(tops, y) {
  let [low, high] = [0, tops.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tops[middle + 1] <= y) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Middle, width and height of an item.
function placeOf(g, scene, item) {
  if (item < g.count) {
    const rank = g.nodes.rank[item];
    return { x: acrossAt(scene.across, g.nodes.column[item] + 0.5) * WIDE, y: (scene.tops[rank] + scene.tops[rank + 1]) / 2, w: BOX.w, h: BOX.h };
  }
  const { rank, ranks, column, columns } = g.groups;
  const i = item - g.count;
  return {
    x: acrossAt(scene.across, column[i] + columns[i] / 2) * WIDE,
    y: (scene.tops[rank[i]] + scene.tops[rank[i] + ranks[i]]) / 2,
    w: Math.min(columns[i] * WIDE - 0.2, 1.5 * BOX.w),
    h: 0.7,
  };
}

// The rectangle of an open group.
function frameOf(g, scene, i) {
  const { rank, ranks, column, columns } = g.groups;
  let deep = 1;
  for (let at = g.groups.parent[i]; at >= 0; at = g.groups.parent[at]) deep += 1;
  const inset = Math.min(0.18, 0.03 * deep);
  const [top, bottom] = [scene.tops[rank[i]] + inset, scene.tops[rank[i] + ranks[i]] - inset];
  const [left, right] = [column[i], column[i] + columns[i]].map((at) => acrossAt(scene.across, at) * WIDE);
  return { x: left, y: top, w: right - left, h: bottom - top };
}
