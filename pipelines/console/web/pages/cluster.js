// The cluster that has the log: its nodes, what is not well, and what is being moved.
import { A, List, Loading, Pill, html, useAnswer } from "../ui.js";
import { bytes, count, plural } from "../words.js";

const LOOK_MS = 5000;

function verdict({ nodes, problems, problem, offline }, away) {
  if (problem || Object.keys(offline).length) return html`The log <em>refuses something</em>.`;
  if (away) return html`<em>${plural(away, "broker is", "brokers are")}</em> away.`;
  if (problems.length) return html`${nodes.length} brokers have the log, and <em>not all is well</em>.`;
  return nodes.length === 1 ? "One broker has the log." : `${nodes.length} brokers have the log.`;
}

export function Cluster() {
  const { answer, problem } = useAnswer("/cluster", LOOK_MS);
  if (!answer) return html`<${Loading} problem=${problem} />`;
  const offline = Object.entries(answer.offline), isOne = answer.nodes.length === 1, away = answer.nodes.filter((each) => each.is_away).length;
  return html`<header class="top"><div><h1>${verdict(answer, away)}</h1>
      <p>${isOne ? "Every record is on its disk before it is answered, and on no other. " : html`Metadata quorum: <b>${answer.quorum}</b>. `}Cluster <code>${answer.id || "without an id"}</code></p></div></header>
    ${answer.problem ? html`<p class="problem" role="alert">${answer.problem}</p>` : null}
    <dl class="card facts three"><div><dt>Topics</dt><dd><${A} class="to" to="/log">${count(answer.topics)}<//></dd></div><div><dt>Partitions</dt><dd>${count(answer.partitions)}</dd></div><div><dt>On disk</dt><dd>${answer.bytes == null ? "–" : bytes(answer.bytes)}</dd></div></dl>
    <section class="card"><header><h2>Brokers</h2></header><${List} label="Brokers" head=${[["Id"], "Address", "Vote", ["Metadata behind"], ["Leads"], ["Replicas"], ["Not in sync"]]}>
      ${answer.nodes.map((each) => html`<tr key=${each.id}><th scope="row" class="num">${each.id}</th><td>${each.is_away ? html`<${Pill} state="away" />` : html`<code>${each.address}</code>`}</td><td>${each.vote}</td><td class="num">${each.metadata_lag == null ? "–" : count(each.metadata_lag)}</td><td class="num">${count(each.leads)}</td><td class="num">${count(each.replicas)}</td><td class=${`num ${each.replicas - each.in_sync ? "late" : ""}`}>${each.replicas - each.in_sync || "–"}</td></tr>`)}<//></section>
    ${answer.problems.length ? html`<section class="card"><header><h2>What is not well</h2><span class="dim">headwater cluster status says the same</span></header><${List} label="What is not well" head=${["Problem"]}>${answer.problems.map((each) => html`<tr key=${each}><td class="wrap">${each}</td></tr>`)}<//></section>` : null}
    ${answer.moves.length ? html`<section class="card"><header><h2>Being moved</h2></header><${List} label="Being moved" head=${["Partition"]}>${answer.moves.map((each) => html`<tr key=${each}><td class="wrap">${each}</td></tr>`)}<//></section>` : null}
    ${offline.length ? html`<section class="card"><header><h2>Offline partitions</h2><${Pill} state="quarantined" /></header><${List} label="Offline partitions" head=${["Partition", "Reason"]}>
      ${offline.map(([partition, reason]) => html`<tr key=${partition}><th scope="row"><code>${partition}</code></th><td class="wrap">${reason}</td></tr>`)}<//></section>` : null}`;
}
