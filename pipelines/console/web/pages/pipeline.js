// One pipeline: its road, its tasks with positions and remarks, its tables, and what its file would do now.
import { useState } from "../vendor/hooks.mjs";
import { fetched, place } from "../api.js";
import { past, status } from "../live.js";
import { A, Command, List, Pill, Problem, Spark, html } from "../ui.js";
import { bytes, clock, count, day, rate, span, toClearMs } from "../words.js";
import { CommandButton } from "./dialog.js";
import { Graphs } from "./graphs.js";
import { Act, Pipeline as Card } from "./overview.js";
import { Timeline } from "./timeline.js";

export function Pipeline({ pipeline }) {
  const of = status.value.pipelines[pipeline];
  if (!of) return html`<section class="empty"><h1>${pipeline} is not running</h1><p>The log may have its tables and messages all the same.</p><${Command}>headwater run<//></section>`;
  return html`<p class="crumbs"><${A} to="/">Pipelines<//> /</p><header class="title"><h1>${pipeline}</h1><${Pill} state=${of.state} />
      <div class="acts"><${Act} path=${[pipeline, "restart"]}>Restart<//><${CommandButton} kind="snapshot" target=${pipeline} title="Read all rows of every table again">Snapshot…<//><${CommandButton} kind="verify" target=${pipeline} title=${`Verify ${pipeline}`}>Verify…<//></div></header>
    ${of.reason ? html`<p class="problem">${of.reason}</p>` : html`<p class="lead dim">${of.since_ms ? `for ${span(status.value.at_ms - of.since_ms)}` : ""}</p>`}
    <${Card} name=${pipeline} of=${of} />
    <section class="card"><header><h2>Tasks</h2></header><${List} label="Tasks" head=${["Task", "State", ["Behind"], ["Records behind"], ["Rows/s"], "Last two minutes", ["Retries"], ["Dead letters"]]}>
      ${Object.entries(of.tasks).map(([name, each]) => html`<tr key=${name}><th scope="row">${name}</th><td><${Pill} state=${each.state} /></td><td class="num">${span(each.lag_ms)}</td><td class="num">${each.lag_records == null ? "–" : count(each.lag_records)}${each.lag_ms > LATE_MS ? html`<br /><span class="dim">${clearing(each, of.tasks.source)}</span>` : null}</td><td class="num">${rate(each.rows_per_s)}</td>
        <td><${Spark} samples=${past.value[`${pipeline}/${name}`]} width=${160} /></td><td class="num">${each.retries || "–"}</td><td class="num">${each.dead_letters || "–"}</td></tr>`)}<//></section>
    <${Graphs} pipeline=${pipeline} />
    <${Timeline} path=${`/pipelines${place(pipeline)}/timeline`} pipeline=${pipeline} />
    ${Object.entries(of.tasks).map(([name, each]) => html`<${Positions} key=${name} name=${name} of=${each} />`)}
    <${FilePlan} />`;
}

const LATE_MS = 60_000;
function clearing(sink, source) {
  const ms = toClearMs(sink.lag_records, source?.rows_per_s ?? 0, sink.rows_per_s);
  return ms == null ? "not catching up" : `caught up in ${span(ms)}`;
}

const PARTS_MAX = 40;
const GAUGES = { verify_due_ms: "next comparison" };
const isOwn = (value) => value.startsWith("{");  // what a source notes for itself, not a place
function Positions({ name, of }) {
  const gauges = Object.entries(of.gauges ?? {}), parts = Object.entries(of.positions), own = parts.filter(([, value]) => isOwn(value)), places = parts.filter(([, value]) => !isOwn(value));
  if (!parts.length && !gauges.length) return null;
  const shown = (gauge, value) => (gauge.endsWith("_ms") ? `${day(value)} ${clock(value, false)} UTC` : gauge.endsWith("_bytes") ? bytes(value) : count(value));
  const pair = ([part, value]) => html`<dt key=${part}><code>${part}</code></dt><dd><code>${value}</code></dd>`;
  return html`<section class="card"><header><h2>${name}</h2><span class="dim">${name === "source" ? "its position in the source" : name === "verify" ? "the schedule of its file" : "what it has applied"}</span></header><dl class="pairs inset">
    ${gauges.map(([gauge, each]) => html`<dt key=${gauge}>${GAUGES[gauge] ?? gauge.replaceAll("_", " ")}</dt><dd>${shown(gauge, each.value)}${each.limit ? html` <span class="dim">of ${shown(gauge, each.limit)}</span>` : null}</dd>`)}
    ${places.slice(0, PARTS_MAX).map(pair)}${places.length > PARTS_MAX ? html`<dt /><dd class="dim">${count(places.length - PARTS_MAX)} more</dd>` : null}</dl>
    ${own.length ? html`<details class="more"><summary>What it notes for itself: ${count(own.length)}</summary><dl class="pairs">${own.slice(0, PARTS_MAX).map(pair)}</dl></details>` : null}</section>`;
}

function FilePlan() {
  const [plan, setPlan] = useState(null), [problem, setProblem] = useState(null), [isBusy, setBusy] = useState(false);
  const look = async () => {
    setBusy(true); setProblem(null);
    try { setPlan(await fetched("/file-plan")); } catch (error) { setProblem(error); }
    setBusy(false);
  };
  return html`<section class="card"><header><h2>The file now</h2><span class="dim">what a run of it would create or change</span><div class="acts"><button class="button" disabled=${isBusy} onClick=${look}>${isBusy ? "Reading…" : "Compare with what runs"}</button></div></header>
    ${problem ? html`<div class="inset"><${Problem} of=${problem} /></div>` : null}${plan ? html`<pre class="said inset" tabindex="0" aria-label="Plan of the file">${plan.lines.join("\n")}</pre>` : html`<p class="note"><${Command}>headwater plan<//></p>`}</section>`;
}
