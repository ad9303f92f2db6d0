// Requests of the console: the token of the link goes along in a header, and is kept for this origin alone.
import { signal } from "./vendor/signals.mjs";

const KEPT = "headwater.token";
const given = location.hash.slice(1);
if (given) {
  sessionStorage.setItem(KEPT, given);
  history.replaceState(null, "", location.pathname + location.search);
}
const token = sessionStorage.getItem(KEPT) ?? "";

export const refused = signal(false);
export const readOnly = signal(true);

/** @typedef {{method?: string, accept?: string, signal?: AbortSignal, body?: unknown}} AskOptions */
/** @param {string} path @param {AskOptions} [options] */
export async function ask(path, { method = "GET", accept = "application/json", signal: ended, body } = {}) {
  const answer = await fetch(`/api/v1${path}`, {
    method, signal: ended, body: body === undefined ? undefined : JSON.stringify(body), headers: { Accept: accept, Authorization: `Bearer ${token}` } });
  if (answer.status === 401) refused.value = true;
  return answer;
}

/** @param {string} path @param {AskOptions} [options] */
export async function fetched(path, options) {
  const answer = await ask(path, options), content = await answer.json();
  if (!answer.ok) throw new ApiError(content.error ?? { problem: `answer ${answer.status}` });
  return content;
}

export class ApiError extends Error {
  constructor({ problem, hint }) { super(problem); this.hint = hint; }
}

export const place = (...parts) => parts.map((each) => `/${encodeURIComponent(each)}`).join("");

export async function openSession() {
  const session = await fetched("/session");
  readOnly.value = session.is_read_only;
}
