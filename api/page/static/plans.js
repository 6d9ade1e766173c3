// Plans: the list, and the page of one, live: its edits are planned here, and drawn in its frame.

import { all, ask, get, post, work } from "./api.js";
import { attempt, button, download, figure, gradeText, link, make, say, short, table } from "./dom.js";
import { dropZone, samplesOf } from "./models.js";

const ENDINGS = { litert: "tflite", stablehlo: "mlir", "stablehlo-int": "mlir", tosa: "mlir", hls4ml: "zip" };

const MANY = 500; // kernels of a plan whose first preview takes long, so that it is asked for at once

export async function plansPage(main, { may }) {
  const [plans, models] = await Promise.all([all("/v1/plans"), all("/v1/models")]);
  const names = Object.fromEntries(models.map((model) => [model.digest, model.name]));
  const nameOf = (plan) => names[plan.model] ?? "";
  plans.sort((a, b) => nameOf(a).localeCompare(nameOf(b)) || (a.target ?? "").localeCompare(b.target ?? "") || (a.edits ?? 0) - (b.edits ?? 0));
  main.append(table("plans", ["plan", "model", "target", "quality", "edits", "actions"], plans.map((plan) => [
    link(`/plans/${plan.key}`, short(plan.key)), plan.model ? link(`/models/${plan.model}`, nameOf(plan) || short(plan.model)) : "its own", plan.target ?? "",
    plan.quality ? make("span", { class: plan.quality.grade, title: `${plan.quality.measured_on}, as ${plan.quality.format}` }, `${plan.quality.text}, ${gradeText(plan.quality)}`) : make("span", { class: "quiet" }, "not measured"), plan.edits ?? "",
    may("write") ? button("delete", async () => { await ask("DELETE", `/v1/plans/${plan.key}`); location.reload(); }, { "aria-label": `delete plan ${short(plan.key)}` }) : "",
  ])));
}

