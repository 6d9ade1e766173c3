// The start of the page: panes, the bar above them, light and dark; last of the script's files.

const stage = document.getElementById("view-stage");
const main = paneOf(document.getElementById("view-canvas"), graphOf(data));
main.map = document.getElementById("view-map");
if (data.before) {
  const twin = document.getElementById("view-before");
  panes.push(Object.assign(paneOf(twin, graphOf(data.before)), { isBefore: true, map: document.getElementById("view-before-map") }));
  panes[0].graph.changed = new Set(panes[0].graph.nodes.name.flatMap((_, node) => {
    const after = main.graph.nodeOf(panes[0].graph.nameOf(node));
    return !panes[0].graph.isModel(node) && (after === undefined || main.graph.changed.has(after)) ? [node] : [];
  }));
}
panes.push(main);
active = main;
window.__view = main.view;

function dress() {
  dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  palette = dark ? COLORS.dark : COLORS.light;
  for (const pane of panes) {
    recolor(pane);
    refresh(pane);
  }
  legend(main);
}

function colorBy(name) {
  mode = name;
  dress();
}

const ACTIONS = {
  in: () => zoom(active, 1.25), out: () => zoom(active, 0.8), whole: fitAll, fold: () => foldAll(true), unfold: () => foldAll(false),
  svg: () => saveSvg(active), png: () => savePng(active),
};
document.querySelectorAll("#view-bar [data-do]").forEach((each) => each.addEventListener("click", ACTIONS[each.dataset.do]));
document.querySelectorAll("#view-bar [data-groups]").forEach((each) => { each.hidden = !data.groups.name.length; });
const picker = document.getElementById("view-color");
for (const [name, { title }] of Object.entries(MODES)) {
  if (name !== "share" || data.nodes.share.some((share) => share !== null)) picker.append(Object.assign(make("option", title), { value: name }));
}
picker.addEventListener("change", () => colorBy(picker.value));
const both = document.getElementById("view-both");
both.hidden = !data.before;
function standBeside(is) {
  stage.classList.toggle("two", is);
  both.setAttribute("aria-pressed", String(is));
  requestAnimationFrame(() => panes.forEach(openAt));
}
// Two plans stand side by side where there is room, until the reader chooses. A frame's script may run before the frame
// has its size, so the width is listened to rather than asked once.
const roomy = window.matchMedia("(min-width: 900px)");
const follow = () => standBeside(roomy.matches);
both.addEventListener("click", () => {
  roomy.removeEventListener("change", follow);
  standBeside(!stage.classList.contains("two"));
});

document.getElementById("view").hidden = false;
both.setAttribute("aria-pressed", String(data.before && roomy.matches));
if (data.before) {
  roomy.addEventListener("change", follow);
  stage.classList.toggle("two", roomy.matches);
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dress);
panes.forEach(listen);
panes.forEach(listenMap);
dress();
panes.forEach(openAt);
select(null, { told: false });
fromLink();
window.addEventListener("hashchange", fromLink);
