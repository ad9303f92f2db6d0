// All pipelines: is anything wrong, what flows where, and how far behind is it.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import { fetched, place, readOnly } from "../api.js";
import { past, status } from "../live.js";
import { A, Bar, Command, Pill, Problem, Spark, go, html } from "../ui.js";
import { WORST, bytes, count, plural, rate, span, tone } from "../words.js";

const OTHER_TASKS = ["source", "verify"];
const sinksOf = (pipeline) => Object.entries(pipeline.tasks).filter(([name]) => !OTHER_TASKS.includes(name));
const rank = (state) => WORST.indexOf(state);
const worstOf = (pipeline) => Math.min(rank(pipeline.state), ...Object.values(pipeline.tables).map((each) => rank(each.state)));

export function Overview() {
  const pipelines = Object.entries(status.value.pipelines), tables = pipelines.flatMap(([, each]) => Object.values(each.tables));
  if (!pipelines.length) return html`<${Nothing} />`;
  const troubles = pipelines.flatMap(([pipeline, each]) => troublesOf(pipeline, each));
  const into = pipelines.reduce((sum, [, each]) => sum + (each.tasks.source?.rows_per_s ?? 0), 0);
  const lags = pipelines.flatMap(([, each]) => (each.state === "paused" ? [] : sinksOf(each).map(([, task]) => task.lag_ms ?? 0)));
  const read = tables.filter((each) => each.state === "snapshotting").length;
  return html`
    <header class="top"><div>
      <h1>${verdict(troubles)}</h1>
      <p>${plural(pipelines.length, "pipeline")} · ${plural(tables.length, "table")} · <b>${rate(into)}</b> rows/s into the log · at most <b>${span(Math.max(0, ...lags))}</b> behind${
        read ? ` · ${plural(read, "table")} in the initial snapshot` : ""}</p></div>
      <${Find} />
    </header>
    ${status.value.is_running ? null : html`<${AtRest} />`}
    ${status.value.log_problem ? html`<p class="problem" role="alert">${status.value.log_problem}</p>` : null}
    ${troubles.map((each) => html`<${Trouble} key=${`${each.pipeline}/${each.name}`} ...${each} />`)}
    ${pipelines.sort((a, b) => worstOf(a[1]) - worstOf(b[1])).map(([name, each]) => html`<${Pipeline} key=${name} name=${name} of=${each} />`)}`;
}

function verdict(troubles) {
  if (!status.value.is_running) return "No pipeline is running.";
  if (!troubles.length) return "All flows.";
  const parts = troubles.reduce((sum, each) => sum + (each.count ?? 1), 0), areTables = troubles.every((each) => each.isTable || each.count);
  return html`All flows but <em>${plural(parts, areTables ? "table" : "part")}</em>.`;
}

const Nothing = () => html`<section class="empty"><h1>No pipeline is running</h1>
  <p>Write a pipeline file and run it; this page follows by itself.</p><${Command}>headwater init<//> <${Command}>headwater run pipeline.yaml<//></section>`;

const AtRest = () => html`<p class="problem" role="alert">The process that runs the pipelines does not answer. This is its last status${
  status.value.at_ms ? `, of ${span(status.value.seen_ms - status.value.at_ms)} ago` : ""}. <${Command}>headwater run<//></p>`;

const NAMED_MAX = 3;
const remarksOf = (of) => Object.values(of.tasks).flatMap((task) => Object.values(task.remarks ?? {}));

function troublesOf(pipeline, of) {
  const tables = Object.entries(of.tables).filter(([, each]) => each.state === "quarantined");
  const tasks = Object.entries(of.tasks).filter(([, each]) => ["quarantined", "retrying"].includes(each.state));
  return [
    ...remarksOf(of).filter((each) => each.left_out.length).map((each) => ({ pipeline, name: each.left_out.slice(0, NAMED_MAX).join(", ") + (each.left_out.length > NAMED_MAX ? ` and ${plural(each.left_out.length - NAMED_MAX, "more table")}` : ""), of: { state: "left out", reason: each.problem, hint: each.hint }, count: each.left_out.length })),
    ...tasks.map(([name, each]) => ({ pipeline, name, of: each, isTable: false })),
    ...tables.filter(([, each]) => !tasks.some(([, task]) => task.reason === each.reason)).map(([name, each]) => ({ pipeline, name, of: each, isTable: true })),
  ];
}

