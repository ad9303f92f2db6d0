// The cluster that has the log: its brokers, and what their disks refuse.
import { A, List, Loading, Pill, html, useAnswer } from "../ui.js";
import { bytes, count } from "../words.js";

const LOOK_MS = 5000;

export function Cluster() {
  const { answer, problem } = useAnswer("/cluster", LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const offline = Object.entries(answer.offline), isOne = answer.brokers.length === 1;
  return html`<header class="top"><div><h1>${offline.length || answer.problem ? html`The log <em>refuses something</em>.` : isOne ? "One broker has the log." : `${answer.brokers.length} brokers have the log.`}</h1>
      <p>${isOne ? "Every record is on its disk before it is answered, and on no other. " : ""}Cluster <code>${answer.id || "without an id"}</code></p></div></header>
    ${answer.problem ? html`<p class="problem" role="alert">${answer.problem}</p>` : null}
    <dl class="card facts three"><div><dt>Topics</dt><dd><${A} class="to" to="/log">${count(answer.topics)}<//></dd></div><div><dt>Partitions</dt><dd>${count(answer.partitions)}</dd></div><div><dt>On disk</dt><dd>${answer.bytes == null ? "–" : bytes(answer.bytes)}</dd></div></dl>
    <section class="card"><header><h2>Brokers</h2></header><${List} label="Brokers" head=${[["Id"], "Address", "Role", ["Leads"], ["Not in sync"]]}>
      ${answer.brokers.map((each) => html`<tr key=${each.id}><th scope="row" class="num">${each.id}</th><td><code>${each.address}</code></td><td>${each.is_controller ? "controller and broker" : "broker"}</td><td class="num">${count(each.led)}</td><td class=${`num ${each.behind ? "late" : ""}`}>${each.behind || "–"}</td></tr>`)}<//></section>
    ${offline.length ? html`<section class="card"><header><h2>Offline partitions</h2><${Pill} state="quarantined" /></header><${List} label="Offline partitions" head=${["Partition", "Reason"]}>
      ${offline.map(([partition, reason]) => html`<tr key=${partition}><th scope="row"><code>${partition}</code></th><td class="wrap">${reason}</td></tr>`)}<//></section>` : null}`;
}
