// A command is planned, shown, perhaps typed, and then run; the dialog follows it to its end.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import { fetched, place, readOnly } from "../api.js";
import { A, Bar, Command, List, Pill, Problem, html, useAnswer } from "../ui.js";
import { bothSides, span } from "../words.js";

const LOOK_MS = 1000;

export function CommandButton({ children, isStrong = false, ...wanted }) {
  const [isOpen, setOpen] = useState(false);
  if (readOnly.value) return null;
  return html`<button class=${`button ${isStrong ? "strong" : ""}`} onClick=${() => setOpen(true)}>${children}</button>
    ${isOpen ? html`<${CommandDialog} ...${wanted} close=${() => setOpen(false)} />` : null}`;
}

// `choices`: checkboxes that are options of the command; `fields`: texts that are.
export function CommandDialog({ kind, target, title, options = {}, choices = [], fields = [], close }) {
  const box = useRef(), [chosen, setChosen] = useState(options), [plan, setPlan] = useState(null), [problem, setProblem] = useState(null);
  const [typed, setTyped] = useState(""), [run, setRun] = useState(null);
  useEffect(() => { box.current.showModal(); }, []);
  useEffect(() => {
    let isOn = true;
    const timer = setTimeout(async () => {
      setPlan(null); setProblem(null);
      try {
        const found = await fetched("/plans", { method: "POST", body: { kind, target, options: chosen } });
        if (isOn) setPlan(found);
      } catch (error) { if (isOn) setProblem(error); }
    }, 200);
    return () => { isOn = false; clearTimeout(timer); };
  }, [chosen]);
  const set = (name, value) => { const next = { ...chosen }; if (value) next[name] = value; else delete next[name]; setChosen(next); };
  const start = async (event) => {
    event.preventDefault(); setProblem(null);
    try { setRun(await fetched("/runs", { method: "POST", body: { plan: plan.id, typed } })); } catch (error) { setProblem(error); }
  };
  return html`<dialog ref=${box} aria-label=${title} onClose=${close}>${run ? html`<${Followed} id=${run.id} first=${run} title=${title} close=${() => box.current.close()} />` : html`<form onSubmit=${start}>
      <h2>${title}</h2>
      ${choices.map((each) => html`<label class="choice" key=${each.name}><input type="checkbox" checked=${Boolean(chosen[each.name])} onChange=${(event) => set(each.name, event.target.checked ? "yes" : "")} /><span>${each.label}<small>${each.note}</small></span></label>`)}
      ${fields.map((each) => html`<label class="type" key=${each.name}>${each.label}<input value=${chosen[each.name] ?? ""} placeholder=${each.placeholder ?? ""} onInput=${(event) => set(each.name, event.target.value)} /></label>`)}
      ${plan ? html`<ol class="plan steps-of" aria-label="Plan">${plan.lines.map((each, i) => html`<li key=${i}>${each}</li>`)}</ol><${Command}>${plan.command}<//>` : problem ? null : html`<p class="dim" role="status">Making the plan…</p>`}
      ${plan?.typed ? html`<label class="type">Type <code>${plan.typed}</code> to run it<input value=${typed} autocomplete="off" onInput=${(event) => setTyped(event.target.value)} /></label>` : null}
      ${problem ? html`<${Problem} of=${problem} />` : null}
      <footer><button type="button" class="button" onClick=${() => box.current.close()}>Cancel</button><button class="button strong" disabled=${!plan || (plan.typed && typed !== plan.typed)}>Run</button></footer></form>`}</dialog>`;
}

function Followed({ id, first, title, close }) {
  const { answer } = useAnswer("/runs", LOOK_MS), run = answer?.find((each) => each.id === id) ?? first;
  return html`<div class="followed"><h2>${title}</h2><${RunFacts} of=${run} /><footer>${run.state === "running" ? html`<${CancelRun} id=${id} />` : null}<button class="button strong" onClick=${close}>${run.state === "running" ? "Let it run" : "Close"}</button></footer></div>`;
}

export const CancelRun = ({ id }) => {
  const [problem, setProblem] = useState(null);
  const cancel = async () => { try { await fetched(`/runs/${id}`, { method: "DELETE" }); } catch (error) { setProblem(error); } };
  return readOnly.value ? null : html`<button class="button" onClick=${cancel}>Cancel it</button>${problem ? html`<${Problem} of=${problem} />` : null}`;
};