function Trouble({ pipeline, name, of, isTable, count: leftOut }) {
  if (leftOut) return html`<article class="trouble" aria-label=${`${name} left out`}><${Pill} state=${of.state} />
    <div><h2>${`${pipeline} / ${name}`}</h2><p>${of.reason}. <span class="dim">${of.hint ? `${of.hint}. ` : ""}${leftOut === 1 ? "Its changes do" : "Their changes do"} not enter the log; all other tables go on.</span></p><div class="cure"><${Command}>headwater doctor<//></div></div></article>`;
  const path = `${pipeline}${isTable ? `/${name}` : ""}`;
  return html`<article class="trouble" aria-label=${`${name} is ${of.state}`}>
    <${Pill} state=${of.state} />
    <div><h2>${isTable ? html`<${A} to=${`/pipelines${place(pipeline)}/tables${place(name)}`}>${pipeline} / ${name}<//>` : `${pipeline} / ${name}`}</h2>
      <p>${of.reason}. <span class="dim">${of.since_ms ? `For ${span(status.value.at_ms - of.since_ms)}. ` : ""}${isTable ? "The other tables go on; its changes wait in the log." : ""}</span></p>
      <div class="cure"><${Command}>${`headwater resume ${path}`}<//></div></div>
    <div class="acts"><${Act} verb="resume" path=${isTable ? [pipeline, "resume", name] : [pipeline, "resume"]}>Try again<//></div></article>`;
}

// A signal that can be taken back, so that it is sent by one click.
export function Act({ path, children, isStrong = false }) {
  const [problem, setProblem] = useState(null), [isSent, setSent] = useState(false);
  if (readOnly.value) return null;
  const send = async () => {
    setProblem(null); setSent(true);
    try { await fetched(`/pipelines${place(...path)}`, { method: "POST" }); } catch (error) { setProblem(error); }
    setTimeout(() => setSent(false), 1500);
  };
  return html`<button class=${`button ${isStrong ? "strong" : ""}`} disabled=${isSent} onClick=${send}>${children}</button>${problem ? html`<${Problem} of=${problem} />` : null}`;
}

