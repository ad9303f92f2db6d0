// One table: what it is now, and its past, which is loaded once and slid through here.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import { fetched, place } from "../api.js";
import { past, status } from "../live.js";
import { A, Command, List, Loading, Pill, Problem, Spark, Tabs, address, html, useAnswer } from "../ui.js";
import { OPERATIONS, byKey, changedColumns, clock, count, day, keyParts, plural, rate, rowsCommand, shownAt, span } from "../words.js";
import { CommandButton, DifferingKeys } from "./dialog.js";
import { Graphs } from "./graphs.js";
import { Act, Verified } from "./overview.js";
import { Strip } from "./strip.js";
import { Entries, LOOK_MS, Marks } from "./timeline.js";

const READING = "reading", PLAY_S = 24, NOW_MS = 500, FRESH_SHARE = 260;
const NUMERIC = /^(u?int|decimal|double|float)/;

const TABS = [["machine", "Time machine"], ["graphs", "Graphs"], ["verify", "Verification"], ["schema", "Schema"], ["target", "Target"]];

export function Table({ pipeline, table }) {
  const of = status.value.pipelines[pipeline]?.tables[table], path = `/pipelines${place(pipeline)}/tables${place(table)}`, name = `${pipeline}/${table}`;
  const isPaused = of?.state === "paused", tab = address.value.searchParams.get("tab") ?? "machine";
  return html`<p class="crumbs"><${A} to="/">Pipelines<//> / <${A} to=${`/pipelines${place(pipeline)}`}>${pipeline}<//></p>
    <header class="title"><h1>${table}</h1>${of ? html`<${Pill} state=${of.state} />` : null}
      <div class="acts">${of ? html`<${Act} path=${[pipeline, isPaused ? "resume" : "pause", table]} isStrong=${isPaused}>${isPaused ? "Resume" : "Pause"}<//>` : null}
        <${CommandButton} kind="snapshot" target=${name} title="Read all rows again">Snapshot…<//><${CommandButton} kind="rebuild" target=${name} title=${`Rebuild ${table} from the log`} choices=${REBUILD} fields=${[AS_OF, sinkOf(pipeline)]}>Rebuild…<//></div></header>
    ${of?.reason ? html`<p class="problem">${of.reason}</p>` : null}
    ${of ? html`<${Facts} pipeline=${pipeline} table=${table} of=${of} />` : html`<p class="lead dim">No running pipeline has this table; the log may have it.</p>`}
    <${Tabs} label="The table" now=${TABS.find(([id]) => id === tab)?.[1]} of=${TABS.map(([id, title]) => [id === "machine" ? path : `${path}?tab=${id}`, title])} />
    ${tab === "graphs" ? html`<${Graphs} pipeline=${pipeline} table=${table} />` : tab === "verify" ? html`<${Comparison} pipeline=${pipeline} table=${table} of=${of?.verified} />` : tab === "schema" ? html`<${Schema} path=${path} />` : tab === "target" ? html`<${Target} path=${path} pipeline=${pipeline} />` : html`<${Machine} pipeline=${pipeline} table=${table} />`}`;
}

const REBUILD = [
  { name: "verify", label: "Compare the copy with the log", note: "A second read of the log; a copy that differs is not swapped in." },
  { name: "swap", label: "Swap the copy in", note: "It takes the live table's place in one transaction of the target; the old one is kept beside it." },
];
const AS_OF = { name: "as-of", label: "As of (empty: now)", placeholder: "2026-01-31T12:00, or 10m" };
const sinkOf = (pipeline) => {
  const sinks = Object.keys(status.value.pipelines[pipeline]?.tasks ?? {}).filter((each) => !["source", "verify"].includes(each));
  return { name: "sink", label: "Sink (empty: the only one)", placeholder: sinks.join(" or ") };
};

const RUNS_MS = 2000;
function Comparison({ pipeline, table, of }) {
  const name = `${pipeline}/${table}`, { answer } = useAnswer("/runs", RUNS_MS);
  const run = answer?.find((each) => each.answer?.tables && (each.target === name || each.target === pipeline));
  const isLast = run && (!of || (of.at_ms >= run.started_ms && of.at_ms <= run.ended_ms));
  const found = isLast ? run.answer.tables.filter((each) => each.keys?.length && (run.target === name || each.table === table)) : [];
  return html`<section class="card"><header><h2>The last comparison</h2><div class="acts"><${CommandButton} kind="repair" target=${name} title="Repair differences">Repair…<//><${CommandButton} isStrong kind="verify" target=${name} title="Compare source, log and targets">Verify…<//></div></header>
    <dl class="pairs inset"><dt>Result</dt><dd><${Verified} of=${of} /></dd>${of ? html`<dt>When</dt><dd><code>${new Date(of.at_ms).toISOString()}</code></dd><dt>Rows in the log</dt><dd>${count(of.rows)}</dd><dt>Compared with the log</dt><dd>${of.sides.join(", ") || "–"}</dd>${of.problem ? html`<dt>Problem</dt><dd>${of.problem}</dd>` : null}` : null}</dl>
    ${found.map((each) => html`<${DifferingKeys} key=${`${each.table} ${each.side}`} of=${each} pipeline=${pipeline} />`)}</section>`;
}

const CHANGE_WORDS = { added: "added", dropped: "dropped", altered: "altered", key: "key", format: "format", order: "order" };
function Schema({ path }) {
  const { answer, problem } = useAnswer(`${path}/schema`);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  return html`${[...answer].reverse().map((each, i) => html`<section class="card" key=${each.id} aria-label=${`Schema ${each.id}`}><header><h2>${`Schema ${each.id}`}</h2><span class="dim">${i === 0 ? "now, since" : "since"} <code>${day(each.recorded_ms)} ${clock(each.recorded_ms, false)}</code>${Object.values(each.positions).length ? html` at <code>${Object.values(each.positions).join(", ")}</code>` : null}</span>
      <div class="acts"><${A} class="button" to=${`${path}?at=${each.recorded_ms}`}>The table then<//></div></header>
    ${each.changes.length ? html`<p class="note diff">${each.changes.map((change) => html`<span>${CHANGE_WORDS[change.what]}</span> <b>${change.column}</b> ${change.before ? html`<del>${change.before}</del>` : null}${change.before && change.after ? " → " : null}${change.after ? html`<ins>${change.after}</ins>` : null}  `)}</p>` : null}
    <${List} label=${`Columns of schema ${each.id}`} head=${["Column", "Type"]}>${each.columns.map((one) => html`<tr key=${one.name}><th scope="row">${one.name} ${each.key.includes(one.name) ? html`<span class="dim">key</span>` : null}</th><td><code>${one.type}</code></td></tr>`)}<//></section>`)}`;
}

function Target({ path, pipeline }) {
  const { answer, problem } = useAnswer(`${path}/target`);
  if (!answer) return problem ? html`<${Problem} of=${problem} />` : html`<p class="quiet">Asking the targets…</p>`;
  if (!answer.length) return html`<section class="empty"><h2>No target keeps versions of this table</h2><p>A lake does; other targets have the rows as they are now.</p></section>`;
  return html`<${Files} pipeline=${pipeline} versions=${answer} /><section class="card"><header><h2>Versions</h2><span class="dim">what of the source each of them has</span></header><${List} label="Versions" head=${["Sink", "Version", "Offsets", "Committed", "Position of the source"]}>
    ${answer.map((each) => html`<tr key=${`${each.sink} ${each.version}`}><th scope="row">${each.sink}</th><td>${each.problem ? html`<span class="differs">${each.problem}</span>` : each.version}</td><td><code>${each.offsets}</code></td><td><code>${each.committed ?? "–"}</code></td><td><code>${each.position ?? "–"}</code></td></tr>`)}<//></section>`;
}

