// A client by the types that openapi-typescript generated, checked by tsc, driven from upload to download.
// `node typescript_run.js URL TOKEN MODEL TARGET WRITTEN SAMPLES` says what it was told on the way, as JSON.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Problem = components["schemas"]["ProblemDocument"];

const [baseUrl, token, modelFile, targetFile, written, samplesFile] = process.argv.slice(2) as [string, string, string, string, string, string];
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const octets = { "Content-Type": "application/octet-stream" };

function made<T>(answer: { data?: T; error?: Problem }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

// Bytes are `string` by the types, and bytes on the wire.
const bytes = (file: string) => readFileSync(file) as unknown as string;
const asTheyAre = { headers: octets, bodySerializer: (body: unknown) => body as BodyInit };

const digest = `sha256:${createHash("sha256").update(readFileSync(modelFile)).digest("hex")}`;
made(await client.PUT("/v1/targets/{name}", { params: { path: { name: "own-npu@1.0.0" } }, body: bytes(targetFile), ...asTheyAre }));
const linted = made(await client.POST("/v1/targets:lint", { body: { source: readFileSync(targetFile, "utf8") } }));
made(await client.PUT("/v1/blobs/{digest}", { params: { path: { digest } }, body: bytes(modelFile), ...asTheyAre }));
const model = made(await client.POST("/v1/models", { body: bytes(modelFile), ...asTheyAre })).digest;
const samples = made(await client.POST("/v1/blobs", { body: bytes(samplesFile), ...asTheyAre })).digest;
const header = { prefer: "wait=60" };
const quantized = made(
  await client.POST("/v1/quantizations", { params: { header }, body: { model, samples, target: "litert-int8", effort: "quick" } }),
);
if (!("verdict" in quantized)) throw new Error("a job, where a file was asked for");
const form = made(
  await client.POST("/v1/quantizations", {
    params: { header },
    body: { model, samples, target: "litert-int8", effort: "quick" },
    bodySerializer: (body: object) => {
      const fields = new FormData();
      for (const [name, text] of Object.entries(body)) fields.append(name, text);
      return fields;
    },
  }),
);
const plan = made(await client.POST("/v1/plans", { body: { model, target: "litert-int8" } }));
if (!("kernels" in plan)) throw new Error("a job, where a plan was asked for");
const file = made(await client.POST("/v1/exports", { body: { model, plan: plan.key, format: "onnx-qdq" } }));
if (!("blob" in file)) throw new Error("a job, where a file was asked for");
const blob = await client.GET("/v1/blobs/{digest}", { params: { path: { digest: file.blob } }, parseAs: "arrayBuffer" });
writeFileSync(written, Buffer.from(made(blob as { data?: ArrayBuffer })));
const own = made(await client.POST("/v1/plans", { body: { model, target: "own-npu" } }));
const listed = made(await client.GET("/v1/plans", {}));
const missing = await client.POST("/v1/plans", { body: { model, target: "litert-int9" } });
const port = plan.kernels[0]!.name;
const explained = made(await client.GET("/v1/plans/{key}/explain", { params: { path: { key: plan.key }, query: { port } } }));
console.log(
  JSON.stringify({
    key: plan.key,
    kernels: plan.kernels.map((kernel) => kernel.name),
    explained: explained.lines,
    plans: listed.items.map((item) => item.key).sort(),
    own: "key" in own ? own.key : null,
    linted: linted.id,
    quantized: [quantized.file, "file" in form ? form.file : null],
    problem: (missing.error as Problem).type,
  }),
);
