// All jobs that this user may see, kept up to date by one stream, or by asking every few seconds where there are too many.

import { Away, get, open } from "./api.js";
import { now, setClock } from "./format.js";

const MOST = 20_000; // jobs; those that ended first are forgotten
const ASK_MS = 2000;
const SLEEP_MS = 60_000; // a page that nobody sees lets go of its stream after this
const STREAMS = 3; // of one browser, which opens at most six connections to a host
const STALE_MS = 40_000; // a stream says something every 15 s; silence means that it is broken

const TOLD = 100; // places of which the daemon tells
const PLACELESS = ["held", "dependency", "back-off"]; // reasons for which a job is not in the queue

const FIELDS = [];

export class Job {
  constructor(values) {
    for (let i = 0; i < FIELDS.length; i++) this[FIELDS[i]] = values[i];
    this.paused = !!this.paused;
    this.held = !!this.held;
    this.shown = this.state === "pending" ? (this.held ? "held" : "waiting") : this.paused ? "paused" : this.state;
    this.ends = this.ended ?? Infinity;
    this.text = `${this.id} ${this.name} ${this.owner} ${this.queue} ${this.why}`.toLowerCase();
  }

  get over() {
    return this.ended !== null;
  }

  /** Seconds until it starts, as roll-outs of the present state say: [p10, p50, p90], or null if unknown. */
  get starts() {
    return this.state === "pending" && this.eta && (this.eta[1] !== null || this.eta[0] !== null) ? this.eta.slice(0, 3).map(ahead) : null;
  }

  /** Its place among all waiting jobs, 1 for the first; Infinity if it is after all that the daemon tells; null: it has none. */
  get place() {
    if (this.state !== "pending" || PLACELESS.includes(this.category)) return null;
    return cluster.places.get(this.id) ?? (cluster.places.size >= TOLD ? Infinity : null);
  }

  /** Seconds until it is done: [p10, p50, p90], or null if unknown. */
  get endsIn() {
    if (this.over) return null;
    if (this.eta && this.eta[3] !== null) return this.eta.slice(3).map(ahead);
    return this.left && [this.left[0], (this.left[0] + this.left[1]) / 2, this.left[1]];
  }

  /** Seconds until it is done, at its present and at its mean pace so far: [least, most], or null if unknown. */
  get left() {
    if (this.state !== "running" || this.progress === null || this.progress >= 1) return null;
    const found = [this.pace, this.mean].filter((pace) => pace > 0).map((pace) => (1 - this.progress) / pace);
    return found.length ? [Math.min(...found), Math.max(...found)] : null;
  }

  get age() {
    return now() - this.submitted;
  }

  get waited() {
    if (this.wait !== null) return this.wait;
    return Math.max(0, now() - this.submitted - this.ran);
  }

  get ran() {
    return this.run + (this.settled ? now() - this.settled : 0);
  }

  get gpuSeconds() {
    return this.gpuS + (this.settled ? (now() - this.settled) * this.gpus : 0);
  }
}

export const PLACE = "among all waiting jobs, in the order in which they are expected to start; those that the policy does not see yet come after these, by priority and number";
export const placeText = (place) => (place === Infinity ? `> #${cluster.last}` : `#${place}`);

const ahead = (moment) => (moment === null ? Infinity : Math.max(0, moment - now()));

export const jobs = new Map();
export const cluster = { state: null, link: "begins", places: new Map(), last: 0 };
let tellClock;
/** Resolves when the daemon has told its clock and its cluster. */
export const clockIsKnown = new Promise((done) => { tellClock = done; });
let since = "";
let epoch = 0; // counts snapshots, so that an answer to an older question is not mixed in
const listeners = new Set();

