// Models: upload, list, and one model on all targets.

import { Cancelled, all, ask, get, post, upload, work } from "./api.js";
import { attempt, button, bytes, figure, gradeText, link, make, say, short, stepsText, table } from "./dom.js";

const AT_ONCE = 2;

// A place for a file, chosen or dropped; `done` gets the digest of its blob.
export function dropZone(id, label, accept, done) {
  const input = make("input", { type: "file", id, accept });
  const bar = make("progress", { max: "1", value: "0", hidden: true, "aria-label": `${label}: progress` });
  const told = make("span", { class: "quiet", role: "status" });
  const take = (file) => attempt(async () => {
    bar.hidden = false;
    try {
      const digest = await upload(file, (what, part) => { bar.value = part; told.textContent = `${what} ${file.name}, ${Math.round(part * 100)} %`; });
      bar.value = 1;
      told.textContent = `${file.name}, ${bytes(file.size)}`;
      await done(digest, file);
    } catch (error) {
      told.textContent = `${file.name}: ${error.message}`;
      throw error;
    } finally { bar.hidden = true; }
  });
  input.addEventListener("change", () => input.files[0] && take(input.files[0]));
  const zone = make("div", { class: "drop" }, make("label", { for: id }, label), input, make("div", { class: "row" }, bar, told));
  zone.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => { event.preventDefault(); zone.classList.remove("over"); if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]); });
  return zone;
}

// The samples that a model was last calibrated on in this browser, if the server still has them: {samples, stats, name}.
const KEPT = (model) => `qplan.samples.${model}`;
const keepSamples = (model, given) => localStorage.setItem(KEPT(model), JSON.stringify(given));
export async function samplesOf(model) {
  const given = JSON.parse(localStorage.getItem(KEPT(model)) ?? "null");
  if (!given) return null;
  const there = await Promise.all([ask("HEAD", `/v1/blobs/${given.samples}`), ask("GET", `/v1/stats/${given.stats}`)]).catch(() => null);
  if (!there) localStorage.removeItem(KEPT(model));
  return there && given;
}

export async function modelsPage(main, { may }) {
  if (may("plan")) main.append(dropZone("model-file", "Drop a model here, or choose one: ONNX, TFLite, JSON or MLIR", ".onnx,.tflite,.json,.mlir", async (blob) => {
    const record = await post("/v1/models", { blob });
    location.assign(`/models/${record.digest}`);
  }));
  const models = await all("/v1/models");
  main.append(table("models", ["model", "operators", "parameters", "size", "actions"], models.map((model) => [
    link(`/models/${model.digest}`, model.name || short(model.digest)), figure(model.ops || model.kernels), figure(model.parameters), bytes(model.bytes),
    may("write") ? button("delete", async () => { await ask("DELETE", `/v1/models/${model.digest}`); location.reload(); }, { "aria-label": `delete ${model.name || model.digest}` }) : "",
  ])));
}

export async function modelPage(main, { may }, digest) {
  const model = await get(`/v1/models/${digest}`);
  main.querySelector("h1").textContent = model.name || short(digest);
  document.title = `${model.name} · quant-planner`;
  const sides = [["takes", model.inputs], ["gives", model.outputs]].map(([word, side]) => `${word} ${side.map((one) => `${one.name} ${one.dtype}[${(one.shape ?? ["?"]).map((n) => n ?? "?").join(", ")}]`).join(", ")}`);
  main.append(make("p", { class: "quiet" }, `${figure(model.ops || model.kernels)} operators, ${figure(model.parameters)} parameters; ${sides.join("; ")}`));
  const given = (await samplesOf(digest)) ?? { samples: null, stats: null };
  const told = make("p", { role: "status" }, given.name ? `Calibrated on ${given.name} before; other samples take its place.` : "Without samples, plans know no ranges but those the model has.");
  if (may("plan")) main.append(make("h2", {}, "Samples"), dropZone("samples-file", "Drop samples here, or choose a file: .npz of arrays by input name", ".npz", async (blob, { name }) => {
    told.textContent = "Calibrating";
    const stats = await work("/v1/calibrations", { model: digest, samples: blob });
    Object.assign(given, { samples: blob, stats: stats.digest, name });
    keepSamples(digest, given);
    showKept();
    told.textContent = `Calibrated on ${stats.samples} samples.${stats.warnings.map((text) => ` ${text}`).join("")}`;
  }), told);
  const targets = await get("/v1/targets");
  const effort = make("select", { id: "effort" }, [["quick", "quick: the first plan"], ["normal", "normal: where that is not good, try 16"], ["high", "high: try 48, and aim further"]].map(([value, text]) => make("option", { value }, text)));
  const count = () => { chosen.textContent = `plan for ${rows.every((row) => row.isChosen()) ? "all" : rows.filter((row) => row.isChosen()).length} targets`; };
  const rows = targets.map((target) => matrixRow(target, digest, given, may, count, () => effort.value));
  // Plans that there are already, of the same samples and without edits.
  const showKept = () => attempt(async () => {
    const plans = (await all("/v1/plans")).filter((plan) => plan.model === digest && plan.edits === 0 && plan.stats === given.stats);
    await Promise.all(rows.map((row) => { const found = plans.find((plan) => plan.target === row.name); return row.show(found); }));
  });
  main.append(make("h2", {}, "Targets side by side"));
  const chosen = button("plan for all targets", async () => {
    const waiting = rows.filter((row) => row.isChosen());
    const asked = waiting.length;
    let failed = 0;
    await Promise.all(Array.from({ length: AT_ONCE }, async () => { while (waiting.length) if (!(await waiting.shift().run())) failed += 1; }));
    say(failed ? `${failed} of ${asked} chosen targets failed; the table says why.` : "The chosen targets are planned.");
  }, { class: "main" });
  if (may("plan")) main.append(make("div", { class: "row" }, chosen, make("label", { for: "effort" }, "Effort"), effort, [true, false].map((is) => make("button", { type: "button", onclick: () => { rows.forEach((row) => row.choose(is)); count(); } }, is ? "choose all" : "choose none"))));
  main.append(table("targets side by side", ["target", "on integers", "cost", "rescales", "work", "weights", "quality", "why float", "actions"], rows.map((row) => row.element)));
  await showKept();
}

