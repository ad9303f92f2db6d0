// The frame of every page, and the choice of one by the address.
import { render } from "./vendor/preact.mjs";
import { useEffect } from "./vendor/hooks.mjs";
import "./vendor/signals.mjs";
import { openSession, refused } from "./api.js";
import { follow, link, status } from "./live.js";
import { Cluster } from "./pages/cluster.js";
import { Group, Groups, Topics } from "./pages/log.js";
import { Letter, Letters, LettersOf } from "./pages/letters.js";
import { Overview } from "./pages/overview.js";
import { Pipeline } from "./pages/pipeline.js";
import { Audit, Runs, Verification } from "./pages/runs.js";
import { Table } from "./pages/table.js";
import { Topic } from "./pages/topic.js";
import { A, Command, Icon, address, html } from "./ui.js";

const PAGES = [
  [/^\/$/, () => html`<${Overview} />`, () => "Headwater"],
  [/^\/pipelines\/([^/]+)$/, (pipeline) => html`<${Pipeline} key=${pipeline} pipeline=${pipeline} />`, (pipeline) => pipeline],
  [/^\/pipelines\/([^/]+)\/tables\/([^/]+)$/, (pipeline, table) => html`<${Table} key=${`${pipeline}/${table}`} pipeline=${pipeline} table=${table} />`, (_, table) => table],
  [/^\/log$/, () => html`<${Topics} />`, () => "Log"],
  [/^\/log\/topics\/([^/]+)$/, (topic) => html`<${Topic} key=${topic} topic=${topic} />`, (topic) => topic],
  [/^\/log\/groups$/, () => html`<${Groups} />`, () => "Consumer groups"],
  [/^\/log\/groups\/([^/]+)$/, (group) => html`<${Group} key=${group} group=${group} />`, (group) => group],
  [/^\/letters$/, () => html`<${Letters} />`, () => "Dead letters"],
  [/^\/letters\/([^/]+)$/, (pipeline) => html`<${LettersOf} key=${location.search} pipeline=${pipeline} />`, () => "Dead letters"],
  [/^\/letters\/([^/]+)\/(\d+)$/, (pipeline, number) => html`<${Letter} key=${number} pipeline=${pipeline} number=${number} />`, (_, number) => `Dead letter #${number}`],
  [/^\/verification$/, () => html`<${Verification} />`, () => "Verification"],
  [/^\/verification\/runs$/, () => html`<${Runs} />`, () => "Runs"],
  [/^\/cluster$/, () => html`<${Cluster} />`, () => "Cluster"],
  [/^\/audit$/, () => html`<${Audit} />`, () => "Who did what"],
];
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
