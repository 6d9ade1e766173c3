// Targets: the list, and the editor of a description: lint as one types, words of the schema, its tests.

import { ask, get } from "./api.js";
import { offersAt } from "./complete.js";
import { button, link, make, say, table } from "./dom.js";

const PAUSE = 400;
const MOST = 24; // words that are offered
const YAML = { "Content-Type": "application/yaml" };

export async function targetsPage(main, { may }) {
  const targets = await get("/v1/targets");
  main.append(make("p", { class: "quiet" }, "A target describes a device: its kernels, and the types that each takes. Open one to read it, or to make a target of your own from it."));
  main.append(table("targets", ["target", "version", "device", "mode", "actions"], targets.map((one) => {
    const name = `${one.id}@${one.version}`, path = encodeURIComponent(name);
    const remove = async () => { await ask("DELETE", `/v1/targets/${path}`, undefined, { "If-Match": `"${one.digest}"` }); location.reload(); };
    return [link(`/targets/${path}`, one.id), one.version, one.title, one.mode, one.shipped ? "built in" : may("write") && button("delete", remove, { "aria-label": `delete ${name}` })];
  })));
}

export async function targetPage(main, { may }, name) {
  main.querySelector("h1").textContent = name;
  const [text, schema] = await Promise.all([ask("GET", `/v1/targets/${encodeURIComponent(name)}/source`).then((answer) => answer.text()), get("/v1/schemas/target")]);
  const lines = make("div", { class: "lines", "aria-hidden": "true" });
  const area = make("textarea", { id: "yaml", spellcheck: "false", autocapitalize: "off", "aria-label": "description of the target, YAML", readonly: !may("plan") });
  area.value = text;
  const found = make("div", { role: "status" });
  const fits = make("ul", { class: "fits", "aria-label": "completions at the caret" });
  const tests = make("div", { role: "status" });
  const caret = make("span"), state = make("span", {}, "saved");
  let marks = new Map(); // classes of lines that problems are on
  const draw = () => {
    lines.replaceChildren(...area.value.split("\n").map((line, i) => make("div", { class: marks.get(i + 1) ?? null }, line)));
    lines.scrollTop = area.scrollTop;
  };
  const place = () => {
    const before = area.value.slice(0, area.selectionStart).split("\n");
    caret.textContent = `Line ${before.length}, column ${before.at(-1).length + 1}`;
  };
  let timer, turn = 0;
  const lint = async () => {
    const mine = ++turn;
    const report = await ask("POST", "/v1/targets:lint", area.value, YAML).then((answer) => answer.json(), (error) => error.document ?? { detail: error.message });
    if (mine !== turn) return;
    const errors = report.errors ?? (report.detail ? [{ message: report.detail }] : []);
    const warnings = report.findings ?? [];
    marks = new Map([...warnings.map((one) => [one.line, "odd"]), ...errors.map((one) => [one.line, "bad"])]);
    draw();
    const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
    const said = errors.length ? many(errors.length, "error") : warnings.length ? `Valid, with ${many(warnings.length, "warning")}` : "No problems";
    found.replaceChildren(make("p", { class: errors.length ? "bad" : "good" }, said),
      make("ul", {}, [...errors, ...warnings].map((one) => make("li", {}, one.line ? button(`${one.line}:${one.column ?? 1}`, () => go(area, one.line, one.column ?? 1)) : "", ` ${one.message}`))));
  };
  // What the schema has at the caret, narrowed by what is typed; Ctrl+Space leads there, Escape back. Buttons that
  // still hold stay: one of them may have the focus.
  let shown;
  const offer = () => {
    const { word, offers } = offersAt(schema, area.value, area.selectionStart);
    const fresh = JSON.stringify([word, offers]);
    if (fresh === shown) return;
    shown = fresh;
    const insert = (one) => {
      const at = area.selectionStart;
      area.setRangeText(one.text, at - word.length, at, "end");
      area.focus();
      area.dispatchEvent(new Event("input"));
    };
    fits.replaceChildren(...offers.slice(0, MOST).map((one) => make("li", {}, make("button", { type: "button", title: one.told || null, onclick: () => insert(one) }, one.name))));
    if (!offers.length) fits.append(make("li", { class: "quiet" }, "No completions"));
    else if (offers.length > MOST) fits.append(make("li", { class: "quiet" }, `and ${offers.length - MOST} more`));
  };
  const put = async () => {
    const report = await (await ask("POST", "/v1/targets:lint", area.value, YAML)).json();
    const whole = `${report.id}@${report.version}`;
    await ask("PUT", `/v1/targets/${encodeURIComponent(whole)}`, area.value, YAML);
    say(`Saved as ${whole}.`);
    state.textContent = "saved";
    history.replaceState(null, "", `/targets/${encodeURIComponent(whole)}`);
    main.querySelector("h1").textContent = whole;
  };
  const save = may("write") && button("Save as a version", put, { class: "main", title: "Ctrl+S" });
  if (may("plan")) {
    for (const name of ["input", "click", "keyup"]) area.addEventListener(name, once(offer));
    area.addEventListener("keydown", (event) => {
      if (!event.ctrlKey) return;
      if (event.key === " ") {
        event.preventDefault();
        offer(); // what was typed in this frame counts too
        const buttons = fits.querySelectorAll("button");
        if (buttons.length === 1) buttons[0].click();
        else buttons[0]?.focus();
      } else if (event.key === "s" && save) {
        event.preventDefault();
        save.click();
      }
    });
    fits.addEventListener("keydown", (event) => { if (event.key === "Escape") area.focus(); });
  }
  area.addEventListener("input", once(() => { state.textContent = "not saved"; draw(); clearTimeout(timer); timer = setTimeout(lint, PAUSE); }));
  for (const name of ["input", "click", "keyup", "focus"]) area.addEventListener(name, once(place));
  area.addEventListener("scroll", () => { lines.scrollTop = area.scrollTop; });
  const test = async () => {
    tests.textContent = "Running";
    try {
      const report = await (await ask("POST", "/v1/targets:test", area.value, YAML)).json();
      const failed = report.tests.filter((one) => !one.ok);
      tests.replaceChildren(make("p", { class: report.ok ? "good" : "bad" }, `${report.tests.length} tests, ${failed.length} failed`),
        make("ul", {}, failed.map((one) => make("li", {}, `${one.name}${one.problems.map((problem) => `; ${problem}`).join("")}`))));
    } catch (error) { tests.textContent = error.message; }
  };
  main.append(
    make("p", { class: "quiet" }, "To describe a device of your own, change the id, edit the kernels, and save. Problems are shown as you type."),
    make("div", { class: "row" }, save, may("plan") && button("Run tests", test)),
    make("div", { class: "beside" }, make("div", {}, make("div", { class: "editor" }, lines, area), make("p", { class: "editor-bar" }, caret, state)),
      make("div", {}, make("h2", {}, "Problems"), found, may("plan") && [make("h2", {}, "Completions ", make("span", { class: "quiet" }, "Ctrl+Space")), fits], make("h2", {}, "Tests"), tests)),
  );
  area.setSelectionRange(0, 0);
  draw();
  place();
  if (may("plan")) offer();
  if (may("plan")) await lint();
}

// A frame's work, once however many events ask for it: Chromium sends one for each line that is put in.
function once(work) {
  let isAsked = false;
  return () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => { isAsked = false; work(); });
  };
}

function go(area, line, column) {
  const at = area.value.split("\n").slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
  area.focus();
  area.setSelectionRange(at, at);
  // A selection alone does not scroll: the line's own box says where it is.
  area.scrollTop = area.previousElementSibling.children[line - 1].offsetTop - area.clientHeight / 3;
  area.dispatchEvent(new Event("click"));
}
