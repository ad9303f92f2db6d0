// Activity over time as columns, with a hand that a pointer or the arrow keys move.
import { html } from "../ui.js";

export function Strip({ flow, atMs = flow.to_ms, set, marks = [], label = "Time", children }) {
  const top = Math.max(...flow.counts, 1), n = flow.counts.length, wide = 1000;
  const x = (ms) => Math.min(Math.max((ms - flow.from_ms) / Math.max(flow.to_ms - flow.from_ms, 1), 0), 1) * wide;
  return html`<div class="strip"><svg viewBox="0 0 1000 76" preserveAspectRatio="none" aria-hidden="true">
    ${flow.counts.map((each, i) => { const tall = each ? 4 + (each / top) * 46 : 0; return html`<rect key=${i} class=${((i + 0.5) / n) * wide <= x(atMs) ? "past" : "yet"} x=${(i / n) * wide + 0.8} y=${56 - tall} width=${wide / n - 1.6} height=${tall} rx="1" />`; })}
    ${marks.map((each) => html`<rect key=${each.offset} class="mine" x=${x(each.visible_ms) - 1} y="62" width="2.2" height="11" />`)}
    <line class="hand" x1=${x(atMs)} x2=${x(atMs)} y1="0" y2="76" vector-effect="non-scaling-stroke" /></svg>${children}
    <input type="range" aria-label=${label} min=${flow.from_ms} max=${flow.to_ms} step="any" value=${atMs} aria-valuetext=${new Date(atMs).toISOString()} onInput=${(event) => set(Number(event.target.value))} /></div>`;
}