// As a sink counted them after its last commit in this run.
function Files({ pipeline, versions }) {
  const tasks = status.value.pipelines[pipeline]?.tasks ?? {};
  const pairs = new Map(versions.map((each) => [`${each.sink} ${each.table}`, [each.sink, each.table, tasks[each.sink]?.gauges?.[`small_files ${each.table}`]]]));
  const known = [...pairs].filter(([, [, , gauge]]) => gauge);
  if (!known.length) return null;
  return html`<section class="card"><header><h2>Files</h2><span class="dim">after the last commit of this run</span></header><${List} label="Files" head=${["Sink", ["Files"], ["Small"], "Maintenance"]}>
    ${known.map(([pair, [sink, table, gauge]]) => html`<tr key=${pair}><th scope="row">${sink}</th><td class="num">${count(gauge.limit)}</td><td class="num">${count(gauge.value)}</td>
      <td><${CommandButton} kind="maintain" target=${`${pipeline}/${table}`} options=${{ sink }} title=${`Compact the files in ${sink}`}>Maintain…<//></td></tr>`)}<//></section>`;
}

const Facts = ({ pipeline, table, of }) => html`<dl class="card facts">
  <div><dt>Behind the source</dt><dd class="wide">${span(of.lag_ms)}<${Spark} samples=${past.value[`${pipeline}//${table}`]} of=${2} kind="lag" width=${84} /></dd></div>
  <div><dt>Rows per second</dt><dd class="wide">${rate(of.rows_per_s)}<${Spark} samples=${past.value[`${pipeline}//${table}`]} width=${84} /></dd></div>
  <div><dt>By sink</dt><dd class="two">${Object.entries(of.tasks).filter(([task]) => task !== "source").map(([task, each]) => html`<small key=${task}>${task} <b>${span(each.lag_ms)}</b></small>`)}</dd></div>
  <div><dt>Source, log and targets</dt><dd><small><${Verified} of=${of.verified} /></small></dd></div>
  <div><dt>Dead letters</dt><dd>${of.dead_letters || "none"}</dd></div></dl>`;

function Machine({ pipeline, table }) {
  const asked = address.value.searchParams, root = `/pipelines${place(pipeline)}/tables${place(table)}`;
  const [loaded, setLoaded] = useState(null), [problem, setProblem] = useState(null), [atMs, setAtMs] = useState(null);
  const [chosen, setChosen] = useState(asked.get("key")), [isPlaying, setPlaying] = useState(false), [trace, setTrace] = useState(null);
  const [wanted, setWanted] = useState(asked.get("only") ?? "");
  const happened = useAnswer(`${root}/timeline`, LOOK_MS), [versions, setVersions] = useState(null);

  const load = async (only) => {
    setProblem(null);
    try {
      const [told, flow] = await Promise.all([
        fetched(`${root}/changes${only ? `?key=${encodeURIComponent(only)}` : ""}`), fetched(`${root}/activity`)]);
      const keys = byKey(told.changes);
      setLoaded({ ...told, flow, keys });
      setAtMs((was) => was ?? (Number(asked.get("at")) || flow.to_ms));
      setChosen((was) => (keys.some((each) => each.key === was) ? was : longest(keys)?.key ?? null));
    } catch (error) { setProblem(error); }
  };
  useEffect(() => { load(wanted); }, [root]);

  useEffect(() => {
    if (!isPlaying) return undefined;
    const { flow } = loaded;
    let last = performance.now(), isOn = true;
    const step = (now) => {
      if (!isOn) return;
      const moved = now - last; last = now;
      setAtMs((was) => {
        const next = Math.min(was + (moved / 1000 / PLAY_S) * (flow.to_ms - flow.from_ms), flow.to_ms);
        if (next >= flow.to_ms) setPlaying(false);
        return next;
      });
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
    return () => { isOn = false; };
  }, [isPlaying]);

  useEffect(() => {  // the address says all of the page, so that a link shows a colleague the same
    if (atMs == null || isPlaying) return undefined;
    const timer = setTimeout(() => {
      const url = new URL(location.href);
      if (chosen) url.searchParams.set("key", chosen);
      url.searchParams.set("at", String(Math.round(atMs)));
      history.replaceState(null, "", url);
    }, 150);
    return () => clearTimeout(timer);
  }, [atMs, chosen, isPlaying]);

  if (problem && !loaded) return html`<${Problem} of=${problem} />`;
  if (!loaded || atMs == null) return html`<p class="quiet">Reading the log…</p>`;
  const { flow, keys } = loaded, key = keys.find((each) => each.key === chosen), moment = new Date(atMs).toISOString();
  const others = keys.filter((each) => isOther(each, atMs)).length;
  const play = () => { if (!isPlaying && atMs >= flow.to_ms - 50) setAtMs(flow.from_ms); setPlaying(!isPlaying); };
  const pick = async (change) => {
    setPlaying(false); setAtMs(change.visible_ms); setProblem(null); setTrace(READING);
    try {
      setTrace(await fetched(`/pipelines${place(pipeline)}/transactions${place(loaded.topic)}/${change.partition}/${change.offset}?appended_ms=${change.appended_ms}`));
    } catch (error) { setTrace(null); setProblem(error); }
  };
  const events = [...(happened.answer?.entries ?? []), ...truncatesOf(loaded.changes), ...(versions ?? [])].sort((a, b) => b.at_ms - a.at_ms);
  const slide = (ms) => { setPlaying(false); setAtMs(Math.min(Math.max(ms, flow.from_ms), flow.to_ms)); };
  const search = (event) => { event.preventDefault(); setChosen(wanted || null); load(wanted); };
  return html`<section class="card machine" aria-label="The table as of a time">
      <div class="moment"><button class="button strong" onClick=${play}>${isPlaying ? "Hold" : "Play"}</button><b>${moment.slice(0, 10)} ${clock(atMs)}</b>
        <span class="dim">UTC, ${atMs >= flow.to_ms - NOW_MS ? "now" : `${span(flow.to_ms - atMs)} ago`}, as committed at the source</span>
        <div class="acts dim" role="status">${others ? `${count(others)} of ${plural(keys.length, "row")} shown ${others === 1 ? "was" : "were"} other than now` : "as now"}</div></div>
      <${Strip} flow=${flow} atMs=${atMs} set=${slide} marks=${key?.changes ?? []}><${Marks} entries=${events} flow=${flow} /><//>
      <div class="ends"><span>${clock(flow.from_ms, false)}</span><span>${looked(loaded)}</span><span>${clock(flow.to_ms, false)}</span></div>
      <form class="then" onSubmit=${search}><label for="key">Key (${loaded.key.join(", ")})</label><input id="key" value=${wanted} placeholder="all that changed last" onInput=${(event) => setWanted(event.target.value)} />
        <button class="button">Show</button>${chosen ? html`<${Command}>${rowsCommand(`${pipeline}/${table}`, chosen, `${moment.slice(0, 23)}Z`)}<//>` : null}</form>
      ${problem ? html`<${Problem} of=${problem} />` : null}</section>
    ${keys.length ? html`<div class="split"><${Rows} loaded=${loaded} atMs=${atMs} chosen=${chosen} choose=${setChosen} />
      ${key ? html`<${History} name=${loaded.key.join(", ")} columns=${loaded.columns} of=${key} atMs=${atMs} pick=${pick} />` : null}</div>`
    : html`<section class="empty"><h2>The log has no change ${wanted ? "of this key" : "of this table"}</h2></section>`}
    ${trace === READING ? html`<p class="quiet" role="status">Reading the transaction…</p>` : trace ? html`<${Trace} of=${trace} pipeline=${pipeline} />` : null}
    <section class="card events" aria-label="Timeline"><header><h2>Timeline</h2><span class="dim">${events.length ? "marked above the slider; a time moves the table there" : "nothing has happened to this table yet"}</span>
      <div class="acts">${versions ? null : html`<${Versions} path=${root} set=${setVersions} />`}</div></header>${happened.problem ? html`<div class="inset"><${Problem} of=${happened.problem} /></div>` : null}${events.length ? html`<${Entries} entries=${events} pick=${slide} />` : null}</section>`;
}

const truncatesOf = (changes) => changes.filter((each) => each.operation === "t").map((each) => ({ at_ms: each.visible_ms, kind: "truncate", words: "every row deleted", who: "", is_problem: false }));

// A command asks the targets, which takes seconds: only when somebody wants it.
function Versions({ path, set }) {
  const [isBusy, setBusy] = useState(false), [problem, setProblem] = useState(null);
  const look = async () => {
    setBusy(true); setProblem(null);
    try { set(versionsOf(await fetched(`${path}/target`))); } catch (error) { setProblem(error); }
    setBusy(false);
  };
  return html`${problem ? html`<span class="differs">${problem.message}</span>` : null}<button class="button" disabled=${isBusy} onClick=${look}>${isBusy ? "Asking…" : "With versions of the targets"}</button>`;
}

export const versionsOf = (found) => found.filter((each) => Date.parse(each.committed ?? "")).map((each) => ({ at_ms: Date.parse(each.committed), kind: "version", words: `${each.sink} has version ${each.version}`, who: "", is_problem: false }));

const longest = (keys) => keys.reduce((best, each) => (each.changes.length > (best?.changes.length ?? 0) ? each : best), null);
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const isOther = (key, atMs) => !same(key.changes[shownAt(key.changes, atMs)]?.row ?? null, key.changes.at(-1)?.row ?? null);

function looked({ is_whole: isWhole, looked_to_ms: toMs, keys_left_out: keysLeftOut }) {
  const keys = keysLeftOut ? ` ${plural(keysLeftOut, "key")} that changed earlier ${keysLeftOut === 1 ? "is" : "are"} not shown.` : "";
  if (isWhole || toMs == null) return `Every change is in the log.${keys}`;
  return `Looked back to ${clock(toMs, false)}; what was before is not known here.${keys}`;
}

function Rows({ loaded, atMs, chosen, choose }) {
  const { columns, keys, flow, key: keyNames } = loaded, freshMs = (flow.to_ms - flow.from_ms) / FRESH_SHARE;
  return html`<section class="card rows" aria-label="Rows as of the time" tabindex="0"><table><thead><tr>${columns.map((each) => html`<th key=${each.name} scope="col" class=${NUMERIC.test(each.type) ? "num" : ""}>${each.name}<small>${each.type}</small></th>`)}</tr></thead>
    <tbody>${keys.map((each) => html`<${Row} key=${each.key} of=${each} columns=${columns} keyNames=${keyNames} atMs=${atMs} freshMs=${freshMs} isChosen=${each.key === chosen} choose=${choose} />`)}</tbody></table></section>`;
}

function Row({ of, columns, keyNames, atMs, freshMs, isChosen, choose }) {
  const i = shownAt(of.changes, atMs), now = of.changes[i], before = of.changes[i - 1], row = now?.row ?? before?.row;
  const isFresh = now?.row && atMs - now.visible_ms < freshMs && now.operation !== "r";
  return html`<tr class=${`${isChosen ? "chosen" : ""} ${!now ? "none" : now.row ? "" : "gone"}`} onClick=${() => choose(of.key)}>${columns.map((column, j) => {
    const value = row?.[j], text = cellText(of, row, value, column, keyNames, j), isNew = isFresh && (now.operation === "c" || before?.row?.[j] !== value);
    return html`<td key=${column.name} class=${`${NUMERIC.test(column.type) ? "num" : ""} ${isNew ? "fresh" : ""} ${row && value == null ? "null" : ""}`} title=${text.length > 28 ? text : undefined}>${
      j === 0 ? html`<button aria-pressed=${isChosen}>${text || "–"}</button>` : text}</td>`;
  })}</tr>`;
}

function cellText(of, row, value, column, keyNames, j) {
  if (row) return value == null ? "null" : value;
  if (keyNames.includes(column.name)) return keyParts(of.key, keyNames.length)[keyNames.indexOf(column.name)] ?? "";
  return j === keyNames.length ? "no row known" : "";
}

function History({ name, columns, of, atMs, pick }) {
  const i = shownAt(of.changes, atMs), here = useRef();
  useEffect(() => { const item = here.current, box = item?.closest(".steps"); if (box && item) box.scrollTop = item.offsetTop - box.offsetTop - 60; }, [i, of.key]);
  return html`<aside class="card key" aria-label=${`History of ${of.key}`}><header><h2><span class="dim">${name}</span> <code>${of.key}</code></h2><p class="dim">${plural(of.changes.length, "change")}; each opens its transaction</p></header>
    <ol class="steps">${of.changes.map((each, n) => html`<li key=${`${each.partition}:${each.offset}`} ref=${n === i ? here : null} class=${n > i ? "later" : n === i ? "here" : ""}><button class="step" onClick=${() => pick(each)}>
      <span class="when"><b>${OPERATIONS[each.operation]}</b>${clock(each.committed_ms)}</span><${Diff} columns=${columns} was=${of.changes[n - 1]?.row} is=${each.row} op=${each.operation} /></button></li>`).reverse()}</ol></aside>`;
}

const said = (value) => (value == null ? "null" : value);
function Diff({ columns, was, is, op }) {
  if (!is) return html`<div class="diff"><del>the row</del></div>`;
  const names = columns.map((each) => each.name);
  if (!was) return html`<div class="diff"><span>${op === "r" ? "as it was read" : "with"}</span> ${names.slice(1, 4).map((each, i) => html`<span key=${each}>${each}</span> <ins>${said(is[i + 1])}</ins> `)}</div>`;
  const changed = changedColumns(names, was, is);
  if (!changed.length) return html`<div class="diff"><span>the same values</span></div>`;
  return changed.map((each) => { const j = names.indexOf(each); return html`<div class="diff" key=${each}><span>${each}</span> <del>${said(was[j])}</del> → <ins>${said(is[j])}</ins></div>`; });
}

const TRACED_MAX = 100;
function Trace({ of, pipeline }) {
  const tables = new Set(of.changes.map((each) => each.table)), root = useRef(), [shown, setShown] = useState(TRACED_MAX);
  useEffect(() => { root.current?.scrollIntoView({ block: "nearest" }); }, [of.at]);
  const to = ({ table, change }) => `/pipelines${place(pipeline)}/tables${place(table)}?only=${encodeURIComponent(change.key ?? "")}&key=${encodeURIComponent(change.key ?? "")}&at=${change.committed_ms}`;
  return html`<section class="card trace" ref=${root} aria-label=${`Transaction ${of.at}`}><header><h2>Transaction ${of.at}</h2><span class="dim">changed ${plural(of.changes.length, "row")} of ${plural(tables.size, "table")}${of.is_whole ? "" : "; more are not shown"}</span></header>
    <div class="chain"><div><b>committed at the source</b><code>${clock(of.committed_ms)}</code></div><i />
      <div><b>in the log</b><code>${span(of.appended_ms - of.committed_ms)} later${Object.entries(of.positions).map(([part, value]) => ` · up to ${part} ${value}`)}</code></div>
      ${of.sinks.map((each) => html`<i key=${`to ${each.sink}`} /><div key=${each.sink} class=${each.is_applied ? "done" : ""}><b>${each.sink}</b><code>${each.is_applied ? "has applied all of it" : "has not applied it yet"}</code></div>`)}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="Rows of the transaction"><table class="list"><thead><tr><th scope="col">Table</th><th scope="col">Key</th><th scope="col">Change</th><th scope="col">Row</th><th scope="col">In the log</th></tr></thead>
      <tbody>${of.changes.slice(0, shown).map((each) => html`<tr key=${`${each.topic}-${each.change.partition}:${each.change.offset}`}><th scope="row"><${A} to=${to(each)}>${each.table}<//></th><td><code>${each.change.key ?? "all"}</code></td><td>${OPERATIONS[each.change.operation]}</td>
        <td class="diff">${each.change.row ? each.columns.slice(0, 6).map((name, i) => html`<span key=${name}>${name}</span> ${said(each.change.row[i])}  `) : "–"}</td><td class="dim"><${A} to=${`/log/topics${place(each.topic)}?partition=${each.change.partition}&until=${each.change.partition}:${each.change.offset + 1}`}><code>${each.topic}-${each.change.partition}:${each.change.offset}</code><//></td></tr>`)}</tbody></table></div>
    ${of.changes.length > shown ? html`<p class="more">${plural(of.changes.length - shown, "more row")}. <button class="button" onClick=${() => setShown(Infinity)}>Show all</button></p>` : null}</section>`;
}
