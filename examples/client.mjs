// The planner from JavaScript: a client made of the OpenAPI document alone, no packages.
//   node examples/client.mjs http://127.0.0.1:8000 openapi.json model.json
// where openapi.json is `GET /openapi.json` and model.json an annotated model.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** One function for each operation: `api.get_plan({key})`, parameters by name, `body` and `type` beside them. */
function clientOf(url, document) {
  const api = {};
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, operation] of Object.entries(methods))
      api[operation.operationId] = (given = {}) => call(url, path, method, operation, given);
  return api;
}

async function call(url, path, method, operation, { body, type, ...given }) {
  const query = new URLSearchParams();
  const headers = {};
  for (const { name, in: place, required } of operation.parameters ?? []) {
    if (!(name in given)) {
      if (required) throw new Error(`${operation.operationId} needs ${name}`);
    } else if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(given[name]));
    else if (place === "query") query.set(name, given[name]);
    else headers[name] = given[name];
  }
  if (body !== undefined) {
    headers["content-type"] = type ?? Object.keys(operation.requestBody.content)[0];
    if (headers["content-type"] === "application/json") body = JSON.stringify(body);
  }
  const answer = await fetch(`${url}${path}?${query}`, { method: method.toUpperCase(), headers, body });
  const media = answer.headers.get("content-type") ?? "";
  const content = media.includes("json") ? await answer.json() : await answer.text();
  if (!answer.ok) throw Object.assign(new Error(content.detail), { problem: content.type?.split(":").pop() });
  return { status: answer.status, content };
}

async function everyPort(api, key) {
  const found = [];
  let cursor = "";
  while (cursor !== null) {
    const { content } = await api.list_ports({ key, limit: 10, ...(cursor && { cursor }) });
    found.push(...content.items);
    cursor = content.next;
  }
  return found;
}

const [url, file, model] = process.argv.slice(2);
const document = JSON.parse(readFileSync(file, "utf8"));
const api = clientOf(url, document);

const bytes = readFileSync(model);
const blob = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
await api.put_blob({ digest: blob, body: bytes });
const record = (await api.read_model({ body: { blob } })).content;

const asked = { model: record.digest, target: "litert-int8", options: { strategy: "rfc" } };
const begun = await api.make_plan({ body: asked, prefer: "respond-async" });
let states = [];
if (begun.status === 202) {
  const events = (await api.job_events({ id: begun.content.id })).content;
  states = [...events.matchAll(/^event: (.*)$/gm)].map((found) => found[1]);
}
const plan = (await api.make_plan({ body: asked, prefer: "wait=60" })).content;
const restored = (await api.replan({ key: plan.key, body: { restore: [plan.kernels[0].name] } })).content;
const problem = await api.get_target({ name: "litert-int9" }).catch((error) => error.problem);

console.log(
  JSON.stringify({
    operations: Object.keys(api).length,
    kernels: plan.kernels.length,
    restored: restored.kernels.length,
    floats: restored.kernels.filter((kernel) => kernel.row === null).length,
    ports: (await everyPort(api, plan.key)).length,
    states,
    problem,
  }),
);