/** Calls back after changes, with the set of changed numbers (null: everything). Returns how to stop that. */
export function listen(tell) {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

function tellAll(changed) {
  for (const tell of [...listeners]) tell(changed);
}

function take(state) {
  cluster.state = state;
  cluster.places = new Map(state.places);
  cluster.last = state.places.at(-1)?.[1] ?? 0;
  setClock(state.now, state.speed);
  tellClock();
}

function link(state) {
  if (cluster.link !== state) {
    cluster.link = state;
    tellAll(new Set());
  }
}

async function reload() {
  const mine = ++epoch;
  const all = await get("/v1/board");
  if (mine !== epoch) return;
  FIELDS.splice(0, Infinity, ...all.columns);
  jobs.clear();
  for (const values of all.rows.sort((a, b) => b[0] - a[0])) jobs.set(values[0], new Job(values));
  since = all.id;
  take(all.state);
  tellAll(null);
}

function merge(rows, state, id) {
  const changed = new Set();
  let isNew = false;
  for (let i = rows.length - 1; i >= 0; i--) {
    isNew ||= !jobs.has(rows[i][0]);
    jobs.set(rows[i][0], new Job(rows[i]));
    changed.add(rows[i][0]);
  }
  if (isNew && jobs.size > MOST) forget();
  if (id) since = id;
  if (state) take(state);
  tellAll(changed);
}

function forget() {
  const over = [...jobs.values()].filter((job) => job.over).sort((a, b) => a.ended - b.ended);
  for (const job of over.slice(0, jobs.size - MOST)) jobs.delete(job.id);
}

async function ask() {
  const told = await get(`/v1/board?since=${encodeURIComponent(since)}`);
  if (told.id.split(".")[0] !== since.split(".")[0]) return reload();
  merge(told.rows, told.state, told.id);
}

/** Reads events as they arrive; ends when the daemon ends the stream. */
async function follow(signal) {
  const controller = new AbortController();
  const stop = () => controller.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, STALE_MS);
  try {
    const answer = await open("GET", `/v1/stream?since=${encodeURIComponent(since)}`, null, controller.signal);
    link("live");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let kept = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, STALE_MS);
      kept += value;
      const whole = kept.split("\n\n");
      kept = whole.pop();
      for (const event of whole) await take_event(event);
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

async function take_event(text) {
  const event = { id: "", event: "", data: "" };
  for (const line of text.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) event[line.slice(0, at)] = line.slice(at + 2);
  }
  if (event.event === "reset") await reload();
  else if (event.event === "jobs") {
    const told = JSON.parse(event.data);
    merge(told.rows, told.state, event.id);
  }
}

/** Resolves with a function that gives the place back; null if all places of this browser are taken. */
function takePlace() {
  if (!navigator.locks) return Promise.resolve(() => {});
  return new Promise((resolve) => {
    const attempt = (n) => {
      if (n === STREAMS) return resolve(null);
      navigator.locks.request(`argosy-stream-${n}`, { ifAvailable: true }, (lock) => {
        if (!lock) return void attempt(n + 1);
        return new Promise((release) => resolve(release));
      });
    };
    attempt(0);
  });
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const visible = () => new Promise((done) => {
  if (!document.hidden) return done();
  document.addEventListener("visibilitychange", () => done(), { once: true });
});

/** Keeps the jobs up to date for as long as the page is open. */
export async function keepUp() {
  let wait = 500;
  for (;;) {
    await visible();
    const sleep = new AbortController();
    let timer = 0;
    const watch = () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => sleep.abort(), SLEEP_MS);
    };
    document.addEventListener("visibilitychange", watch);
    const release = await takePlace();
    try {
      if (!since) await reload();
      if (release) await follow(sleep.signal);
      else {
        await ask();
        link("asks");
        await pause(ASK_MS);
      }
      wait = 500;
    } catch (problem) {
      if (problem.status === 401) return;
      const slept = problem.name === "AbortError" && sleep.signal.aborted;
      if (problem.status === 429 && release) await ask().then(() => link("asks"), () => link("away"));
      else if (!slept) link("away");
      if (!slept) await pause(wait);
      wait = Math.min(wait * 1.6, problem instanceof Away ? 4000 : 10_000);
    } finally {
      release?.();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", watch);
    }
  }
}
