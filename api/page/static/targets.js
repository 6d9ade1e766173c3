// Targets: the list, and the editor of a description: lint as one types, words of the schema, its tests.

import { ask, get } from "./api.js";
import { offersAt } from "./complete.js";
import { button, link, make, say, table } from "./dom.js";

const PAUSE = 400;
const MOST = 24; // words that are offered
const YAML = { "Content-Type": "application/yaml" };

export async function targetsPage(main, { may }) {
  const targets = await get("/v1/targets");
  main.append(table("targets", ["target", "version", "what", "mode", "actions"], targets.map((one) => {
    const name = `${one.id}@${one.version}`, path = encodeURIComponent(name);
    const remove = async () => { await ask("DELETE", `/v1/targets/${path}`, undefined, { "If-Match": `"${one.digest}"` }); location.reload(); };
    return [link(`/targets/${path}`, one.id), one.version, one.title, one.mode, one.shipped ? "comes along" : may("write") && button("delete", remove, { "aria-label": `delete ${name}` })];
  })));
}

export async function targetPage(main, { may }, name) {
  main.querySelector("h1").textContent = name;
  const [text, schema] = await Promise.all([ask("GET", `/v1/targets/${encodeURIComponent(name)}/source`).then((answer) => answer.text()), get("/v1/schemas/target")]);
  const lines = make("pre", { "aria-hidden": "true" });
  const area = make("textarea", { id: "yaml", spellcheck: "false", autocapitalize: "off", "aria-label": "description of the target, YAML", readonly: !may("plan") });
  area.value = text;
  const found = make("div", { role: "status" });
  const fits = make("ul", { class: "fits", "aria-label": "words that fit at the caret" });
  const tests = make("div", { role: "status" });
  const number = () => { lines.textContent = area.value.split("\n").map((_, i) => i + 1).join("\n"); lines.scrollTop = area.scrollTop; };
  let timer, turn = 0;
  const lint = async () => {
    const mine = ++turn;
    const report = await ask("POST", "/v1/targets:lint", area.value, YAML).then((answer) => answer.json(), (error) => error.document ?? { detail: error.message });
    if (mine !== turn) return;
    const errors = report.errors ?? (report.detail ? [{ message: report.detail }] : []);
    const list = [...errors, ...(report.findings ?? [])];
    found.replaceChildren(make("p", { class: errors.length ? "bad" : "good" }, errors.length ? `${errors.length} wrong` : list.length ? `it loads; ${list.length} odd` : "it loads, and nothing is odd"),
      make("ul", {}, list.map((one) => make("li", {}, one.line ? button(`${one.line}:${one.column ?? 1}`, () => go(area, one.line, one.column ?? 1)) : "", ` ${one.message}`))));
  };
  // What the schema has at the caret, narrowed by what is typed; Ctrl and space leads there, Escape back.
  const offer = () => {
    const { word, offers } = offersAt(schema, area.value, area.selectionStart);
    const insert = (one) => {
      const at = area.selectionStart;
      area.setRangeText(one.text, at - word.length, at, "end");
      area.focus();
      area.dispatchEvent(new Event("input"));
    };
    fits.replaceChildren(...offers.slice(0, MOST).map((one) => make("li", {}, make("button", { type: "button", title: one.told || null, onclick: () => insert(one) }, one.name))));
    if (!offers.length) fits.append(make("li", { class: "quiet" }, "nothing of the schema"));
    else if (offers.length > MOST) fits.append(make("li", { class: "quiet" }, `and ${offers.length - MOST} more`));
  };
  if (may("plan")) {
    for (const name of ["input", "click", "keyup"]) area.addEventListener(name, offer);
    area.addEventListener("keydown", (event) => {
      if (event.key !== " " || !event.ctrlKey) return;
      event.preventDefault();
      const buttons = fits.querySelectorAll("button");
      if (buttons.length === 1) buttons[0].click();
      else buttons[0]?.focus();
    });
    fits.addEventListener("keydown", (event) => { if (event.key === "Escape") area.focus(); });
  }
  area.addEventListener("input", () => { number(); clearTimeout(timer); timer = setTimeout(lint, PAUSE); });
  area.addEventListener("scroll", () => { lines.scrollTop = area.scrollTop; });
  const test = async () => {
    tests.textContent = "running";
    try {
      const report = await (await ask("POST", "/v1/targets:test", area.value, YAML)).json();
      tests.replaceChildren(make("p", { class: report.ok ? "good" : "bad" }, `${report.tests.length} tests, ${report.tests.filter((one) => !one.ok).length} failed`),
        make("ul", {}, report.tests.map((one) => make("li", {}, `${one.ok ? "ok" : "FAILED"}: ${one.name}${one.problems.map((problem) => `; ${problem}`).join("")}`))));
    } catch (error) { tests.textContent = error.message; }
  };
  const put = async () => {
    const report = await (await ask("POST", "/v1/targets:lint", area.value, YAML)).json();
    const whole = `${report.id}@${report.version}`;
    await ask("PUT", `/v1/targets/${encodeURIComponent(whole)}`, area.value, YAML);
    say(`${whole} is kept.`);
    history.replaceState(null, "", `/targets/${encodeURIComponent(whole)}`);
    main.querySelector("h1").textContent = whole;
  };
  main.append(
    make("div", { class: "row" }, may("write") && button("keep as a version", put, { class: "main" }), may("plan") && button("run its tests", test)),
    make("div", { class: "beside" }, make("div", { class: "editor" }, lines, area), make("div", {}, may("plan") && [make("h2", {}, "Fits here ", make("span", { class: "quiet" }, "(Ctrl and space)")), fits], make("h2", {}, "Lint"), found, make("h2", {}, "Tests"), tests)),
  );
  number();
  if (may("plan")) offer();
  if (may("plan")) await lint();
}

function go(area, line, column) {
  const at = area.value.split("\n").slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
  area.focus();
  area.setSelectionRange(at, at);
}
