// Jobs: how they stand, as it happens; cancel what goes on.

import { ask, get } from "./api.js";
import { button, gradeText, link, make, short, table } from "./dom.js";

const WAIT = 2000;

export async function jobsPage(main, { may }) {
  const place = make("div");
  main.append(place);
  const update = async () => {
    const { items } = await get("/v1/jobs?limit=100");
    const rows = items.map((job) => [
      new Date(job.created * 1000).toLocaleString(), job.kind, make("span", { class: { failed: "bad", done: "good" }[job.state] ?? "" }, job.state), outcome(job),
      may("plan") && ["queued", "running"].includes(job.state) ? button("cancel", async () => { await ask("POST", `/v1/jobs/${job.id}:cancel`); await update(); }, { "aria-label": `cancel job ${job.id}` }) : "",
    ]);
    const text = JSON.stringify(items);
    if (text !== place.dataset.shown) place.replaceChildren(table("jobs", ["requested", "kind", "state", "outcome", "actions"], rows));
    place.dataset.shown = text;
    return items.some((job) => ["queued", "running"].includes(job.state));
  };
  await update();
  setInterval(() => { if (!document.hidden) update().catch(() => {}); }, WAIT);
}

function outcome(job) {
  if (job.problem) return job.problem.detail ?? job.problem.title;
  if (job.result?.plan) return link(`/plans/${job.result.plan}`, `plan ${short(job.result.plan)}`);
  if (job.result?.sentence) return job.result.sentence;
  if (job.result?.quality) return make("span", { class: job.result.quality.grade }, `${job.result.quality.text}, ${gradeText(job.result.quality)}`);
  if (job.kind === "calibration" && job.result) return `${job.result.samples} samples`;
  if (job.result?.link) return short(job.result.blob);
  if (job.progress) return `${job.progress.done}${job.progress.total ? ` of ${job.progress.total}` : ""}`;
  return "";
}
