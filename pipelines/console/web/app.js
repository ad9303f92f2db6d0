// The frame of every page, and the choice of one by the address.
import { render } from "./vendor/preact.mjs";
import { useEffect, useState } from "./vendor/hooks.mjs";
import "./vendor/signals.mjs";
import { openSession, refused } from "./api.js";
import { follow, link, status } from "./live.js";
import { Overview } from "./pages/overview.js";
import { A, Command, Icon, address, html } from "./ui.js";

// Loaded when they are first opened, so that the first page is soon there.
const MODULES = {
  cluster: () => import("./pages/cluster.js"),
  letters: () => import("./pages/letters.js"),
  log: () => import("./pages/log.js"),
  pipeline: () => import("./pages/pipeline.js"),
  runs: () => import("./pages/runs.js"),
  table: () => import("./pages/table.js"),
  topic: () => import("./pages/topic.js"),
};
const loaded = {};

function Later({ module, name, ...given }) {
  const [found, setFound] = useState(loaded[module]);
  useEffect(() => {
    if (!found) MODULES[module]().then((page) => setFound((loaded[module] = page)), () => setFound({}));
  }, []);
  if (!found) return html`<p class="quiet">Reading the page…</p>`;
  return found[name] ? html`<${found[name]} ...${given} />` : html`<section class="empty"><h1>The page cannot be read</h1><p>The console does not answer. Open the link that it printed.</p></section>`;
}

const later = (module, name, key = "", given = {}) => html`<${Later} key=${`${module} ${name} ${key}`} module=${module} name=${name} ...${given} />`;

/** @typedef {(...parts: string[]) => any} OfParts */
/** @type {[RegExp, OfParts, OfParts][]} */
const PAGES = [
  [/^\/$/, () => html`<${Overview} />`, () => "Headwater"],
  [/^\/pipelines\/([^/]+)$/, (pipeline) => later("pipeline", "Pipeline", pipeline, { pipeline }), (pipeline) => pipeline],
  [/^\/pipelines\/([^/]+)\/tables\/([^/]+)$/, (pipeline, table) => later("table", "Table", `${pipeline}/${table}`, { pipeline, table }), (_, table) => table],
  [/^\/log$/, () => later("log", "Topics"), () => "Log"],
  [/^\/log\/topics\/([^/]+)$/, (topic) => later("topic", "Topic", topic, { topic }), (topic) => topic],
  [/^\/log\/groups$/, () => later("log", "Groups"), () => "Consumer groups"],
  [/^\/log\/groups\/([^/]+)$/, (group) => later("log", "Group", group, { group }), (group) => group],
  [/^\/letters$/, () => later("letters", "Letters"), () => "Dead letters"],
  [/^\/letters\/([^/]+)$/, (pipeline) => later("letters", "LettersOf", `${pipeline}${location.search}`, { pipeline }), () => "Dead letters"],
  [/^\/letters\/([^/]+)\/(\d+)$/, (pipeline, number) => later("letters", "Letter", number, { pipeline, number }), (_, number) => `Dead letter #${number}`],
  [/^\/verification$/, () => later("runs", "Verification"), () => "Verification"],
  [/^\/verification\/runs$/, () => later("runs", "Runs"), () => "Runs"],
  [/^\/cluster$/, () => later("cluster", "Cluster"), () => "Cluster"],
  [/^\/audit$/, () => later("runs", "Audit"), () => "Who did what"],
];
/** @type {[string, string, string, (path: string) => boolean][]} */
const RAIL = [
  ["/", "Pipelines", "M3 6c3-4 5-4 7 0s4 4 7 0M3 13c3-4 5-4 7 0s4 4 7 0", (path) => path === "/" || path.startsWith("/pipelines")],
  ["/log", "Log", "M3 4h14M3 8h14M3 12h9M3 16h9", (path) => path.startsWith("/log")],
  ["/letters", "Dead letters", "M3 5h14v10H3zM3 6l7 5 7-5", (path) => path.startsWith("/letters")],
  ["/verification", "Verification", "M3 10l4 4 10-9", (path) => path.startsWith("/verification")],
  ["/cluster", "Cluster", "M4 4h12v5H4zM4 11h12v5H4zM7 6.5h.1M7 13.5h.1", (path) => path === "/cluster"],
  ["/audit", "Who did what", "M10 3a3 3 0 110 6 3 3 0 010-6M4 17c0-4 3-5 6-5s6 1 6 5", (path) => path === "/audit"],
];
const SAID = { live: "live", lost: "connection lost, trying again", "at rest": "no pipeline is running", connecting: "connecting" };

function switchTheme() {
  const root = document.documentElement, isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const next = (root.dataset.theme ?? (isDark ? "dark" : "light")) === "dark" ? "light" : "dark";
  root.dataset.theme = next;
  localStorage.setItem("theme", next);
}

function find(path) {
  for (const [pattern, page, title] of PAGES) {
    const found = pattern.exec(path)?.slice(1).map(decodeURIComponent);
    if (found) return [page(...found), title(...found)];
  }
  return [html`<section class="empty"><h1>There is no such page</h1><p><${A} to="/" class="button">To the pipelines<//></p></section>`, "Headwater"];
}

function App() {
  const path = address.value.pathname, [page, title] = find(path);
  useEffect(() => { document.title = title === "Headwater" ? title : `${title} · Headwater`; }, [title]);
  const quarantined = Object.values(status.value?.pipelines ?? {}).flatMap((each) => Object.values(each.tables)).filter((each) => each.state === "quarantined").length;
  const letters = Object.values(status.value?.pipelines ?? {}).flatMap((each) => Object.values(each.tables)).reduce((sum, each) => sum + each.dead_letters, 0);
  const badges = { "/": [quarantined, "quarantined"], "/letters": [letters, "dead letters since the start"] };
  return html`<a class="skip" href="#main">To the content</a>
  <nav class="rail" aria-label="Pages">
    <${A} to="/" class="mark"><img src="/static/mark.svg" width="28" height="28" alt="" /><b>Headwater</b><//>
    <ul>${RAIL.map(([to, name, d, isHere]) => html`<li key=${to}><${A} to=${to} aria-current=${isHere(path) ? "page" : undefined}><${Icon} d=${d} /><span>${name}</span>${
      badges[to]?.[0] ? html`<em class="badge bad" aria-label=${badges[to].join(" ")}>${badges[to][0]}</em>` : null}<//></li>`)}</ul>
    <div class="foot">
      <button class="ghost" onClick=${switchTheme}><${Icon} d="M10 3a7 7 0 107 7 5.5 5.5 0 01-7-7z" /><span>Light or dark</span></button>
      <p class=${`link ${link.value === "live" ? "live" : link.value === "connecting" ? "" : "lost"}`} role="status"><i />${SAID[link.value]}</p>
    </div>
  </nav>
  <main id="main" tabindex="-1">${refused.value ? html`<${Refused} />` : !status.value ? html`<p class="quiet">Reading the status…</p>` : page}</main>`;
}

const Refused = () => html`<section class="empty"><h1>This link is no longer valid</h1>
  <p>The console has a new secret with every start. Open the link that it printed.</p><${Command}>headwater ui<//></section>`;

render(html`<${App} />`, document.getElementById("app"));
openSession().catch(() => {});
follow();
