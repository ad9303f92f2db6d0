// One topic: its partitions, and its messages, newest first or as they come.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import { ask, fetched, place } from "../api.js";
import { eventsOf } from "../live.js";
import { A, List, Loading, Problem, address, html, useAnswer } from "../ui.js";
import { OPERATIONS, bytes, clock, count, day, plural, span } from "../words.js";
import { Strip } from "./strip.js";

const FIELDS = ["partition", "key", "contains", "operations", "from", "until"], LOOK_MS = 5000, TAIL_MAX = 200;
const queryOf = (filter) => new URLSearchParams(Object.entries(filter).filter(([, value]) => value)).toString();

export function Topic({ topic }) {
  const { answer, problem } = useAnswer(`/topics${place(topic)}`, LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const total = answer.partitions.reduce((sum, each) => sum + each.end - each.start, 0), onDisk = answer.partitions.reduce((sum, each) => sum + (each.bytes ?? 0), 0);
  const policy = answer.config.find((each) => each.name === "cleanup.policy")?.value;
  return html`<p class="crumbs"><${A} to="/log">Log<//> /</p><header class="title"><h1>${topic}</h1>
      ${answer.table ? html`<div class="acts"><${A} class="button" to=${`/pipelines${place(answer.pipeline)}/tables${place(answer.table)}`}>Table ${answer.table}<//></div>` : null}</header>
    <dl class="card facts"><div><dt>Records</dt><dd>${count(total)}</dd></div><div><dt>On disk</dt><dd>${bytes(onDisk)}</dd></div><div><dt>Partitions</dt><dd>${answer.partitions.length}</dd></div>
      <div><dt>Newest record</dt><dd>${newest(answer.partitions)}</dd></div><div><dt>Cleanup</dt><dd>${policy ?? "–"}</dd></div></dl>
    <${Messages} topic=${topic} of=${answer} />
    <${Partitions} of=${answer.partitions} />
    <${Configuration} of=${answer.config} />`;
}

function newest(partitions) {
  const at = Math.max(0, ...partitions.map((each) => each.newest_ms ?? 0));
  return at ? html`<span title=${new Date(at).toISOString()}>${span(Math.max(Date.now() - at, 0))} ago</span>` : "none";
}

// On a scale of offsets: what is gone, what compaction has passed, what is whole, and what is undecided.
function Partitions({ of }) {
  const top = Math.max(1, ...of.map((each) => each.end)), share = (n) => `${(n / top) * 100}%`;
  return html`<section class="card"><header><h2>Partitions</h2><span class="legend dim"><i class="gone" />removed<i class="compacted" />compacted<i class="all" />every record<i class="open" />in open transactions</span></header>
    <${List} label="Partitions" head=${[["Partition"], "Offsets", ["Start"], ["End"], ["On disk"], "From", "To", "Leader"]}>${of.map((each) => {
      const cleaned = Math.max(each.start, Math.min(each.cleaned_to ?? 0, each.stable));
      return html`<tr key=${each.partition}><th scope="row" class="num">${each.partition}</th><td class="wide"><span class="offsets" role="img" aria-label=${`offsets ${each.start} to ${each.end}`}>
        <i class="gone" style=${{ width: share(each.start) }} /><i class="compacted" style=${{ width: share(cleaned - each.start) }} /><i class="all" style=${{ width: share(each.stable - cleaned) }} /><i class="open" style=${{ width: share(each.end - each.stable) }} /></span></td>
        <td class="num">${each.start}</td><td class="num">${each.end}</td><td class="num">${each.bytes == null ? "–" : bytes(each.bytes)}</td><td>${moment(each.oldest_ms)}</td><td>${moment(each.newest_ms)}</td><td class="dim">${each.leader}</td></tr>`;
    })}<//></section>`;
}
const moment = (ms) => (ms == null ? "–" : html`<code>${day(ms)} ${clock(ms, false)}</code>`);

function Configuration({ of }) {
  const [isWhole, setWhole] = useState(false), shown = of.filter((each) => isWhole || !each.is_default);
  return html`<section class="card"><header><h2>Configuration</h2><div class="acts"><button class="button" aria-pressed=${isWhole} onClick=${() => setWhole(!isWhole)}>${isWhole ? "Only what was set" : "Defaults, too"}</button></div></header>
    ${shown.length ? html`<${List} label="Configuration" head=${["Key", "Value"]}>${shown.map((each) => html`<tr key=${each.name}><th scope="row"><code>${each.name}</code></th><td><code>${each.value ?? "–"}</code> ${each.is_default ? html`<span class="dim">default</span>` : null}</td></tr>`)}<//>`
    : html`<p class="note dim">Everything is at its default.</p>`}</section>`;
}

function Messages({ topic, of }) {
  const asked = address.value.searchParams, root = `/topics${place(topic)}`;
  const [filter, setFilter] = useState(() => Object.fromEntries(FIELDS.map((name) => [name, asked.get(name) ?? ""])));
  const [wanted, setWanted] = useState(filter), [page, setPage] = useState(null), [problem, setProblem] = useState(null), [isBusy, setBusy] = useState(false);
  const [tailed, setTailed] = useState(null), flow = useAnswer(`${root}/activity`), request = useRef(null);

  const look = async (until, before) => {
    request.current?.abort();
    const mine = request.current = new AbortController();
    setBusy(true); setProblem(null);
    try {
      const found = await fetched(`${root}/messages?${queryOf({ ...wanted, ...(until ? { until } : {}) })}`, { signal: mine.signal });
      setPage(before ? { ...found, messages: [...before.messages, ...found.messages], looked_at: before.looked_at + found.looked_at } : found);
    } catch (error) { if (error.name !== "AbortError") setProblem(error); }
    if (request.current === mine) setBusy(false);
  };
  useEffect(() => {
    setPage(null); look();
    const url = new URL(location.href);
    for (const name of FIELDS) if (wanted[name]) url.searchParams.set(name, wanted[name]); else url.searchParams.delete(name);
    history.replaceState(null, "", url);
    return () => request.current?.abort();
  }, [wanted]);
  useEffect(() => {
    if (!tailed?.isOn) return undefined;
    const control = new AbortController();
    follow(`${root}/tail?${queryOf({ ...wanted, from: "", until: "" })}`, control.signal, (seen) => setTailed((was) => ({
      ...was, isReady: true, messages: [...seen.messages, ...was.messages].slice(0, TAIL_MAX), notShown: was.notShown + seen.not_shown })), setProblem);
    return () => control.abort();
  }, [tailed?.isOn, wanted]);

  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  const search = (event) => { event.preventDefault(); setWanted({ ...filter }); };
  const until = (ms) => { const next = { ...filter, until: new Date(ms).toISOString().slice(0, 23) }; setFilter(next); setWanted(next); };
  const shown = tailed ? tailed.messages : page?.messages ?? [];
  return html`<section class="card messages" aria-label="Messages"><header><h2>Messages</h2><span class="dim" role="status">${tailed ? tailText(tailed) : page ? looked(page) : "Reading the log…"}</span>
      <div class="acts"><button class=${`button ${tailed ? "strong" : ""}`} aria-pressed=${Boolean(tailed)} onClick=${() => setTailed(tailed ? null : { isOn: true, messages: [], notShown: 0 })}>${tailed ? "Stop following" : "Follow live"}</button></div></header>
    ${flow.answer ? html`<div class="flow-strip"><${Strip} flow=${flow.answer} label="Show messages before" set=${until} /></div>` : null}
    <form class="filters" onSubmit=${search}>
      ${of.partitions.length > 1 ? html`<label>Partition <select value=${filter.partition} onChange=${set("partition")}><option value="">all</option>${of.partitions.map((each) => html`<option key=${each.partition}>${each.partition}</option>`)}</select></label>` : null}
      <label>Key <input value=${filter.key} onInput=${set("key")} /></label><label>Contains <input value=${filter.contains} onInput=${set("contains")} /></label>
      ${of.table ? html`<label>Change <select value=${filter.operations} onChange=${set("operations")}><option value="">any</option>${Object.entries(OPERATIONS).map(([letter, word]) => html`<option key=${letter} value=${letter}>${word}</option>`)}</select></label>` : null}
      <label>From <input value=${filter.from} placeholder="the start" onInput=${set("from")} /></label><label>Until <input value=${filter.until} placeholder="now, or 10m" onInput=${set("until")} /></label>
      <button class="button strong">Search</button>${isBusy ? html`<button type="button" class="button" onClick=${() => request.current?.abort()}>Stop</button>` : null}</form>
    ${problem ? html`<${Problem} of=${problem} />` : null}
    ${page?.hidden.length ? html`<p class="note dim">${plural(page.hidden.length, "column")} of this table ${page.hidden.length === 1 ? "is" : "are"} hidden by <code>console.hide</code>; nothing is searched there.</p>` : null}
    ${shown.length ? html`<ol class="records" aria-label="Messages found">${shown.map((each) => html`<${Message} key=${`${each.partition}:${each.offset}`} of=${each} topic=${topic} page=${of} />`)}</ol>`
    : page && !isBusy ? html`<p class="note dim">${page.left ? "Nothing was found so far." : "There is no such message."}</p>` : null}
    ${!tailed && page?.next ? html`<div class="foot-line"><button class="button" disabled=${isBusy} onClick=${() => look(page.next, page)}>${isBusy ? "Reading…" : "Look further back"}</button><span class="dim">${count(page.left)} older offsets</span></div>` : null}</section>`;
}

const looked = (page) => `${plural(page.messages.length, "message")}; looked at ${count(page.looked_at)} of ${count(page.looked_at + page.left)} offsets`;
const tailText = (tailed) => !tailed.isReady ? "Looking for the end…" : `following: ${count(tailed.messages.length)} shown${tailed.notShown ? `, ${count(tailed.notShown)} more came and are not shown` : ""}`;

async function follow(path, signal, seen, fail) {
  try {
    const answer = await ask(path, { accept: "text/event-stream", signal });
    for await (const [kind, content] of eventsOf(answer.body)) {
      if (kind === "messages") seen(content);
      if (kind === "problem") fail({ message: content.problem, hint: content.hint });
    }
  } catch (error) { if (!signal.aborted) fail({ message: "the connection is lost", hint: "follow again" }); }
}

function Message({ of, topic, page }) {
  const [isOpen, setOpen] = useState(false);
  return html`<li class=${isOpen ? "open" : ""}><button class="record" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <code class="when">${clock(of.appended_ms)}</code><code class="where dim">${of.partition}:${of.offset}</code><span class="what">${of.operation ? OPERATIONS[of.operation] : of.value == null ? "tombstone" : ""}</span>
      <code class="whose">${of.key ?? "–"}</code><span class="diff">${of.fields.length ? of.fields.map((each) => html`<span key=${each.name}>${each.name}</span> ${each.value ?? "null"}  `) : of.problem ? html`<em>${of.problem}</em>` : of.operation ? "" : of.value ?? ""}</span></button>
    ${isOpen ? html`<${Whole} of=${of} topic=${topic} page=${page} />` : null}</li>`;
}

function Whole({ of, topic, page }) {
  const { answer, problem } = useAnswer(`/topics${place(topic)}/messages/${of.partition}/${of.offset}`);
  if (!answer) return problem ? html`<${Problem} of=${problem} />` : html`<p class="note dim">Reading…</p>`;
  const past = page.table && of.key && of.operation ? `/pipelines${place(page.pipeline)}/tables${place(page.table)}?only=${encodeURIComponent(of.key)}&key=${encodeURIComponent(of.key)}` : null;
  return html`<div class="whole"><dl class="pairs"><dt>Appended</dt><dd><code>${new Date(answer.appended_ms).toISOString()}</code></dd>${answer.committed_ms == null ? null : html`<dt>Committed at the source</dt><dd><code>${new Date(answer.committed_ms).toISOString()}</code></dd>`}<dt>Size</dt><dd>${bytes(answer.bytes)}</dd>
      ${answer.headers.map((each) => html`<dt key=${each.name}><code>${each.name}</code></dt><dd><code>${each.value ?? "null"}</code></dd>`)}</dl>
    ${past ? html`<p><${A} class="button" to=${past}>History of this key<//></p>` : null}
    ${answer.value == null ? null : html`<pre tabindex="0" aria-label="Value as stored">${pretty(answer.value)}</pre>`}</div>`;
}

function pretty(text) {
  if (!/^[[{]/.test(text) || /\d{16}/.test(text)) return text;  // a browser would round long numbers
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
