// Lag, rows and bytes over time: three graphs with one cursor, never two axes in one.
import { useState } from "../vendor/hooks.mjs";
import { place } from "../api.js";
import { Loading, html, useAnswer } from "../ui.js";
import { bytes, clock, day, rate, span } from "../words.js";

const WINDOWS = { second: { title: "10 minutes", everyMs: 1000, wholeMs: 600_000, lookMs: 2000 }, minute: { title: "24 hours", everyMs: 60_000, wholeMs: 86_400_000, lookMs: 30_000 } };
const KINDS = [
  { title: "Behind the source", of: (line) => line.lag_ms, words: span, least: 1000 },
  { title: "Rows per second", of: (line) => line.rows_per_s, words: rate, least: 1 },
  { title: "Bytes per second", of: (line) => line.bytes_per_s, words: (n) => (n == null ? "–" : bytes(n)), least: 1 },
];
const WIDTH = 1000, HEIGHT = 92, NAMES_MAX = 6;

export function Graphs({ pipeline, table = "" }) {
  const [every, setEvery] = useState("second"), [cursor, setCursor] = useState(null), window = WINDOWS[every];
  const { answer, problem } = useAnswer(`/pipelines${place(pipeline)}/past?every=${every}${table ? `&table=${encodeURIComponent(table)}` : ""}`, window.lookMs);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const lines = Object.entries(answer.lines).filter(([name]) => name !== "verify").slice(0, NAMES_MAX);
  const ends = lines.map(([, line]) => line.at_ms.at(-1)).filter(Boolean), to = Math.max(...ends);
  const first = Math.min(...lines.map(([, line]) => line.at_ms[0] ?? Infinity)), from = Math.max(to - window.wholeMs, Math.min(first, to - 30 * window.everyMs));
  const spanMs = to - from, atMs = cursor == null ? null : from + cursor * spanMs;
  const move = (event) => {
    const plot = event.currentTarget.querySelector(".plot").getBoundingClientRect(), found = (event.clientX - plot.left) / plot.width;
    setCursor(found >= 0 && found <= 1 ? found : null);
  };
  return html`<section class="card" aria-label="Graphs"><header><h2>${table ? "Over time" : "Tasks over time"}</h2><span class="dim">${ends.length ? (first > from + 2 * window.everyMs ? `This console has looked since ${clock(first, false)}; for a longer past there is Prometheus.` : "") : "The first minute is not over yet."}</span>
      <div class="acts"><span class="choose" role="group" aria-label="Window">${Object.entries(WINDOWS).map(([name, each]) => html`<button key=${name} aria-pressed=${name === every} onClick=${() => setEvery(name)}>${each.title}</button>`)}</span></div></header>
    ${ends.length ? html`<div class="graphs" onPointerMove=${move} onPointerLeave=${() => setCursor(null)}>
      ${KINDS.map((kind) => html`<${Graph} key=${kind.title} kind=${kind} lines=${lines} from=${from} spanMs=${spanMs} everyMs=${window.everyMs} atMs=${atMs} cursor=${cursor} />`)}
      <p class="ends"><span>${clock(from, false)}</span><span>${atMs == null ? "" : `${day(atMs)} ${clock(atMs, false)} UTC`}</span><span>${clock(to, false)} UTC</span></p></div>` : null}</section>`;
}

function Graph({ kind, lines, from, spanMs, everyMs, atMs, cursor }) {
  const values = lines.flatMap(([, line]) => kind.of(line).filter((value, i) => value != null && line.at_ms[i] >= from));
  const top = Math.max(kind.least, ...values);
  const shown = lines.map(([name, line]) => [name, kind.of(line)[indexAt(line.at_ms, atMs)]]);
  const spoken = `${kind.title}: ${shown.map(([name, value]) => `${name} ${kind.words(value)}`).join(", ")}; at most ${kind.words(top)}`;
  return html`<div class="graph"><header><h3>${kind.title}</h3>${shown.map(([name, value], i) => html`<span class="of" key=${name}><svg viewBox="0 0 22 8" aria-hidden="true"><path class=${`n${i}`} d="M0 4H22" /></svg>${name} <b>${kind.words(value)}</b></span>`)}</header>
    <div class="scale"><span class="top-value">${kind.words(top)}</span><span class="low-value">0</span></div>
    <svg class="plot" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${spoken}>
      ${lines.map(([name, line], i) => html`<path key=${name} class=${`n${i}`} d=${pathOf(line.at_ms, kind.of(line), { from, spanMs, everyMs, top })} />`)}
      ${cursor == null ? null : html`<line class="cursor" x1=${cursor * WIDTH} x2=${cursor * WIDTH} y1="0" y2=${HEIGHT} />`}</svg></div>`;
}

// The last sample at or before a time; the newest without one.
export function indexAt(times, atMs) {
  if (atMs == null) return times.length - 1;
  let low = 0, high = times.length;
  while (low < high) { const middle = (low + high) >> 1; if (times[middle] <= atMs) low = middle + 1; else high = middle; }
  return low - 1;
}

// A line that is interrupted where nothing is known.
export function pathOf(times, values, { from, spanMs, everyMs, top }) {
  let path = "", before = -Infinity;
  times.forEach((at, i) => {
    if (at < from) return;
    if (values[i] == null) { before = -Infinity; return; }
    const x = ((at - from) / spanMs) * WIDTH, y = HEIGHT - (values[i] / top) * (HEIGHT - 2);
    path += `${at - before > 5 * everyMs ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    before = at;
  });
  return path;
}
