// Models: the first page with its steps and the example, and one model on all targets.

import { Cancelled, all, ask, get, post, upload, work } from "./api.js";
import { attempt, button, bytes, figure, gradeText, link, make, say, short, stepsText, table } from "./dom.js";

const AT_ONCE = 2;
const EXAMPLE = { model: "digits.onnx", samples: "calibration.npz", target: "litert-int8" };

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

// A model is called by its file.
// As planner.file_names: files of other formats say themselves what their model is called.
const stemOf = (name) => (/\.(onnx|tflite)$/i.test(name) ? name.replace(/(\.corrected-float)?\.[^.]*$/i, "").slice(0, 300) : "");

export async function modelsPage(main, { may }) {
  main.querySelector("h1").textContent = "Quantize a model for your device";
  main.append(make("p", { class: "lead" }, "quant-planner chooses integer formats that the device can run, and explains every layer that it leaves in float."));
  const model = may("plan") && dropZone("model-file", "Drop a model here, or choose one: ONNX, TFLite, JSON or MLIR", ".onnx,.tflite,.json,.mlir", async (blob, { name }) => {
    const record = await post("/v1/models", { blob, name: stemOf(name) });
    location.assign(`/models/${record.digest}`);
  });
  const step = (title, ...parts) => make("li", {}, make("h2", {}, title), parts);
  main.append(make("ol", { class: "steps" },
    step("Choose a model", model || make("p", {}, "Open one of the models below; your token may read, not plan.")),
    step("Add samples", make("p", {}, "A few real inputs in an .npz file. They give the range of every value, and they measure the quality.")),
    step("Compare devices", make("p", {}, "See how much of the model each device quantizes and how well. Open a plan to see why a layer runs in float, and download the quantized file."))));
  const told = make("span", { class: "quiet", role: "status" }, "digits, a small image classifier, on litert-int8: takes a few seconds");
  if (may("plan")) main.append(make("div", { class: "row" }, button("Run the example", () => runExample(told), { id: "example", class: "main" }), told));
  const models = await all("/v1/models");
  if (models.length) main.append(make("h2", {}, "Models"));
  if (models.length) main.append(table("models", ["model", "operators", "parameters", "size", "actions"], models.map((one) => [
    link(`/models/${one.digest}`, one.name || short(one.digest)), figure(one.ops || one.kernels), figure(one.parameters), bytes(one.bytes),
    may("write") ? button("delete", async () => { await ask("DELETE", `/v1/models/${one.digest}`); location.reload(); }, { "aria-label": `delete ${one.name || one.digest}` }) : "",
  ])));
}

// All three steps with files that the server has: to the page of a plan whose quality is measured.
async function runExample(told) {
  const say = (text) => { told.textContent = text; };
  const sent = async (name) => {
    const file = new File([await (await ask("GET", new URL(name, import.meta.url).pathname)).blob()], name);
    return upload(file, (what, part) => say(`${what} ${name}, ${Math.round(part * 100)} %`));
  };
  const [blob, samples] = [await sent(EXAMPLE.model), await sent(EXAMPLE.samples)];
  const { digest: model } = await post("/v1/models", { blob, name: stemOf(EXAMPLE.model) });
  say("calibrating");
  const { digest: stats } = await work("/v1/calibrations", { model, samples });
  keepSamples(model, { samples, stats, name: EXAMPLE.samples });
  say("planning");
  const plan = await work("/v1/plans", { model, target: EXAMPLE.target, stats });
  say("measuring the quality");
  const key = plan.plan ?? plan.key;
  await measured(model, key, { samples, stats });
  location.assign(`/plans/${key}`);
}

const sizeText = ({ name, dtype, shape }) => `${name} ${dtype}[${(shape ?? ["?"]).map((n) => n ?? "?").join(", ")}]`;

