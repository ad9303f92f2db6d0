// What happened, on one axis of time: one lane for each kind, and the entries in words below it.
import { useState } from "../vendor/hooks.mjs";
import { place } from "../api.js";
import { A, List, Loading, html, useAnswer } from "../ui.js";
import { clock, day, plural } from "../words.js";

export const LOOK_MS = 10_000, SHOWN = 8;
const LANES = { schema: "Schemas", truncate: "Truncates", comparison: "Comparisons", command: "Commands", "dead letter": "Dead letters", version: "Target versions" };
const markOf = (each) => (each.is_problem ? "mark-bad" : `mark-${each.kind}`);
const time = (ms) => `${day(ms)} ${clock(ms, false)}`;

export function Timeline({ path, pipeline }) {
  const { answer, problem } = useAnswer(path, LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const { entries } = answer;
  return html`<section class="card" aria-label="Timeline"><header><h2>Timeline</h2><span class="dim">${entries.length ? `${plural(entries.length, "event")}${answer.is_whole ? "" : ", older ones are not shown"}` : "nothing has happened yet"}</span></header>
    ${entries.length ? html`<${Axis} entries=${entries} /><${Entries} entries=${entries} pipeline=${pipeline} />` : null}</section>`;
}

// Hidden from readers of a screen: the list below says the same.
function Axis({ entries }) {
  const times = entries.map((each) => each.at_ms), to = Math.max(Date.now(), ...times), from = Math.min(...times), wide = Math.max(to - from, 1);
  return html`<div class="axis" aria-hidden="true">${Object.entries(LANES).filter(([kind]) => entries.some((each) => each.kind === kind)).map(([kind, title]) => html`<div class="lane" key=${kind}><b>${title}</b><span>
      ${entries.filter((each) => each.kind === kind).map((each, i) => html`<i key=${i} class=${markOf(each)} style=${{ left: `${((each.at_ms - from) / wide) * 100}%` }} title=${`${time(each.at_ms)} ${each.table} ${each.words}`} />`)}</span></div>`)}
    <p class="ends"><span>${time(from)}</span><span>${time(to)} UTC</span></p></div>`;
}

export function Entries({ entries, pipeline, pick }) {
  const [shown, setShown] = useState(SHOWN);
  return html`<${List} label="Events" head=${["When", "What", ...(pipeline ? ["Table"] : []), "Happened", "By"]}>
      ${entries.slice(0, shown).map((each, i) => html`<tr key=${i}><td>${pick ? html`<button class="to" onClick=${() => pick(each.at_ms)} title="Move the table to this time"><code>${time(each.at_ms)}</code></button>` : html`<code>${time(each.at_ms)}</code>`}</td><td class="dim">${each.kind}</td>
        ${pipeline ? html`<td>${each.table ? html`<${A} class="to" to=${`/pipelines${place(pipeline)}/tables${place(each.table)}?at=${each.at_ms}`}>${each.table}<//>` : html`<span class="dim">all</span>`}</td>` : null}<td class=${`wrap ${each.is_problem ? "differs" : ""}`}>${each.words}</td><td class="dim">${each.who || "–"}</td></tr>`)}<//>
    ${entries.length > shown ? html`<p class="more">${plural(entries.length - shown, "older event")}. <button class="button" onClick=${() => setShown(Infinity)}>Show all</button></p>` : null}`;
}

// Marks over the strip of a table: only those of its time.
export const Marks = ({ entries, flow }) => html`<div class="marks" aria-hidden="true">${entries.filter((each) => each.at_ms >= flow.from_ms && each.at_ms <= flow.to_ms).map((each, i) => html`<i key=${i} class=${markOf(each)} style=${{ left: `${((each.at_ms - flow.from_ms) / Math.max(flow.to_ms - flow.from_ms, 1)) * 100}%` }} title=${`${time(each.at_ms)} ${each.words}`} />`)}</div>`;