const share = (lines) => { const found = /(\d+)%/.exec(lines.at(-1) ?? ""); return found ? Number(found[1]) / 100 : null; };
const STATES = { running: "running", done: "done", differs: "differs", failed: "failed", cancelled: "stopped" };

export function RunFacts({ of }) {
  const done = of.state === "running" ? share(of.lines) : null;
  return html`<p><${Pill} state=${STATES[of.state]} /> <span class="dim">${of.ended_ms ? `took ${span(of.ended_ms - of.started_ms)}` : "started just now"}</span></p>
    ${done == null ? null : html`<p class="reading"><${Bar} fraction=${done} label="Done" /> <b>${Math.round(done * 100)} %</b></p>`}
    ${of.problem ? html`<p class="problem">${of.problem}${of.hint ? html` <span class="dim">${of.hint}</span>` : null}</p>` : null}
    ${of.answer?.tables ? html`<${Compared} tables=${of.answer.tables} pipeline=${of.target.split("/")[0]} />` : null}
    ${of.answer?.rows != null ? html`<p>${`${of.answer.rows} changes replayed${of.answer.verified ? "; the copy equals the log" : ""}${of.answer.kept ? `; the former table is kept as ${of.answer.kept}` : ""}`}</p>` : null}
    ${Array.isArray(of.answer) && of.answer.some((each) => each.outcome) ? html`<p>${outcomes(of.answer)}</p>` : null}
    ${of.lines.length ? html`<pre class="said" tabindex="0" aria-label="What the command says">${of.lines.join("\n")}</pre>` : null}
    <${Command}>${of.command}<//>`;
}

const OUTCOMES = { redriven: "redriven", overtaken: "left: a newer record of the key exists", former: "left: of a former generation of the topic", anew: "left: its topic was created anew", no_record: "left: it never was a record" };
function outcomes(letters) {
  const counts = new Map();
  for (const each of letters) counts.set(each.outcome, (counts.get(each.outcome) ?? 0) + 1);
  return [...counts].map(([outcome, n]) => `${n} ${OUTCOMES[outcome] ?? outcome}`).join("; ");
}

function Compared({ tables, pipeline }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="What was compared"><table class="list"><thead><tr><th scope="col">Table</th><th scope="col">Compared</th><th scope="col" class="num">Rows</th><th scope="col">Result</th></tr></thead>
    <tbody>${tables.map((each) => html`<tr key=${`${each.table} ${each.side}`}><th scope="row">${each.table}</th><td>${each.side}</td><td class="num">${each.rows}</td>
      <td>${each.problem ? html`<span class="differs" title=${each.problem}>not compared</span>` : each.equal ? html`<span class="equal">equal</span>` : html`<span class="differs">${each.differing} differ</span>`}</td></tr>`)}</tbody></table></div>
    ${tables.filter((each) => each.keys?.length).map((each) => html`<${DifferingKeys} key=${`${each.table} ${each.side}`} of=${each} pipeline=${pipeline} />`)}`;
}

// Values side by side; each key opens its history, which says what the log has of it and since when.
export function DifferingKeys({ of, pipeline }) {
  const more = of.differing - of.keys.length;
  const history = (key) => `/pipelines${place(pipeline)}/tables${place(of.table)}?only=${encodeURIComponent(key)}`;
  return html`<${List} kind="sides" label=${`Keys of ${of.table} in ${of.side} that differ`} head=${[`Key of ${of.table}`, `In ${of.side}`, "Column", "Value in the log", `Value in ${of.side}`]}>
    ${of.keys.flatMap((each) => rowsOf(each).map(([column, ours, theirs], i) => html`<tr key=${`${each.key} ${column}`}>${i ? html`<td /><td />` : html`<th scope="row">${each.key === "null" ? "without a key" : html`<${A} to=${history(each.key)}>${each.key}<//>`}</th><td>${each.problem}</td>`}
      <td>${column}</td><td class="diff">${ours === undefined ? "–" : html`<del>${ours ?? "null"}</del>`}</td><td class="diff">${theirs === undefined ? "–" : html`<ins>${theirs ?? "null"}</ins>`}</td></tr>`))}<//>
    ${more > 0 ? html`<p class="note dim">${`and ${more} more`}</p>` : null}`;
}

const rowsOf = (each) => { const found = bothSides(each); return found.length ? found : [["", undefined, undefined]]; };
