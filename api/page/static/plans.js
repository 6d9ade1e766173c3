// Plans: the list, and the page of one, live: its edits are planned here, and drawn in its frame.

import { all, ask, get, post, work } from "./api.js";
import { button, download, figure, link, make, say, short, table } from "./dom.js";
import { dropZone } from "./models.js";

const ENDINGS = { litert: "tflite", stablehlo: "mlir", "stablehlo-int": "mlir", tosa: "mlir", hls4ml: "zip" };

const MANY = 500; // kernels of a plan that takes long to make again

export async function plansPage(main, { may }) {
  const [plans, models] = await Promise.all([all("/v1/plans"), all("/v1/models")]);
  const names = Object.fromEntries(models.map((model) => [model.digest, model.name]));
  main.append(table("plans", ["plan", "model", "target", "edits", "actions"], plans.map((plan) => [
    link(`/plans/${plan.key}`, short(plan.key)), plan.model ? link(`/models/${plan.model}`, names[plan.model] || short(plan.model)) : "its own", plan.target ?? "", plan.edits ?? "",
    may("write") ? button("delete", async () => { await ask("DELETE", `/v1/plans/${plan.key}`); location.reload(); }, { "aria-label": `delete plan ${short(plan.key)}` }) : "",
  ])));
}

export async function planPage(main, { server, may }, key) {
  const [about, plans] = await Promise.all([get(`/v1/plans/${key}/summary`), all("/v1/plans")]);
  const record = plans.find((plan) => plan.key === key) ?? {};
  const state = { key, shown: key, model: record.model };
  const { model, target } = about;
  document.title = `${model} on ${target} · quant-planner`;
  main.querySelector("h1").textContent = `${model} on ${target}`;
  main.classList.add("whole");
  const format = make("select", { id: "format" }, server.exports.map((name) => make("option", { selected: name === "onnx-qdq" }, name)));
  const edited = make("span", { role: "status", id: "edited" });
  const bar = make("div", { class: "row" }, record.model && link(`/models/${record.model}`, "the model"),
    may("plan") && record.model && [make("label", { for: "format" }, "Format"), format, button("export and download", () => exportPlan(state, format.value, model), { class: "main" })],
    button("save plan.json", async () => download(await (await ask("GET", `/v1/plans/${state.shown}`)).blob(), "plan.json")),
    button("save report.html", async () => download(await (await ask("GET", `/v1/plans/${state.shown}/report`)).blob(), "report.html")),
    button("copy link", async () => { await navigator.clipboard.writeText(new URL(`/plans/${state.shown}${location.hash}`, location.href).href); say("The link is copied."); }), edited);
  const frame = make("iframe", { title: `plan of ${model}`, sandbox: "allow-scripts allow-downloads" });
  const draw = async () => { frame.srcdoc = await (await ask("GET", `/v1/plans/${key}/report?live=true`)).text(); };
  await draw();
  main.append(bar, frame);
  if (may("plan") && record.model) main.append(studies(state, record, draw));
  // A choice in the frame is kept in the address, so that a link leads to it.
  frame.addEventListener("load", () => {
    const name = new URLSearchParams(location.hash.slice(1)).get("kernel");
    if (name) frame.contentWindow.postMessage({ type: "qplan:select", name }, "*");
  });
  window.addEventListener("message", (event) => {
    if (event.source !== frame.contentWindow || event.data?.type !== "qplan:select") return;
    const { name } = event.data.detail;
    history.replaceState(null, "", name ? `#kernel=${encodeURIComponent(name)}` : location.pathname);
  });
  let turn = 0;
  if (may("plan") && record.model && about.kernels >= MANY) foretell(key, {}, () => {});
  window.addEventListener("message", (event) => {
    if (event.source !== frame.contentWindow || event.data?.type !== "qplan:edit") return;
    const mine = ++turn, before = state.shown;
    const tell = (message) => frame.contentWindow.postMessage(message, "*");
    if (!may("plan")) return tell({ type: "qplan:say", text: "Your token may not plan; the command does." });
    tell({ type: "qplan:say", text: "planning" });
    if (about.kernels >= MANY) foretell(key, event.data.detail.document, (found) => {
      if (mine !== turn || state.shown !== before) return;
      tell({ type: "qplan:mark", names: found.touched });
      const [cost, now] = found.totals.price;
      tell({ type: "qplan:say", text: `cost ${figure(cost)} → ${figure(now)}, ${figure(found.touched.length)} kernels touched; drawing` });
    });
    again(key, event.data.detail.document).then(async (shown) => {
      const view = await get(`/v1/plans/${shown}/view${shown === key ? "" : `?before=${key}`}`);
      if (mine !== turn) return;
      state.shown = shown;
      tell({ type: "qplan:show", view });
      const now = await get(`/v1/plans/${shown}/summary`);
      const said = shown === key ? "as it was" : `cost ${figure(about.cost)} → ${figure(now.cost)}, on integers ${about.integer} → ${now.integer}`;
      tell({ type: "qplan:say", text: said });
      edited.replaceChildren(...(shown === key ? [] : [`what if: ${said} · `, link(`/plans/${shown}`, "open this plan")]));
    }).catch((error) => { if (mine === turn) tell({ type: "qplan:say", text: error.message }); });
  });
}

