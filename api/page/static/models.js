// Models: upload, list, and one model on all targets.

import { all, ask, get, post, upload, work } from "./api.js";
import { attempt, button, bytes, figure, link, make, say, short, table } from "./dom.js";

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

export async function modelsPage(main, { may }) {
  if (may("plan")) main.append(dropZone("model-file", "Drop a model here, or choose one: ONNX, JSON or MLIR", ".onnx,.json,.mlir", async (blob) => {
    const record = await post("/v1/models", { blob });
    location.assign(`/models/${record.digest}`);
  }));
  const models = await all("/v1/models");
  main.append(table("models", ["model", "kernels", "parameters", "size", "actions"], models.map((model) => [
    link(`/models/${model.digest}`, model.name || short(model.digest)), figure(model.kernels), figure(model.parameters), bytes(model.bytes),
    may("write") ? button("delete", async () => { await ask("DELETE", `/v1/models/${model.digest}`); location.reload(); }, { "aria-label": `delete ${model.name || model.digest}` }) : "",
  ])));
}

export async function modelPage(main, { may }, digest) {
  const model = await get(`/v1/models/${digest}`);
  main.querySelector("h1").textContent = model.name || short(digest);
  document.title = `${model.name} · quant-planner`;
  const sides = [["takes", model.inputs], ["gives", model.outputs]].map(([word, side]) => `${word} ${side.map((one) => `${one.name} ${one.dtype}[${(one.shape ?? ["?"]).map((n) => n ?? "?").join(", ")}]`).join(", ")}`);
  main.append(make("p", { class: "quiet" }, `${figure(model.kernels)} kernels, ${figure(model.parameters)} parameters; ${sides.join("; ")}`));
  const given = { samples: null, stats: null };
  const told = make("p", { role: "status" }, "Without samples, plans know no ranges but those the model has.");
  if (may("plan")) main.append(make("h2", {}, "Samples"), dropZone("samples-file", "Drop samples here, or choose a file: .npz of arrays by input name", ".npz", async (blob) => {
    told.textContent = "Calibrating";
    const stats = await work("/v1/calibrations", { model: digest, samples: blob });
    Object.assign(given, { samples: blob, stats: stats.digest });
    told.textContent = `Calibrated on ${stats.samples} samples.${stats.warnings.map((text) => ` ${text}`).join("")}`;
  }), told);
  const targets = await get("/v1/targets");
  const rows = targets.map((target) => matrixRow(target, digest, given, may));
  main.append(make("h2", {}, "Targets side by side"));
  if (may("plan")) main.append(make("div", { class: "row" }, button("plan for all targets", async () => {
    const waiting = [...rows];
    await Promise.all(Array.from({ length: AT_ONCE }, async () => { while (waiting.length) await waiting.shift().run(); }));
    say("All targets are planned.");
  }, { class: "main" })));
  main.append(table("targets side by side", ["target", "on integers", "cost", "rescales", "work", "weights", "quality", "why float", "actions"], rows.map((row) => row.element)));
}

function matrixRow(target, model, given, may) {
  const name = `${target.id}@${target.version}`;
  const cells = Array.from({ length: 7 }, () => make("td"));
  const [integer, cost, rescales, busy, weights, quality, why] = cells;
  const run = async () => {
    integer.textContent = "planning";
    try {
      const body = { model, target: name, ...(given.stats ? { stats: given.stats } : {}) };
      const made = await work("/v1/plans", body, (event) => { integer.textContent = event; });
      const key = made.plan ?? made.key;
      const found = await get(`/v1/plans/${key}/summary`);
      integer.replaceChildren(link(`/plans/${key}`, `${found.integer} of ${found.kernels}`));
      cost.textContent = figure(found.cost);
      rescales.textContent = figure(found.rescales + found.casts);
      busy.textContent = `${figure(found.work)} ${found.work_unit}`;
      weights.textContent = bytes(found.weight_bytes[1]);
      why.textContent = Object.entries(found.reasons).map(([reason, count]) => `${count} ${reason}`).join("; ") || "–";
      quality.textContent = given.samples ? await measured(model, key, given, quality) : "no samples";
    } catch (error) { integer.textContent = "failed"; why.textContent = error.message; }
  };
  const start = may("plan") ? button("plan", run, { "aria-label": `plan for ${name}` }) : "";
  return { run, element: make("tr", { "data-target": target.id }, make("td", {}, link(`/targets/${encodeURIComponent(name)}`, target.id), make("br"), make("span", { class: "quiet" }, target.title)), cells, make("td", {}, start)) };
}

async function measured(model, plan, given, place) {
  place.textContent = "measuring";
  try {
    // The samples are those of calibration; what is measured is kept with the plan, and its page shows it.
    const { quality } = await work("/v1/comparisons", { model, plan, samples: given.samples, stats: given.stats, held_out: false });
    place.className = quality.grade;
    return `${quality.text}, ${quality.grade}`;
  } catch (error) { place.title = error.message; return "not in ONNX"; }
}
