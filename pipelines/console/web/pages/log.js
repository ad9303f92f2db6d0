// The log: its topics, and the groups that read them.
import { useState } from "../vendor/hooks.mjs";
import { place } from "../api.js";
import { A, List, Loading, Spark, Tabs, html, useAnswer } from "../ui.js";
import { bytes, count, plural, span } from "../words.js";
import { CommandButton } from "./dialog.js";

const LOOK_MS = 5000, TREND_SAMPLES = 12;
const TABS = (topics, groups) => [["/log", "Topics", topics], ["/log/groups", "Consumer groups", groups]];

export function Topics() {
  const { answer, problem } = useAnswer("/topics", LOOK_MS), [asked, setAsked] = useState(""), [withInternal, setInternal] = useState(false);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const known = answer.filter((each) => withInternal || !each.is_internal), found = known.filter((each) => `${each.topic} ${each.table ?? ""}`.includes(asked));
  const onDisk = answer.reduce((sum, each) => sum + (each.bytes ?? 0), 0), lastMinute = known.reduce((sum, each) => sum + each.last_minute, 0);
  return html`<header class="top"><div><h1>Log</h1><p>${plural(answer.length, "topic")}, <b>${bytes(onDisk)}</b> on disk · <b>${count(lastMinute)}</b> records in the last minute</p></div>
      <div class="find"><label class="hidden" for="find">Find a topic</label><input id="find" type="search" placeholder="Find a topic" value=${asked} onInput=${(event) => setAsked(event.target.value)} /></div></header>
    <${Tabs} label="The log" of=${TABS(known.length)} now="Topics" />
    ${problem ? html`<p class="problem" role="alert">${problem.message}</p>` : null}
    <section class="card"><${List} label="Topics" kind="topics" head=${["Topic", "Table", ["Partitions"], ["Records"], ["On disk"], ["Last minute"], "Cleanup"]}>
      ${found.map((each) => html`<tr key=${each.topic}><th scope="row"><${A} to=${`/log/topics${place(each.topic)}`}>${each.topic}<//></th>
        <td>${each.table ? html`<${A} class="to" to=${`/pipelines${place(each.pipeline)}/tables${place(each.table)}`}>${each.table}<//> <span class="dim">${each.pipeline}</span>` : each.is_internal ? html`<span class="dim">internal</span>` : "–"}</td>
        <td class="num">${each.partitions}</td><td class="num">${count(each.offsets)}</td><td class="num">${each.bytes == null ? "–" : bytes(each.bytes)}</td>
        <td class="num">${each.last_minute ? count(each.last_minute) : "–"}</td><td>${each.cleanup ?? "–"}</td></tr>`)}<//>
      <div class="foot-line"><label><input type="checkbox" checked=${withInternal} onChange=${(event) => setInternal(event.target.checked)} /> Internal topics</label></div></section>`;
}

const lags = new Map();
function trend(group) {
  const samples = lags.get(group.group) ?? [];
  if (samples.at(-1)?.of !== group) lags.set(group.group, [...samples, { of: group, lag: group.lag }].slice(-TREND_SAMPLES));
  return lags.get(group.group);
}
function words(samples) {
  const moved = samples.at(-1).lag - samples[0].lag;
  if (samples.length < 2 || moved === 0) return samples.at(-1).lag > 0 ? "steady" : "";
  return moved > 0 ? `${count(moved)} more than a moment ago` : `${count(-moved)} fewer than a moment ago`;
}

export function Groups() {
  const { answer, problem } = useAnswer("/groups", LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  return html`<header class="top"><div><h1>Log</h1><p>${plural(answer.length, "consumer group")}</p></div></header>
    <${Tabs} label="The log" of=${TABS(undefined, answer.length)} now="Consumer groups" />
    ${answer.length ? html`<section class="card"><${List} label="Consumer groups" head=${["Group", "State", ["Members"], ["Records behind"], "Trend"]}>
      ${answer.map((each) => { const samples = trend(each); return html`<tr key=${each.group}><th scope="row"><${A} to=${`/log/groups${place(each.group)}`}>${each.group}<//></th>
        <td>${each.members ? each.state : html`<span class="dim">keeps offsets</span>`}</td><td class="num">${each.members}</td><td class="num">${each.lag < 0 ? "–" : count(each.lag)}</td>
        <td class="dim"><span class="reading"><${Spark} samples=${samples.map((one) => [0, one.lag])} kind="lag" />${words(samples)}</span></td></tr>`; })}<//></section>`
    : html`<section class="empty"><h2>No group has read this log</h2><p>Each sink of a pipeline keeps one, and so does every consumer that commits its offsets.</p></section>`}`;
}

const RESET = [
  { name: "topic", label: "Topic" },
  { name: "partition", label: "Partition", placeholder: "all" },
  { name: "to", label: "To", placeholder: "earliest, latest, an offset, a time or an age (10m)" },
];

export function Group({ group }) {
  const { answer, problem } = useAnswer(`/groups${place(group)}`, LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const lag = answer.partitions.reduce((sum, each) => sum + Math.max(each.lag, 0), 0), oldest = Math.max(0, ...answer.partitions.map((each) => each.lag_ms ?? 0));
  return html`<p class="crumbs"><${A} to="/log/groups">Consumer groups<//> /</p><header class="title"><h1>${group}</h1><span class="dim">${answer.members.length ? answer.state : "nobody is a member; it keeps offsets"}</span>
      <div class="acts">${answer.members.length ? null : html`<${CommandButton} kind="reset-group" target=${group} title=${`Reset the offsets of ${group}`} options=${{ topic: answer.partitions[0]?.topic ?? "", to: "earliest" }} fields=${RESET}>Reset…<//>`}</div></header>
    <dl class="card facts three"><div><dt>Records behind</dt><dd>${count(lag)}</dd></div><div><dt>Oldest unread record</dt><dd>${lag ? `${span(oldest)} old` : "none"}</dd></div><div><dt>Members</dt><dd>${answer.members.length}</dd></div></dl>
    <section class="card"><header><h2>Partitions</h2></header><${List} label="Partitions of the group" head=${["Topic", ["Partition"], ["Committed"], ["End"], ["Behind"], ["Oldest unread"], "Client"]}>
      ${answer.partitions.map((each) => html`<tr key=${`${each.topic}-${each.partition}`}><th scope="row"><${A} to=${`/log/topics${place(each.topic)}?partition=${each.partition}`}>${each.topic}<//></th><td class="num">${each.partition}</td>
        <td class="num">${each.committed ?? "–"}</td><td class="num">${each.end}</td><td class=${`num ${each.lag_ms > 60_000 ? "late" : ""}`}>${count(each.lag)}</td><td class="num">${each.lag > 0 ? span(each.lag_ms) : "–"}</td><td class="dim">${each.client ?? "–"}</td></tr>`)}<//></section>
    ${answer.members.length ? html`<section class="card"><header><h2>Members</h2></header><${List} label="Members of the group" head=${["Member", "Client", "Host"]}>
      ${answer.members.map((each) => html`<tr key=${each.member}><th scope="row"><code>${each.member}</code></th><td>${each.client}</td><td class="dim">${each.host}</td></tr>`)}<//></section>` : null}`;
}
