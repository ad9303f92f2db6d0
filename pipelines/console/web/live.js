// What runs, as the server tells it every second; and the rates and lags of the last two minutes.
import { signal } from "./vendor/signals.mjs";
import { ask, refused } from "./api.js";

export const status = signal(null);
export const past = signal({});
export const link = signal("connecting");
const SAMPLES_MAX = 120, RETRY_MS = 1500;

export async function follow() {
  while (!refused.value) {
    try {
      const answer = await ask("/live", { accept: "text/event-stream" });
      if (answer.ok) for await (const event of eventsOf(answer.body)) hear(event);
    } catch { /* the connection is lost; the line in the corner says so */ }
    link.value = "lost";
    await new Promise((go) => setTimeout(go, RETRY_MS));
  }
}

// Server-sent events of a body, as pairs of kind and content.
/** @param {ReadableStream<BufferSource>} body @returns {AsyncGenerator<[string, any]>} */
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const [, kind, data] = /^event: (\w+)\ndata: (.*)$/s.exec(part) ?? [];
        if (kind) yield [kind, JSON.parse(data)];
      }
    }
  } finally { reader.cancel().catch(() => {}); }  // whoever ended it has cancelled it already
}

function hear([kind, now]) {
  if (kind === "past") past.value = now;
  if (kind !== "status") return;
  const isNew = now.is_running && now.at_ms !== status.value?.at_ms;
  if (isNew) {
    const next = { ...past.value };
    const add = (name, of) => {
      const samples = (next[name] ??= []);
      samples.push([now.at_ms, of.rows_per_s, of.lag_ms]);
      if (samples.length > SAMPLES_MAX) samples.shift();
    };
    for (const [pipeline, each] of Object.entries(now.pipelines)) {
      for (const [task, of] of Object.entries(each.tasks)) add(`${pipeline}/${task}`, of);
      for (const [table, of] of Object.entries(each.tables)) add(`${pipeline}//${table}`, of);
    }
    past.value = next;
  }
  link.value = now.is_running ? "live" : "at rest";
  status.value = now;
}