// How to make the file of samples, with the names and shapes of this model's inputs.
function samplesHelp(inputs) {
  const rows = inputs.map(({ name, dtype, shape }) => `    ${JSON.stringify(name)}: ...,  # ${dtype}, shape (N, ${(shape ?? []).slice(1).map((n) => n ?? "?").join(", ")}), N real inputs\n`);
  const text = `import numpy as np\n\nnp.savez("samples.npz", **{\n${rows.join("")}})\n`;
  return make("details", {}, make("summary", {}, "How do I make this file?"), make("p", {}, "With NumPy. 16 to 128 inputs are enough, as the model gets them: preprocessed, and like those of its daily work."), make("pre", { tabindex: "0" }, text));
}

export async function modelPage(main, { may }, digest) {
  const model = await get(`/v1/models/${digest}`);
  main.querySelector("h1").textContent = model.name || short(digest);
  document.title = `${model.name} · quant-planner`;
  const sides = [["inputs", model.inputs], ["outputs", model.outputs]].map(([word, side]) => `${word}: ${side.map(sizeText).join(", ")}`);
  main.append(make("p", { class: "quiet" }, `${figure(model.ops || model.kernels)} operators, ${figure(model.parameters)} parameters; ${sides.join("; ")}`));
  const given = (await samplesOf(digest)) ?? { samples: null, stats: null };
  const told = make("p", { role: "status" }, given.name ? `Calibrated on ${given.name}. Other samples take its place.` : "Without samples only the ranges in the model are known, and the quality is not measured.");
  if (may("plan")) main.append(make("h2", {}, "Samples"), dropZone("samples-file", "Drop samples here, or choose a file: .npz of arrays by input name", ".npz", async (blob, { name }) => {
    told.textContent = "Calibrating";
    const stats = await work("/v1/calibrations", { model: digest, samples: blob });
    Object.assign(given, { samples: blob, stats: stats.digest, name });
    keepSamples(digest, given);
    showKept();
    told.textContent = `Calibrated on ${stats.samples} samples. Now plan for one or more devices.${stats.warnings.map((text) => ` ${text}`).join("")}`;
  }), samplesHelp(model.inputs), told);
  const targets = await get("/v1/targets");
  const effort = make("select", { id: "effort" }, [["quick", "quick: one plan"], ["normal", "normal: where it is not good, try 16 others"], ["high", "high: try 48 plans for more quality"]].map(([value, text]) => make("option", { value }, text)));
  const count = () => { chosen.textContent = `plan for ${rows.every((row) => row.isChosen()) ? "all" : rows.filter((row) => row.isChosen()).length} targets`; };
  const rows = targets.map((target) => matrixRow(target, digest, given, may, { changed: count, effort: () => effort.value, planned: () => sort() }));
  // Most of the model quantized first, then the best quality; targets without a plan keep their order.
  const sort = () => {
    const body = rows[0]?.element.parentElement;
    const merit = (row) => row.merit() ?? [-1, -Infinity];
    body?.append(...rows.toSorted((a, b) => merit(b)[0] - merit(a)[0] || Math.sign(merit(b)[1] - merit(a)[1]) || 0).map((row) => row.element));
  };
  // Plans that there are already, of the same samples and without edits.
  const showKept = () => attempt(async () => {
    const plans = (await all("/v1/plans")).filter((plan) => plan.model === digest && plan.edits === 0 && plan.stats === given.stats);
    await Promise.all(rows.map((row) => { const found = plans.find((plan) => plan.target === row.name); return row.show(found); }));
    sort();
  });
  main.append(make("h2", {}, "Targets side by side"), make("p", { class: "quiet" }, "A target is a device with its kernels. Those that quantize most of the multiply-adds come first, then those with the best quality."));
  const chosen = button("plan for all targets", async () => {
    const waiting = rows.filter((row) => row.isChosen());
    const asked = waiting.length;
    let failed = 0;
    await Promise.all(Array.from({ length: AT_ONCE }, async () => { while (waiting.length) if (!(await waiting.shift().run())) failed += 1; }));
    say(failed ? `${failed} of ${asked} chosen targets failed; the table says why.` : "The chosen targets are planned.");
  }, { class: "main" });
  if (may("plan")) main.append(make("div", { class: "row" }, chosen, make("label", { for: "effort" }, "Effort"), effort, [true, false].map((is) => make("button", { type: "button", onclick: () => { rows.forEach((row) => row.choose(is)); count(); } }, is ? "choose all" : "choose none"))));
  main.append(table("targets side by side", ["target", "kernels quantized", "quality, SQNR", "why float", "weights", "cost, elements", "rescales and casts", "work"], rows.map((row) => row.element)));
  await showKept();
}

