// The service from TypeScript: a model goes up, is planned and measured for a device, and comes back quantized.
// Types and calls are made of the server's own description:
//   npm install typescript openapi-typescript openapi-fetch @types/node
//   npx openapi-typescript http://127.0.0.1:8000/openapi.json --default-non-nullable false --output api.ts
//   npx tsc --strict --target es2022 --module nodenext service.ts
//   node service.js MODEL.onnx SAMPLES.npz OUT [TARGET] [URL]
// A token, where the server asks for one, is read from QPLAN_TOKEN.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const [model, samples, out, target = "litert-int8", baseUrl = "http://127.0.0.1:8000"] = process.argv.slice(2) as [string, string, string, string?, string?];
const secret = process.env["QPLAN_TOKEN"];
const client = createClient<paths>({ baseUrl, headers: secret ? { Authorization: `Bearer ${secret}` } : {} });
const wait = { header: { prefer: "wait=60" } }; // the answer rather than a job, if it takes no longer

function made<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

// The result, where the server answered with one; a job that goes on is followed at /v1/jobs/ID.
function done<T extends object, K extends string>(answer: T, key: K): Extract<T, Record<K, unknown>> {
  if (!(key in answer)) throw new Error(`the job goes on: ${JSON.stringify(answer)}`);
  return answer as Extract<T, Record<K, unknown>>;
}

async function uploaded(file: string): Promise<string> {
  const bytes = readFileSync(file);
  const digest = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
  const headers = { "Content-Type": "application/octet-stream" };
  made(await client.PUT("/v1/blobs/{digest}", { params: { path: { digest } }, body: bytes as unknown as string, headers, bodySerializer: (body) => body as unknown as BodyInit }));
  return digest;
}

const [blob, data] = [await uploaded(model), await uploaded(samples)];
const digest = made(await client.POST("/v1/models", { body: { blob } })).digest;
const stats = done(made(await client.POST("/v1/calibrations", { params: wait, body: { model: digest, samples: data } })), "digest").digest;
const { key } = done(made(await client.POST("/v1/plans", { params: wait, body: { model: digest, target, stats } })), "key");
const compared = done(made(await client.POST("/v1/comparisons", { params: wait, body: { model: digest, plan: key, samples: data, stats, held_out: false } })), "outputs");
const summary = made(await client.GET("/v1/plans/{key}/summary", { params: { path: { key } } }));
console.log(`${summary.integer} of ${summary.kernels} kernels quantized for ${summary.target}`);
for (const cause of summary.causes ?? []) console.log(`  ${cause}`);
if (compared.quality) console.log(`${compared.quality.text}, ${compared.quality.grade}, ${compared.quality.measured_on}`);
const format = (summary.formats?.[0] ?? "onnx-qdq") as "onnx-qdq";
const file = done(made(await client.POST("/v1/exports", { params: wait, body: { model: digest, plan: key, format } })), "blob");
const bytes = await client.GET("/v1/blobs/{digest}", { params: { path: { digest: file.blob } }, parseAs: "arrayBuffer" });
writeFileSync(out, Buffer.from(made(bytes as { data?: ArrayBuffer })));
console.log(`${out}: ${readFileSync(out).length.toLocaleString("en")} bytes of ${format}; the report: ${baseUrl}/plans/${key}`);
