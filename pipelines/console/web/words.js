// Words and figures as every page writes them, and the decisions that tests know by tables of cases.
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en");
export const count = (n) => (n == null ? "–" : n >= 100_000 ? compact.format(n) : whole.format(Math.round(n)));
export const rate = (n) => (n == null ? "–" : n >= 10 || n === 0 ? count(Math.round(n)) : n.toFixed(1));
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
export const clock = (ms, withMs = true) => new Date(ms).toISOString().slice(11, withMs ? 23 : 19);

export const day = (ms) => new Date(ms).toISOString().slice(0, 10);

export function bytes(n) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (n < 1000) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} TB`;
}

export function span(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

// How long a sink needs for what waits for it, if both go on as now; null while it does not gain on the source.
export const toClearMs = (records, inPerS, outPerS) => (records > 0 && outPerS > inPerS ? (records / (outPerS - inPerS)) * 1000 : null);

const TONES = {
  streaming: "ok", running: "ok", done: "ok", snapshotting: "work", replaying: "work", "re-reading": "work",
  rebuilding: "work", starting: "work", retrying: "warn", paused: "idle", stopped: "idle", quarantined: "bad", away: "bad", failed: "bad", differs: "bad", "left out": "warn",
};
export const WORST = [
  "quarantined", "retrying", "left out", "re-reading", "rebuilding", "snapshotting", "replaying", "starting", "paused", "stopped",
  "streaming", "running", "done",
];
export const tone = (state) => TONES[state] ?? "idle";
export const OPERATIONS = { r: "read", c: "created", u: "updated", d: "deleted", t: "truncated" };

// Changes by key, oldest first; a truncate is a change of every key.
export function byKey(changes) {
  const ordered = [...changes].sort((a, b) => a.visible_ms - b.visible_ms || a.partition - b.partition || a.offset - b.offset);
  const keys = new Map(), truncates = ordered.filter((each) => each.key == null);
  for (const each of ordered) if (each.key != null && !keys.has(each.key)) keys.set(each.key, { key: each.key, changes: [...truncates] });
  for (const each of ordered) if (each.key != null) keys.get(each.key).changes.push(each);
  const found = [...keys.values()];
  for (const each of found) each.changes = inOrder(each.changes);
  return found;
}

// Within a partition the offsets are the order.
const inOrder = (changes) => [...changes].sort((a, b) => (a.partition === b.partition ? a.offset - b.offset : a.visible_ms - b.visible_ms));

// The values of a key, by its columns: it is written as for commands, `7,abc` or a list of JSON.
export function keyParts(text, size) {
  try {
    const found = JSON.parse(text);
    if (Array.isArray(found) && found.length === size) return found;
  } catch { /* it is plain */ }
  return size === 1 ? [text] : text.split(",");
}

// A command for a shell, in which any key is one word and no option.
export function rowsCommand(table, key, moment) {
  const word = /^[\w.,:@%+=/-]+$/.test(key) ? key : `'${key.replaceAll("'", "'\\''")}'`;
  return key.startsWith("-") ? `headwater rows ${table} --as-of ${moment} -- ${word}` : `headwater rows ${table} ${word} --as-of ${moment}`;
}

// The index of the last change that shows as of a moment; -1 where there was none yet.
export function shownAt(changes, atMs) {
  let low = 0, high = changes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (changes[middle].visible_ms <= atMs) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// What a comparison tells of a key: each column that differs, with its value in the log and on the other side; of a row that only one
// side has, all columns. Undefined is a side without the row.
export function bothSides({ log, there }) {
  const names = Object.keys(log ?? there ?? {});
  return names.filter((name) => !log || !there || log[name] !== there[name]).map((name) => [name, log?.[name], there?.[name]]);
}

// Names of the columns that a change has given another value.
export function changedColumns(columns, before, after) {
  return columns.filter((_, i) => before?.[i] !== after?.[i]);
}
