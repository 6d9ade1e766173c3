// Elements, made of text: a name from a model or target can never become a tag.

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== false).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

// A button that cannot be pressed again while its work goes on; what goes wrong is said.
export function button(text, work, attributes = {}) {
  const made = make("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", async () => {
    made.disabled = true;
    await attempt(work);
    made.disabled = false;
  });
  return made;
}

export async function attempt(work) {
  try { return await work(); } catch (error) { say(error.message); return undefined; }
}

export function say(text) {
  document.getElementById("said").textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { document.getElementById("said").textContent = ""; }, 9000);
}

export function table(label, heads, rows) {
  if (!rows.length) return make("p", { class: "quiet" }, "None yet.");
  const head = make("tr", {}, heads.map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map((cells) => (cells instanceof Node ? cells : make("tr", {}, cells.map((cell) => make("td", {}, cell)))));
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, make("table", {}, make("thead", {}, head), make("tbody", {}, body)));
}

export const link = (href, text) => make("a", { href }, text);
export const short = (digest) => digest.replace(/^sha256:/, "").slice(0, 10);
export const figure = (number) => Math.round(number).toLocaleString("en");
// The word of a quality: good, fair, poor, or that a quantized file has nothing to offer.
export const gradeText = (quality) => (quality.keep_float ? "keep the float model" : quality.grade);
export function bytes(number) {
  const unit = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => number >= least);
  return unit ? `${(number / unit[0]).toPrecision(3)} ${unit[1]}` : `${number} bytes`;
}

// Steps done of steps in all, and the time left as the job tells it.
export function stepsText({ done, total, left_s }) {
  if (!total) return `${done}`;
  const seconds = Math.ceil(left_s ?? 0);
  const left = left_s == null ? "" : seconds < 100 ? `, ${seconds} s left` : `, ${Math.ceil(seconds / 60)} min left`;
  return `${done} of ${total}${left}`;
}

export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