// What the edits would change, in figures and names, long before the new plan is made, checked and drawn. The server
// holds the plan in memory from the first of these on, so the page asks for one when it opens.
function foretell(key, edits, told) {
  post(`/v1/plans/${key}:preview`, edits).then(told).catch(() => {}); // what is wrong with them, `:replan` says
}

// The plan with all edits so far; without any, the one that the page was opened with.
async function again(key, edits) {
  if (!["values", "ports", "kernels"].some((part) => Object.keys(edits[part] ?? {}).length)) return key;
  return (await post(`/v1/plans/${key}:replan`, edits)).key;
}

async function exportPlan(state, format, name) {
  const file = await work("/v1/exports", { model: state.model, plan: state.shown, format });
  const blob = await (await ask("GET", file.link)).blob();
  download(blob, `${name.replace(/[^\w.-]+/g, "_") || "model"}.${format}.${ENDINGS[format] ?? "onnx"}`);
}

// Quality and losses of a plan, and a search for a better one: all run the model on samples.
function studies(state, record, draw) {
  const place = make("div", { role: "status" });
  const goal = make("input", { id: "goal", value: "sqnr=30", size: "12" });
  const buttons = [
    button("quality", async () => {
      place.textContent = "measuring quality";
      const { quality } = await work("/v1/comparisons", { model: state.model, plan: state.shown, samples: buttons.samples, ...(record.stats ? { stats: record.stats } : {}) });
      place.replaceChildren(make("p", {}, make("span", { class: quality.grade }, `${quality.text}, ${quality.grade}`), ` ${quality.measured_on}, written as ${quality.format}; kept with the plan`));
      if (state.shown === state.key) await draw();
    }, { disabled: true }),
    button("losses", async () => {
      place.textContent = "measuring losses";
      const found = await work("/v1/losses", { model: state.model, plan: state.shown, samples: buttons.samples });
      place.replaceChildren(make("p", {}, `Judged by ${found.judged}; ${found.begins}`), table("losses", ["kernel", "share of the noise", "SQNR alone"], found.kernels.slice(0, 20).map((one) => [one.name, one.share === null ? "" : `${(one.share * 100).toFixed(1)} %`, one.sqnr === null ? "" : `${one.sqnr.toFixed(1)} dB`])));
    }, { disabled: true }),
    button("search", async () => {
      place.textContent = "searching";
      const stats = record.stats ?? (await work("/v1/calibrations", { model: state.model, samples: buttons.samples })).digest;
      const found = await work("/v1/searches", { model: state.model, target: record.target, samples: buttons.samples, stats, goal: goal.value });
      place.replaceChildren(make("p", {}, `${found.sentence} `, link(`/plans/${found.plan}`, "open the plan")));
    }, { disabled: true }),
  ];
  const zone = dropZone("study-file", "Samples for quality, losses and searches: .npz of arrays by input name", ".npz", (blob) => { buttons.samples = blob; buttons.forEach((one) => { one.disabled = false; }); });
  return make("section", {}, make("h2", {}, "Quality, losses and search"), zone, make("div", { class: "row" }, buttons.slice(0, 2), make("label", { for: "goal" }, "Goal"), goal, buttons[2]), place);
}
