// The page: shows what the address names, to whoever may see it.

import { get, Problem, token } from "./api.js";
import { attempt, button, make, say } from "./dom.js";
import { jobsPage } from "./jobs.js";
import { modelPage, modelsPage } from "./models.js";
import { planPage, plansPage } from "./plans.js";
import { targetPage, targetsPage } from "./targets.js";

const PLACES = [
  [/^\/$/, modelsPage, "Home"], [/^\/models\/(.+)$/, modelPage, "Model"],
  [/^\/plans$/, plansPage, "Plans"], [/^\/plans\/(.+)$/, planPage, "Plan"],
  [/^\/jobs/, jobsPage, "Jobs"],
  [/^\/targets$/, targetsPage, "Targets"], [/^\/targets\/(.+)$/, targetPage, "Target"],
];
const main = document.getElementById("main");

async function show() {
  let server;
  try { server = await get("/v1/server"); } catch (error) {
    if (error instanceof Problem && error.status === 401) return signIn(token.get() ? "This token is not known." : "");
    throw error;
  }
  const may = (scope) => server.scopes.includes(scope);
  if (!may("read")) return signIn("This token may not read.");
  if (token.get()) document.getElementById("who").replaceChildren(make("span", { class: "quiet" }, `${server.token ?? ""} `), button("sign out", () => { token.clear(); location.reload(); }));
  const [found, page, title] = PLACES.map(([place, page, title]) => [place.exec(location.pathname), page, title]).find(([found]) => found) ?? PLACES[0];
  document.title = `${title} · quant-planner`;
  for (const one of document.querySelectorAll("nav a")) if (one.pathname === location.pathname) one.setAttribute("aria-current", "page");
  main.replaceChildren(make("h1", {}, title));
  await page(main, { server, may }, found?.[1] && decodeURIComponent(found[1]));
  main.dataset.ready = "yes";
}

function signIn(told) {
  const field = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const form = make("form", { onsubmit: (event) => { event.preventDefault(); token.set(field.value.trim()); attempt(show); } },
    make("p", {}, make("label", { for: "token" }, "Token")), make("div", { class: "row" }, field, make("button", { class: "main" }, "sign in")));
  main.replaceChildren(make("h1", {}, "Sign in"), make("p", { class: "quiet" }, "This server asks for a token, as qplan token prints it. It is kept until this tab is closed."), told && make("p", { class: "bad", role: "alert" }, told), form);
  field.focus();
}

attempt(show).catch((error) => say(error.message));
