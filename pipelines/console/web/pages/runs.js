// Verification: every table's last comparison, the commands that run, and who did what.
import { place } from "../api.js";
import { status } from "../live.js";
import { A, List, Loading, Pill, Tabs, html, useAnswer } from "../ui.js";
import { clock, count, day, plural, span } from "../words.js";
import { CancelRun, CommandButton, RunFacts } from "./dialog.js";
import { Verified } from "./overview.js";

const LOOK_MS = 2000;
const TABS = [["/verification", "Tables"], ["/verification/runs", "Runs"]];
const worst = (of) => (of == null ? 1 : of.is_equal ? 2 : 0);
const at = (ms) => html`<code>${day(ms)} ${clock(ms, false)}</code>`;

export function Verification() {
  const tables = Object.entries(status.value.pipelines).flatMap(([pipeline, of]) => Object.entries(of.tables).map(([table, each]) => [pipeline, table, each.verified]));
  const differ = tables.filter(([, , each]) => each && !each.is_equal).length, open = tables.filter(([, , each]) => !each).length;
  tables.sort((a, b) => worst(a[2]) - worst(b[2]) || (a[2]?.at_ms ?? 0) - (b[2]?.at_ms ?? 0));
  return html`<header class="top"><div><h1>${!tables.length ? "Verification" : differ ? html`<em>${plural(differ, "table")}</em> not shown to be equal` : open ? "No difference is known." : "Source, log and targets are equal."}</h1>
      <p>${plural(tables.length, "table")}${open ? ` · ${plural(open, "was", "were")} not compared yet` : ""}</p></div>
      <div class="acts">${Object.keys(status.value.pipelines).map((pipeline) => html`<${CommandButton} key=${pipeline} kind="verify" target=${pipeline} title=${`Verify ${pipeline}`}>Verify ${pipeline}…<//>`)}</div></header>
    <${Tabs} label="Verification" of=${TABS} now="Tables" />
    ${tables.length ? html`<section class="card"><${List} label="Tables" head=${["Table", "Result", "Compared", ["Rows"], "With", "Again"]}>
      ${tables.map(([pipeline, table, of]) => html`<tr key=${`${pipeline}/${table}`}><th scope="row"><${A} to=${`/pipelines${place(pipeline)}/tables${place(table)}?tab=verify`}>${table}<//> <span class="dim">${pipeline}</span></th>
        <td><${Verified} of=${of} /></td><td>${of ? at(of.at_ms) : "–"}</td><td class="num">${of ? count(of.rows) : "–"}</td><td class="dim">${of ? of.sides.join(", ") : "–"}</td>
        <td><${CommandButton} kind="verify" target=${`${pipeline}/${table}`} title=${`Verify ${table}`}>Verify…<//></td></tr>`)}<//></section>`
    : html`<section class="empty"><h2>No pipeline is running</h2></section>`}`;
}

export function Runs() {
  const { answer, problem } = useAnswer("/runs", LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  return html`<header class="top"><div><h1>Runs</h1><p>Commands that this console has started; <${A} class="to" to="/audit">who did what<//> has those of terminals, too</p></div></header>
    <${Tabs} label="Verification" of=${TABS} now="Runs" />
    ${answer.length ? answer.map((each) => html`<section class="card run" key=${each.id} aria-label=${`${each.kind} ${each.target}`}><header><h2>${each.kind} <span class="dim">${each.target}</span></h2><span class="dim">${at(each.started_ms)}</span>
      ${each.state === "running" ? html`<div class="acts"><${CancelRun} id=${each.id} /></div>` : null}</header><div class="inset"><${RunFacts} of=${each} /></div></section>`)
    : html`<section class="empty"><h2>Nothing was run here yet</h2><p>A table's page verifies it, repairs it, and rebuilds it from the log.</p></section>`}`;
}

const OUTCOMES = { started: "starting", done: "done", failed: "failed" };
export function Audit() {
  const { answer, problem } = useAnswer("/audit", LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  if (!answer.length) return html`<section class="empty"><h1>Nobody did anything yet</h1><p>Commands that act write here who did what: pause, resume, snapshot, verify, rebuild, replay, maintain, drop, dead letters, and changes of topics and groups; so do requests to the HTTP address.</p></section>`;
  return html`<header class="top"><div><h1>Who did what</h1><p>The log keeps it for 90 days, without keys or values of rows</p></div></header>
    <section class="card"><${List} label="Actions" head=${["When", "Who", "From", "What", "Target", "Outcome"]}>
      ${answer.map((each) => html`<tr key=${each.id}><td>${at(each.started_ms)}</td><th scope="row">${each.user}</th><td class="dim">${each.host}, ${each.via === "console" ? "console" : "terminal"}</td>
        <td>${each.command} <span class="dim">${Object.entries(each.options).map(([name, value]) => `--${name.replaceAll("_", "-")}${value === "True" ? "" : ` ${value}`}`).join(" ")}</span></td><td>${each.target}</td>
        <td><${Pill} state=${OUTCOMES[each.outcome]} /> <span class="dim">${each.problem || (each.ended_ms ? `after ${span(each.ended_ms - each.started_ms)}` : "no end is known")}</span></td></tr>`)}<//></section>`;
}