function matrixRow(target, model, given, may, changed, effort) {
  const name = `${target.id}@${target.version}`;
  const cells = Array.from({ length: 7 }, () => make("td"));
  const [integer, cost, rescales, busy, weights, quality, why] = cells;
  const box = make("input", { type: "checkbox", checked: true, "aria-label": `choose ${name}`, onchange: changed });
  const graded = (one) => {
    quality.className = one?.grade ?? "quiet";
    quality.title = one ? `${one.measured_on}, as ${one.format}` : "";
    quality.textContent = one ? `${one.text}, ${gradeText(one)}` : "not measured";
  };
  const fill = async (key) => {
    const found = await get(`/v1/plans/${key}/summary`);
    integer.replaceChildren(link(`/plans/${key}`, `${found.integer} of ${found.kernels}`));
    cost.textContent = figure(found.cost);
    rescales.textContent = figure(found.rescales + found.casts);
    busy.textContent = `${figure(found.work)} ${found.work_unit}`;
    weights.textContent = bytes(found.weight_bytes[1]);
    why.textContent = Object.entries(found.reasons).map(([reason, count]) => `${count} ${reason}`).join("; ") || "–";
    graded(found.quality);
  };
  // A plan that there is; without one, an empty row.
  const show = async (plan) => {
    if (plan) return fill(plan.key);
    for (const cell of cells) cell.replaceChildren();
    return undefined;
  };
  const planned = (body) => work("/v1/plans", body, (event) => { integer.textContent = event; });
  // A plan that a search may have bettered; one that is cancelled has measured some, and the best of those is taken.
  const searched = async (body) => {
    const asked = { ...body, samples: given.samples, effort: effort() };
    const told = (event, data) => {
      if (event !== "progress") { integer.textContent = event; return; }
      integer.textContent = `${data.phase === "noise" ? "measuring noise" : "trying plans"}: ${stepsText(data)}`;
    };
    try {
      return await work("/v1/searches", asked, told);
    } catch (error) {
      if (!(error instanceof Cancelled)) throw error;
      return work("/v1/searches", { ...asked, trials: 0 }, told);
    }
  };
  const run = async () => {
    integer.textContent = "planning";
    try {
      const body = { model, target: name, ...(given.stats ? { stats: given.stats } : {}) };
      const made = await (effort() === "quick" || !given.samples ? planned(body) : searched(body));
      const key = made.plan ?? made.key;
      await fill(key);
      if (made.given_up) why.prepend(`${made.given_up}. `);
      if (!given.samples) { quality.textContent = "no samples"; return true; }
      quality.className = "quiet";
      quality.textContent = "measuring";
      try { graded(await measured(model, key, given)); } catch (error) { graded(null); quality.title = error.message; }
      return true;
    } catch (error) {
      integer.textContent = "failed";
      why.textContent = error.message;
      return false;
    }
  };
  const start = may("plan") ? button("plan", run, { "aria-label": `plan for ${name}` }) : "";
  return { name, run, show, isChosen: () => box.checked, choose: (is) => { box.checked = is; }, element: make("tr", { "data-target": target.id }, make("td", {}, may("plan") && box, link(`/targets/${encodeURIComponent(name)}`, target.id), make("br"), make("span", { class: "quiet" }, target.title)), cells, make("td", {}, start)) };
}

// The samples are those of calibration; what is measured is kept with the plan, and its page shows it.
async function measured(model, plan, given) {
  return (await work("/v1/comparisons", { model, plan, samples: given.samples, stats: given.stats, held_out: false })).quality;
}