export async function planPage(main, { server, may }, key) {
  const [about, plans] = await Promise.all([get(`/v1/plans/${key}/summary`), all("/v1/plans")]);
  const record = plans.find((plan) => plan.key === key) ?? {};
  const state = { key, shown: key, model: record.model, asked: new URLSearchParams(location.search) };
  const { model, target } = about;
  document.title = `${model} on ${target} · quant-planner`;
  main.querySelector("h1").textContent = `${model} on ${target}`;
  main.classList.add("whole");
  // What the device's own tools read comes first.
  const own = about.formats.filter((name) => server.exports.includes(name));
  const option = (name) => make("option", { selected: name === (own[0] ?? "onnx-qdq") }, name);
  const rest = server.exports.filter((name) => !own.includes(name)).map(option);
  const format = make("select", { id: "format" }, own.length ? [make("optgroup", { label: "formats of the target's tools" }, own.map(option)), make("optgroup", { label: "other formats" }, rest)] : rest);
  const edited = make("span", { role: "status", id: "edited" });
  const bar = make("div", { class: "row" }, record.model && link(`/models/${record.model}`, "other targets for this model"),
    may("plan") && record.model && [make("label", { for: "format" }, "Format"), format, button("export and download", () => exportPlan(state, format.value, model), { class: "main" })],
    button("save plan.json", async () => download(await (await ask("GET", `/v1/plans/${state.shown}`)).blob(), "plan.json")),
    button("save report.html", async () => download(await (await ask("GET", `/v1/plans/${state.shown}/report?${state.shown === key ? state.asked : ""}`)).blob(), "report.html")),
    button("copy link", async () => { await navigator.clipboard.writeText(new URL(state.shown === key ? location.href : `/plans/${state.shown}${location.hash}`, location.href).href); say("The link is copied."); }), beside(plans, record, state), edited);
  const frame = make("iframe", { title: `plan of ${model}`, sandbox: "allow-scripts allow-downloads" });
  // Trade-offs, a search and a plan beside are in the address, so that a link has them.
  const draw = async (section = "") => {
    frame.srcdoc = await (await ask("GET", `/v1/plans/${key}/report?live=true&${state.asked}`)).text();
    frame.addEventListener("load", () => frame.contentWindow.postMessage({ type: "qplan:read", section }, "*"), { once: true });
  };
  await draw();
  const mayEdit = may("plan") && record.model && !state.asked.has("before");
  let held = false; // whether the server was asked to hold the plan
  // A choice in the frame is kept in the address, so that a link leads to it. The frame loads once it is in the page: whoever
  // waits for that has to listen before, however long what comes next takes.
  frame.addEventListener("load", () => {
    const name = new URLSearchParams(location.hash.slice(1)).get("kernel");
    if (name) frame.contentWindow.postMessage({ type: "qplan:select", name }, "*");
  });
  window.addEventListener("message", (event) => {
    if (event.source !== frame.contentWindow || event.data?.type !== "qplan:select") return;
    const { name } = event.data.detail;
    history.replaceState(null, "", `${location.pathname}${location.search}${name ? `#kernel=${encodeURIComponent(name)}` : ""}`);
    if (name && mayEdit && !held) { held = true; foretell(key, {}); }
  });
  main.append(bar, frame);
  window.addEventListener("message", async (event) => {
    if (event.source !== frame.contentWindow || event.data?.type !== "qplan:study") return;
    if (state.shown !== key) { say("Open the plan with the edits first: trade-offs are of a plan that is kept."); return; }
    const { at } = event.data.detail;
    if (!state.asked.getAll("pareto").includes(at)) state.asked.append("pareto", at);
    say(`Looking for the trade-offs of ${at}.`);
    history.replaceState(null, "", `?${state.asked}${location.hash}`);
    await attempt(() => draw("trade-offs"));
  });
  if (mayEdit && about.kernels >= MANY) { held = true; foretell(key, {}); }
  const tell = (message) => frame.contentWindow.postMessage(message, "*");
  state.tell = tell;
  const hear = (text) => tell({ type: "qplan:say", text });
  let going = new AbortController(); // for the last edit; another one ends it
  window.addEventListener("message", async (event) => {
    if (event.source !== frame.contentWindow || event.data?.type !== "qplan:edit") return;
    if (!mayEdit) { hear("Your token may not plan, or the plan stands beside another; the command plans again."); return; }
    going.abort();
    going = new AbortController();
    const { signal } = going;
    const edits = event.data.detail.document;
    try {
      const said = isEdited(edits) ? await again(edits, signal) : back();
      edited.replaceChildren(...(said ? [`what if: ${said} · `, link(`/plans/${state.shown}`, "open this plan")] : []));
    } catch (error) { if (!signal.aborted) hear(error.message); }
  });
  if (may("plan") && record.model) main.append(await studies(state, record, draw));

  function back() {
    state.shown = key;
    tell({ type: "qplan:show", view: null });
    return "";
  }

  // First what changes, then the plan: at once, they would wait for each other.
  async function again(edits, signal) {
    hear("planning");
    const found = held && await foretell(key, edits, signal);
    if (found && !signal.aborted) {
      const [cost, now] = found.totals.price;
      const many = found.touched.length;
      tell({ type: "qplan:mark", names: found.touched });
      const [few, floats] = found.totals["kernels in float"];
      const float = few === floats ? "" : `, kernels in float ${figure(few)} → ${figure(floats)}`;
      hear(`cost ${figure(cost)} → ${figure(now)}${float}, ${figure(many)} ${many === 1 ? "kernel" : "kernels"} touched; drawing`);
    }
    const { key: shown } = await post(`/v1/plans/${key}:replan`, edits, {}, signal);
    const [view, now] = await Promise.all([get(`/v1/plans/${shown}/view?before=${key}`), get(`/v1/plans/${shown}/summary`)]);
    signal.throwIfAborted();
    state.shown = shown;
    tell({ type: "qplan:show", view });
    const worse = now.integer < about.integer && now.cost < about.cost ? " (a lower price for more kernels in float)" : "";
    const said = `cost ${figure(about.cost)} → ${figure(now.cost)}, kernels quantized ${about.integer} → ${now.integer}${worse}`;
    hear(said);
    return said;
  }
}

// What the edits would change, in figures and names, long before the new plan is made, checked and drawn. The server
// holds the plan in memory from the first of these on, so the page asks for one when a kernel is chosen, or as it opens.
function foretell(key, edits, signal) {
  return post(`/v1/plans/${key}:preview`, edits, {}, signal).catch(() => null); // what is wrong with them, `:replan` says
}

const isEdited = (edits) => ["values", "ports", "kernels"].some((part) => Object.keys(edits[part] ?? {}).length);

// Another plan of the model, to be drawn in front of this one.
function beside(plans, record, state) {
  const others = plans.filter((plan) => plan.key !== record.key && record.model && plan.model === record.model);
  if (!others.length) return "";
  const said = (plan) => `${plan.target}${plan.edits ? `, ${plan.edits} edits` : ""} · ${short(plan.key)}`;
  const picker = make("select", { id: "before", onchange: () => {
    state.asked.delete("before");
    if (picker.value) state.asked.set("before", picker.value);
    location.assign(`?${state.asked}`);
  } }, make("option", { value: "" }, "none"), others.map((plan) => make("option", { value: plan.key, selected: plan.key === state.asked.get("before") }, said(plan))));
  return make("span", {}, make("label", { for: "before" }, "Compare with "), picker);
}

async function exportPlan(state, format, name) {
  const file = await work("/v1/exports", { model: state.model, plan: state.shown, format });
  const blob = await (await ask("GET", file.link)).blob();
  download(blob, `${name.replace(/[^\w.-]+/g, "_") || "model"}.${format}.${ENDINGS[format] ?? "onnx"}`);
}

// Quality and losses of a plan, and a search for a better one: all run the model on samples.
async function studies(state, record, draw) {
  const place = make("div", { role: "status" });
  const before = await samplesOf(state.model);
  const goal = make("input", { id: "goal", value: "sqnr=30", size: "12" });
  const buttons = [
    button("quality", async () => {
      place.textContent = "measuring the quality";
      const { quality } = await work("/v1/comparisons", { model: state.model, plan: state.shown, samples: buttons.samples, ...(record.stats ? { stats: record.stats } : {}) });
      place.replaceChildren(make("p", {}, make("span", { class: quality.grade }, `${quality.text}, ${gradeText(quality)}`), ` ${quality.measured_on}, ${quality.format === "interpreter" ? "in the reference interpreter" : `written as ${quality.format}`}; kept with the plan`));
      if (state.shown === state.key) await draw();
      else state.tell({ type: "qplan:measured", quality });
    }, { disabled: !before }),
    button("losses", async () => {
      place.textContent = "measuring losses";
      const found = await work("/v1/losses", { model: state.model, plan: state.shown, samples: buttons.samples });
      place.replaceChildren(make("p", {}, `Output ${found.judged}; ${found.begins}`), table("losses", ["kernel", "share of the noise", "SQNR alone"], found.kernels.slice(0, 20).map((one) => [one.name, one.share === null ? "" : `${(one.share * 100).toFixed(1)} %`, one.sqnr === null ? "" : `${one.sqnr.toFixed(1)} dB`])));
    }, { disabled: !before }),
    button("search", async () => {
      place.textContent = "searching";
      const stats = record.stats ?? (await work("/v1/calibrations", { model: state.model, samples: buttons.samples })).digest;
      const found = await work("/v1/searches", { model: state.model, target: record.target, samples: buttons.samples, stats, goal: goal.value });
      place.replaceChildren(make("p", {}, `${found.sentence} `, link(`/plans/${found.plan}?search=${found.blob}`, "open the plan and the front")));
    }, { disabled: !before }),
  ];
  buttons.samples = before?.samples;
  const zone = dropZone("study-file", before ? `Samples: ${before.name}; choose others, such as held-out ones, to measure on those` : "Samples for quality, losses and searches: .npz of arrays by input name", ".npz", (blob) => { buttons.samples = blob; buttons.forEach((one) => { one.disabled = false; }); });
  return make("section", {}, make("h2", {}, "Quality, losses and search"), zone, make("div", { class: "row" }, buttons.slice(0, 2), make("label", { for: "goal" }, "Goal"), goal, buttons[2]), place);
}
