// Calls the daemon. The cookie is out of reach of scripts; the key beside it belongs to this host and port.

const STORED = "argosy-key";

export class Refused extends Error {
  constructor(status, what, hint) {
    super(hint ? `${what}. ${hint[0].toUpperCase()}${hint.slice(1)}` : what);
    this.status = status;
  }
}

export class Away extends Error {}

export const session = { owner: "", role: "", version: "", key: localStorage.getItem(STORED) ?? "" };

export function operates() {
  return session.role === "operator";
}

export async function call(method, path, body, signal) {
  const answer = await open(method, path, body, signal);
  if (answer.status === 204) return null;
  return answer.headers.get("content-type")?.startsWith("application/json") ? answer.json() : answer.text();
}

/** Sends a request and returns its response, whose body may still be arriving. */
export async function open(method, path, body, signal) {
  const headers = { "x-argosy-key": session.key };
  if (body !== undefined && body !== null) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: headers["content-type"] ? JSON.stringify(body) : undefined, cache: "no-store" });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Away("The daemon does not answer. Is it running? Start it: argosy serve");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  if (answer.status === 401) dispatchEvent(new Event("signed-out"));
  throw new Refused(answer.status, told?.error?.what ?? `The daemon has answered with status ${answer.status}`, told?.error?.hint);
}

export const get = (path, signal) => call("GET", path, null, signal);
export const post = (path, body) => call("POST", path, body);
export const put = (path, body) => call("PUT", path, body);

export async function signIn(given) {
  Object.assign(session, await call("POST", "/v1/session", given));
  localStorage.setItem(STORED, session.key);
}

export async function whoAmI() {
  Object.assign(session, await get("/v1/session"));
}

export async function signOut() {
  await call("DELETE", "/v1/session").catch(() => null);
  localStorage.removeItem(STORED);
  location.assign("/signin");
}

export async function download(path, name) {
  const content = await (await open("GET", path)).blob();
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
