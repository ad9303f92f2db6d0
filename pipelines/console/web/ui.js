// Parts of every page: links, pills, lines of the last minutes, bars, commands.
import { h } from "./vendor/preact.mjs";
import { useEffect, useState } from "./vendor/hooks.mjs";
import { signal } from "./vendor/signals.mjs";
import htm from "./vendor/htm.mjs";
import { fetched } from "./api.js";
import { tone } from "./words.js";

export const html = htm.bind(h);
export const address = signal(new URL(location.href));
export function go(path) {
  history.pushState(null, "", path);
  address.value = new URL(location.href);
}
addEventListener("popstate", () => { address.value = new URL(location.href); });

export const A = ({ to, children, ...rest }) => html`<a href=${to} ...${rest} onClick=${(event) => {
  if (event.metaKey || event.ctrlKey || event.button) return;
  event.preventDefault(); go(to); scrollTo(0, 0);
}}>${children}</a>`;

const SIGNS = { ok: "M3 8.5l3.2 3L13 5", work: "M8 3v5l3 2", warn: "M8 4v5M8 11.6v.4", bad: "M5 5l6 6M11 5l-6 6", idle: "M6 5v6M10 5v6" };
export const Pill = ({ state }) => html`<span class=${`pill ${tone(state)}`}>
  <svg viewBox="0 0 16 16" aria-hidden="true"><path d=${SIGNS[tone(state)]} /></svg>${state}</span>`;

// The number beside it says the same, so it is hidden from readers of a screen.
export function Spark({ samples = [], of = 1, width = 96, height = 24, kind = "rate" }) {
  const values = samples.map((each) => each[of] ?? 0), top = Math.max(...values, 1e-9);
  if (values.length < 2 || !values.some(Boolean)) {
    return html`<svg class="spark" width=${width} height=${height} aria-hidden="true"><path class="still" d=${`M0 ${height - 2}H${width}`} /></svg>`;
  }
  const x = (i) => (i / (values.length - 1)) * width, y = (value) => height - 2 - (value / top) * (height - 5);
  const line = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return html`<svg class=${`spark ${kind}`} width=${width} height=${height} aria-hidden="true">
    <path class="fill" d=${`${line}L${width} ${height}L0 ${height}Z`} /><path class="line" d=${line} /></svg>`;
}

export const Bar = ({ fraction, label }) => html`<span class="bar" role="progressbar" aria-label=${label}
  aria-valuenow=${Math.round(fraction * 100)} aria-valuemin="0" aria-valuemax="100"><i style=${{ width: `${fraction * 100}%` }} /></span>`;

export const Icon = ({ d }) => html`<svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d=${d} /></svg>`;

export function Command({ children }) {
  const copy = (event) => {
    const button = event.currentTarget;
    navigator.clipboard?.writeText(children);
    button.dataset.done = "yes";
    setTimeout(() => delete button.dataset.done, 1200);
  };
  return html`<button class="command" onClick=${copy} title="copy"><code>${children}</code></button>`;
}

export const Problem = ({ of }) => html`<p class="problem" role="alert">${of.message}${of.hint ? html` <span class="dim">${of.hint}</span>` : null}</p>`;

// What a route answers: asked for when the page opens, and then again and again while it is looked at.
export function useAnswer(path, everyMs = 0) {
  const [answer, setAnswer] = useState(null), [problem, setProblem] = useState(null), [asked, setAsked] = useState(0);
  useEffect(() => {
    let isOn = true, timer = 0;
    const look = async () => {
      try {
        const found = await fetched(path);
        if (isOn) { setAnswer(found); setProblem(null); }
      } catch (error) { if (isOn) setProblem(error); }
      if (isOn && everyMs) timer = setTimeout(() => (document.hidden ? again() : look()), everyMs);
    };
    const again = () => { timer = setTimeout(look, everyMs); };
    if (path) look();
    return () => { isOn = false; clearTimeout(timer); };
  }, [path, asked]);
  return { answer, problem, again: () => setAsked(asked + 1) };
}

// A table that scrolls in itself, so that a narrow page does not.
export const List = ({ label, head, children, kind = "" }) => html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class=${`list ${kind}`}>
  <thead><tr>${head.map((each) => (typeof each === "string" ? html`<th scope="col" key=${each}>${each}</th>` : html`<th scope="col" class="num" key=${each[0]}>${each[0]}</th>`))}</tr></thead><tbody>${children}</tbody></table></div>`;

export const Loading = ({ problem }) => (problem ? html`<${Problem} of=${problem} />` : html`<p class="quiet">Reading the log…</p>`);

export const Tabs = ({ of, now, label }) => html`<nav class="tabs" aria-label=${label}>${of.map(([to, name, n]) => html`<${A} key=${to} to=${to} aria-current=${name === now ? "page" : undefined}>${name}${n == null ? null : html` <span class="dim">${n}</span>`}<//>`)}</nav>`;
