// The API: requests with the caller's token, events of jobs, and files that go up in parts.

import { Sha256 } from "./sha256.js";

const TOKEN = "qplan.token";
const PART = 4 << 20;

export const token = { get: () => sessionStorage.getItem(TOKEN), set: (text) => sessionStorage.setItem(TOKEN, text), clear: () => sessionStorage.removeItem(TOKEN) };

export class Cancelled extends Error {}

export class Problem extends Error {
  constructor(document, status) {
    super([document.title, document.detail, document.hint].filter(Boolean).join(": ") || `status ${status}`);
    Object.assign(this, { document, status });
  }
}

export async function ask(method, path, body, headers = {}, signal = undefined) {
  const given = { ...headers };
  if (token.get()) given.Authorization = `Bearer ${token.get()}`;
  let sent = body;
  if (body !== undefined && !given["Content-Type"]) { given["Content-Type"] = "application/json"; sent = JSON.stringify(body); }
  const answer = await fetch(path, { method, headers: given, body: sent, signal, cache: method === "GET" ? "no-cache" : "default" });
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})), answer.status);
  return answer;
}

export const get = async (path) => (await ask("GET", path)).json();
export const post = async (path, body, headers, signal) => (await ask("POST", path, body, headers, signal)).json();

// All items of a list, page by page.
export async function all(path) {
  const found = [];
  for (let cursor = ""; cursor !== null;) {
    const page = await get(`${path}?limit=1000${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    found.push(...page.items);
    cursor = page.next;
  }
  return found;
}

// Follow a job to its end, by its events; EventSource could send no token.
export async function follow(job, told = () => {}) {
  let last = 0;
  for (let tries = 0; tries < 20; tries++) {
    try {
      const answer = await ask("GET", `/v1/jobs/${job.id}/events`, undefined, { "Last-Event-ID": String(last) });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        text += part.value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const fields = Object.fromEntries(event.split("\n").map((line) => { const at = line.indexOf(":"); return [line.slice(0, at), line.slice(at + 1).trim()]; }));
          if (fields.id) last = Number(fields.id);
          if (fields.event) told(fields.event, JSON.parse(fields.data ?? "{}"));
        }
      }
    } catch (error) {
      if (error instanceof Problem) throw error;
    }
    const now = await get(`/v1/jobs/${job.id}`);
    if (now.state === "done") return now.result;
    if (now.state === "failed") throw new Problem(now.problem ?? {}, 0);
    if (now.state === "cancelled") throw new Cancelled("the job was cancelled");
    await new Promise((go) => setTimeout(go, 500));
  }
  throw new Error(`job ${job.id} goes on; see Jobs`);
}

// Ask for work as a job, and follow it; what is there already is answered at once.
export async function work(path, body, told) {
  const answer = await ask("POST", path, body, { "Prefer": "respond-async" });
  const found = await answer.json();
  return answer.status === 202 ? follow(found, told) : found;
}

// Send a file in parts; the same file goes on where it stopped. Gives the digest of its blob.
export async function upload(file, told) {
  const hash = new Sha256();
  for (let at = 0; at < file.size; at += PART) {
    hash.update(new Uint8Array(await file.slice(at, at + PART).arrayBuffer()));
    told("reading", at / file.size);
  }
  const digest = `sha256:${hash.hex()}`;
  const kept = `qplan.upload.${digest}`;
  let standing = localStorage.getItem(kept) && await get(`/v1/uploads/${localStorage.getItem(kept)}`).catch(() => null);
  if (!standing) standing = await post("/v1/uploads", { digest, bytes: file.size });
  localStorage.setItem(kept, standing.id);
  let { offset } = standing;
  for (let failures = 0; offset < file.size;) {
    told("sending", offset / file.size);
    try {
      const answer = await ask("PATCH", `/v1/uploads/${standing.id}`, file.slice(offset, offset + PART), { "Content-Type": "application/octet-stream", "Upload-Offset": String(offset) });
      offset = Number(answer.headers.get("Upload-Offset"));
      failures = 0;
    } catch (error) {
      if ((error instanceof Problem && error.document.offset === undefined) || ++failures > 5) throw error;
      await new Promise((go) => setTimeout(go, 500 * failures));
      offset = (await get(`/v1/uploads/${standing.id}`).catch(() => ({ offset }))).offset;
    }
  }
  localStorage.removeItem(kept);
  return digest;
}