function matrixRow(target, model, given, may, { changed, effort, planned: sorted }) {
  const name = `${target.id}@${target.version}`;
  const cells = Array.from({ length: 7 }, () => make("td"));
  const [integer, quality, why, weights, cost, rescales, busy] = cells;
  let found = null; // the summary of its plan
  const box = make("input", { type: "checkbox", checked: true, "aria-label": `choose ${name}`, onchange: changed });
  const graded = (one) => {
    quality.className = one?.grade ?? "quiet";
    quality.title = one ? `${one.measured_on}, as ${one.format}` : "";
    quality.textContent = one ? `${one.text}, ${gradeText(one)}` : "not measured";
    if (found) found.quality = one;
  };
  const shareOf = () => found.verdict?.coverage?.multiply_add_share ?? (found.kernels ? found.integer / found.kernels : 0);
  const fill = async (key) => {
    found = await get(`/v1/plans/${key}/summary`);
    integer.replaceChildren(link(`/plans/${key}`, `${found.integer} of ${found.kernels}`), make("br"), make("span", { class: "quiet" }, `${percent(shareOf())} of multiply-adds`));
    cost.textContent = figure(found.cost);
    rescales.textContent = figure(found.rescales + found.casts);
    busy.textContent = `${figure(found.work)} ${found.work_unit}`;
    weights.textContent = bytes(found.weight_bytes[1]);
    why.replaceChildren(...causesOf(found.causes));
    graded(found.quality);
  };
  // A plan that there is; without one, an empty row.
  const show = async (plan) => {
    if (plan) return fill(plan.key);
    found = null;
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
      if (!given.samples) { quality.textContent = "no samples"; sorted(); return true; }
      quality.className = "quiet";
      quality.textContent = "measuring";
      try { graded(await measured(model, key, given)); } catch (error) { graded(null); quality.title = error.message; }
      sorted();
      return true;
    } catch (error) {
      integer.textContent = "failed";
      why.textContent = error.message;
      return false;
    }
  };
  const start = may("plan") ? button("plan", run, { "aria-label": `plan for ${name}` }) : "";
  // Share that is quantized, and dB: null is no error at all, or only error.
  const merit = () => found && [shareOf(), found.quality ? found.quality.sqnr ?? (found.quality.text === "exact" ? Infinity : -Infinity) : -Infinity];
  return { name, run, show, merit, isChosen: () => box.checked, choose: (is) => { box.checked = is; }, element: make("tr", { "data-target": target.id }, make("td", {}, may("plan") && box, link(`/targets/${encodeURIComponent(name)}`, target.id), make("br"), make("span", { class: "quiet" }, target.title), start && make("br"), start), cells) };
}

const FEW_CAUSES = 2;
const percent = (share) => `${share > 0.99 && share < 1 ? "over 99" : Math.round(100 * share)} %`;

function causesOf(causes) {
  if (!causes.length) return ["–"];
  const items = causes.map((text) => make("li", {}, text));
  if (items.length <= FEW_CAUSES) return [make("ul", { class: "plain" }, items)];
  return [make("ul", { class: "plain" }, items.slice(0, FEW_CAUSES)), make("details", {}, make("summary", {}, `${items.length - FEW_CAUSES} more`), make("ul", { class: "plain" }, items.slice(FEW_CAUSES)))];
}

// The samples are those of calibration; what is measured is kept with the plan, and its page shows it.
async function measured(model, plan, given) {
  return (await work("/v1/comparisons", { model, plan, samples: given.samples, stats: given.stats, held_out: false })).quality;
}
