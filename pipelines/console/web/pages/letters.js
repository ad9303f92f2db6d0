// Dead letters: records that could not be applied, by table and problem, and one with its record.
import { place } from "../api.js";
import { A, Command, List, Loading, html, useAnswer } from "../ui.js";
import { OPERATIONS, clock, count, day } from "../words.js";
import { CommandButton } from "./dialog.js";

const LOOK_MS = 5000;
const at = (ms) => html`<code>${day(ms)} ${clock(ms, false)}</code>`;
const STAGES = { source: "at the source", decoding: "when it was decoded", transform: "in a transform", sink: "at the target" };

export function Letters() {
  const { answer, problem } = useAnswer("/letters", LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const total = answer.reduce((sum, each) => sum + each.count, 0);
  if (!total) return html`<section class="empty"><h1>There is no dead letter</h1><p>A record that can never be applied is set aside with its reason, and shown here. All others go on.</p></section>`;
  return html`<header class="top"><div><h1>Dead letters</h1><p><b>${count(total)}</b> ${total === 1 ? "record waits" : "records wait"} for somebody; the others go on</p></div></header>
    <section class="card"><${List} label="Dead letters" head=${["Table", "Problem", ["Records"], "Oldest", "Newest", "Failed"]}>
      ${answer.map((each) => html`<tr key=${`${each.pipeline}/${each.table} ${each.task} ${each.problem}`}><th scope="row"><${A} to=${`/letters${place(each.pipeline)}?table=${encodeURIComponent(each.table)}`}>${each.table}<//> <span class="dim">${each.pipeline}</span></th>
        <td class="wrap">${each.problem}</td><td class="num">${count(each.count)}</td><td>${at(each.oldest_ms)}</td><td>${at(each.newest_ms)}</td><td class="dim">${STAGES[each.stage] ?? each.stage}, ${each.task}</td></tr>`)}<//></section>`;
}

export function LettersOf({ pipeline }) {
  const table = new URL(location.href).searchParams.get("table"), query = table ? `?table=${encodeURIComponent(table)}` : "";
  const { answer, problem } = useAnswer(`/pipelines${place(pipeline)}/letters${query}`, LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const options = table ? { table } : {};
  return html`<p class="crumbs"><${A} to="/letters">Dead letters<//> / ${pipeline}</p><header class="title"><h1>${table ?? "All tables"}</h1>
      ${answer.length ? html`<div class="acts"><${CommandButton} kind="drop-dead-letters" target=${pipeline} options=${options} title="Drop dead letters">Drop…<//><${CommandButton} isStrong kind="redrive" target=${pipeline} options=${options} title="Redrive dead letters">Redrive…<//></div>` : null}</header>
    <p class="lead dim">${answer.length ? "Remove the cause first; a redrive never puts an old value over a newer row." : "Nothing waits here any more."}</p>
    ${answer.length ? html`<section class="card"><${List} label="Dead letters of the pipeline" head=${["Number", "Since", "Table", "Problem", "Place"]}>
      ${answer.map((each) => html`<tr key=${each.number}><th scope="row"><${A} to=${`/letters${place(pipeline)}/${each.number}`}>${`#${each.number}`}<//></th><td>${at(each.since_ms)}</td><td>${each.table}</td><td class="wrap">${each.problem}</td><td class="dim"><code>${each.place}</code></td></tr>`)}<//></section>` : null}`;
}

export function Letter({ pipeline, number }) {
  const { answer, problem } = useAnswer(`/pipelines${place(pipeline)}/letters/${number}`);
  if (!answer) return html`<p class="crumbs"><${A} to="/letters">Dead letters<//> /</p><${Loading} problem=${problem} />`;
  const { line } = answer, past = answer.key && answer.operation ? `/pipelines${place(pipeline)}/tables${place(line.table)}?only=${encodeURIComponent(answer.key)}&key=${encodeURIComponent(answer.key)}` : null;
  const record = answer.topic ? `/log/topics${place(answer.topic)}?partition=${answer.partition}&until=${answer.partition}:${answer.offset + 1}` : null;
  return html`<p class="crumbs"><${A} to="/letters">Dead letters<//> / <${A} to=${`/letters${place(pipeline)}?table=${encodeURIComponent(line.table)}`}>${line.table}<//></p>
    <header class="title"><h1>${`Dead letter #${number}`}</h1><div class="acts"><${CommandButton} kind="drop-dead-letters" target=${pipeline} options=${{ number }} title="Drop the dead letter">Drop…<//>
      ${answer.is_redrivable ? html`<${CommandButton} isStrong kind="redrive" target=${pipeline} options=${{ number }} title="Redrive the dead letter">Redrive…<//>` : null}</div></header>
    <p class="problem">${line.problem}</p>
    <section class="card"><header><h2>Where it failed</h2></header><dl class="pairs inset"><dt>Table</dt><dd><${A} class="to" to=${`/pipelines${place(pipeline)}/tables${place(line.table)}`}>${line.table}<//></dd>
      <dt>Failed</dt><dd>${STAGES[line.stage] ?? line.stage}, in ${line.task}</dd><dt>Since</dt><dd>${at(line.since_ms)}</dd><dt>Record</dt><dd>${record ? html`<${A} class="to" to=${record}><code>${line.place}</code><//>` : html`<code>${line.place}</code>`}</dd>
      ${answer.at ? html`<dt>Change at the source</dt><dd><code>${answer.at}</code></dd>` : null}<dt>A redrive</dt><dd>${answer.is_redrivable ? "would put it back: no newer record of its key exists" : answer.fate}</dd></dl></section>
    <section class="card"><header><h2>The record</h2>${answer.operation ? html`<span class="dim">${OPERATIONS[answer.operation]}</span>` : null}${past ? html`<div class="acts"><${A} class="button" to=${past}>History of its key<//></div>` : null}</header>
      ${answer.fields.length ? html`<${List} label="Values" head=${["Column", "Value"]}>${answer.fields.map((each) => html`<tr key=${each.name}><th scope="row">${each.name}</th><td class="wrap"><code>${each.value ?? "null"}</code></td></tr>`)}<//>`
      : html`<pre class="said inset" tabindex="0" aria-label="The record as stored">${answer.value || "no content"}</pre>`}</section>
    <section class="card"><header><h2>In a terminal</h2></header><p class="note"><${Command}>${`headwater dlq show ${pipeline} --number ${number}`}<//></p></section>`;
}