function Find() {
  const box = useRef(), [asked, setAsked] = useState("");
  useEffect(() => {
    const onKey = (event) => { if (event.key === "/" && document.activeElement.tagName !== "INPUT") { event.preventDefault(); box.current.focus(); } };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const all = Object.entries(status.value.pipelines).flatMap(([pipeline, each]) => Object.keys(each.tables).map((table) => /** @type {[string, string]} */ ([pipeline, table])));
  const found = asked ? all.filter((each) => each.join("/").includes(asked)).slice(0, 8) : [];
  const to = ([pipeline, table]) => `/pipelines${place(pipeline)}/tables${place(table)}`;
  return html`<div class="find"><label class="hidden" for="find">Find a table</label>
    <input id="find" ref=${box} type="search" placeholder="Find a table" value=${asked} onInput=${(event) => setAsked(event.target.value)}
      onKeyDown=${(event) => { if (event.key === "Enter" && found[0]) go(to(found[0])); if (event.key === "Escape") setAsked(""); }} /><kbd>/</kbd>
    ${found.length ? html`<ul class="found">${found.map((each) => html`<li key=${each.join("/")}><${A} to=${to(each)}>${each[1]} <span class="dim">${each[0]}</span><//></li>`)}</ul>` : null}</div>`;
}

const SHOWN_MAX = 50;

export function Pipeline({ name, of }) {
  const [shown, setShown] = useState(SHOWN_MAX);
  const tables = Object.entries(of.tables).sort((a, b) => rank(a[1].state) - rank(b[1].state) || b[1].rows_per_s - a[1].rows_per_s);
  const isPaused = of.state === "paused", others = Object.entries(countBy(tables.slice(shown).map(([, each]) => each.state)));
  return html`<section class="card" aria-label=${`Pipeline ${name}`}>
    <header><h2><${A} to=${`/pipelines${place(name)}`}>${name}<//></h2><${Pill} state=${of.state} /><span class="dim">${of.since_ms ? `for ${span(status.value.at_ms - of.since_ms)}` : ""}</span>
      <div class="acts"><${Act} path=${[name, isPaused ? "resume" : "pause"]} isStrong=${isPaused}>${isPaused ? "Resume" : "Pause"}<//></div></header>
    <${Road} name=${name} of=${of} />
    ${Object.entries(of.tasks).flatMap(([task, each]) => Object.values(each.remarks ?? {}).filter((remark) => !remark.left_out.length).map((remark) => html`<p class="remark" key=${task + remark.problem}><b>${task}</b> ${remark.problem}. <span class="dim">${remark.hint}</span></p>`))}
    <div class="scroll" tabindex="0" role="region" aria-label=${`Tables of ${name}`}><table class="list even">
    <thead><tr><th scope="col">Table</th><th scope="col">State</th><th scope="col" class="num">Behind</th><th scope="col" class="num">Rows/s</th><th scope="col"><span class="hidden">The last two minutes</span></th><th scope="col">Verified</th><th scope="col" class="num">Dead letters</th></tr></thead>
    <tbody>${tables.slice(0, shown).map(([table, each]) => html`<${Line} key=${table} pipeline=${name} table=${table} of=${each} />`)}</tbody></table></div>
    ${others.length ? html`<p class="more">${plural(tables.length - shown, "more table")}: ${others.map(([state, found]) => `${count(found)} ${state}`).join(", ")}. <button class="button" onClick=${() => setShown(Infinity)}>Show all</button></p>` : null}</section>`;
}

function countBy(states) {
  const found = {};
  for (const each of states) found[each] = (found[each] ?? 0) + 1;
  return found;
}

const Line = ({ pipeline, table, of }) => html`<tr>
  <th scope="row"><${A} to=${`/pipelines${place(pipeline)}/tables${place(table)}`}>${table}<//></th>
  <td>${of.snapshot && !of.snapshot.is_done ? html`<${Reading} of=${of} table=${table} />` : html`<${Pill} state=${of.state} />`}</td>
  <td class=${`num ${of.lag_ms > 60_000 ? "late" : ""}`}>${of.state === "paused" ? "–" : span(of.lag_ms)}</td>
  <td class="num">${rate(of.rows_per_s)}</td>
  <td><${Spark} samples=${past.value[`${pipeline}//${table}`]} /></td>
  <td><${Verified} of=${of.verified} /></td>
  <td class=${`num ${of.dead_letters ? "late" : "dim"}`} title=${of.dead_letter_problem}>${of.dead_letters || "–"}</td></tr>`;

const Reading = ({ of, table }) => html`<span class="reading"><${Pill} state=${of.state} />${of.snapshot.fraction == null ? null : html`<${Bar} fraction=${of.snapshot.fraction} label=${`${table} read`} /><b>${Math.floor(of.snapshot.fraction * 100)} %</b>`}
  <span class="dim">${count(of.snapshot.rows)} rows${of.snapshot.eta_ms == null ? "" : `, ${span(of.snapshot.eta_ms)} left`}</span></span>`;

export function Verified({ of }) {
  if (!of) return html`<span class="dim">not compared yet</span>`;
  const ago = html`<span class="dim">${span(status.value.seen_ms - of.at_ms)} ago</span>`;
  if (of.is_equal) return html`<span class="equal">equal</span> ${ago}`;
  if (of.problem) return html`<span class="differs" title=${of.problem}>not compared</span> ${ago}`;
  return html`<span class="differs">${plural(of.differing, "key differs", "keys differ")}</span> ${ago}`;
}

// What the source sends, what the log holds, and what each sink has of it.
function Road({ name, of }) {
  const sinks = sinksOf(of), source = of.tasks.source, rows = Math.max(sinks.length, 1), tall = Math.max(rows * 64, 86), middle = tall / 2;
  const at = (i) => (sinks.length === 1 ? middle : 32 + i * ((tall - 64) / (rows - 1)));
  const width = (r) => (r > 0 ? Math.min(7, 2.2 + Math.log10(1 + r) * 0.9) : 1.6);
  const wal = source?.gauges?.retained_wal_bytes;
  const spoken = `${name}: ${rate(source?.rows_per_s)} rows per second into the log; ${sinks.map(([sink, task]) => `${sink} ${task.state}, ${span(task.lag_ms)} behind`).join("; ")}`;
  return html`<div class="road-box"><svg class="road" viewBox=${`0 0 1120 ${tall}`} role="img" aria-label=${spoken}>
    <${Flow} d=${`M208 ${middle}L452 ${middle}`} width=${width(source?.rows_per_s)} task=${source} />
    <text class="rate" x="330" y=${middle - 12}>${rate(source?.rows_per_s)} rows/s</text>
    <text class="sub" x="330" y=${middle + 22}>${source?.state === "paused" ? "paused" : `${span(source?.lag_ms)} after the commit`}</text>
    ${sinks.map(([sink, task], i) => html`<g key=${sink}><${Flow} d=${`M644 ${middle}C740 ${middle} 740 ${at(i)} 800 ${at(i)}L886 ${at(i)}`} width=${width(task.rows_per_s)} task=${task} />
      <text class="rate end" x="878" y=${at(i) - 10}>${task.state === "paused" ? "paused" : `${span(task.lag_ms)} behind`}</text></g>`)}
    <${Node} x=${8} y=${middle} kind="source" title="source" sub=${wal ? `keeps ${bytes(wal.value)} of WAL` : source?.state ?? ""} fraction=${wal?.limit ? wal.value / wal.limit : null} state=${source?.state} />
    <${Node} x=${452} y=${middle} kind="log" title="log" sub=${`${plural(Object.keys(of.tables).length, "table")} · ${count(source?.rows)} changes`} state="running" />
    ${sinks.map(([sink, task], i) => html`<${Node} key=${sink} x=${886} y=${at(i)} kind="sink" title=${sink} sub=${task.lag_records ? `${count(task.lag_records)} records to apply` : task.state} state=${task.state} />`)}
  </svg></div>`;
}

const Flow = ({ d, width, task }) => html`<g class=${`flow ${tone(task?.state)}`}><path class="bed" d=${d} style=${{ strokeWidth: width + 4 }} />
  <path class=${`water ${task?.rows_per_s > 0 ? "moves" : ""}`} d=${d} style=${{ strokeWidth: width, animationDuration: `${Math.max(0.35, 2.4 - Math.log10(1 + (task?.rows_per_s ?? 0)) * 0.42)}s` }} /></g>`;

const WIDTHS = { source: 200, log: 192, sink: 226 };
const Node = ({ x, y, kind, title, sub, state, fraction }) => html`<g class=${`node ${kind}`} transform=${`translate(${x} ${y - 27})`}>
  <rect width=${WIDTHS[kind]} height="54" rx="12" /><circle class=${tone(state)} cx="20" cy="21" r="4.5" />
  <text class="title" x="34" y="25.5">${title}</text><text class="sub" x="34" y="43">${sub}</text>
  ${fraction == null ? null : html`<rect class="meter" x="12" y="49" width="176" height="2.5" rx="1.2" /><rect class="meter on" x="12" y="49" width=${176 * Math.min(1, fraction)} height="2.5" rx="1.2" />`}</g>`;
