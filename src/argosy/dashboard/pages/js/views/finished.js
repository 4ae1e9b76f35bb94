// What has ended: how long jobs waited and took, how they failed, and the table of them.

import { download, get, operates } from "../api.js";
import { DURATIONS, histogram, lines } from "../chart.js";
import { failed } from "../dialog.js";
import { h, put, renew } from "../dom.js";
import { amount, clean, moment, now, percent, rough, several, span } from "../format.js";
import { clockIsKnown, cluster, listen } from "../jobs.js";
import { go, keep, query } from "../router.js";
import { stateOf } from "../states.js";
import { Table } from "../table.js";

const MOST = 5000; // of the newest
const COLUMNS = [
  { id: "id", title: "Job", width: 72, className: "num" }, { id: "name", title: "Name", width: 200 }, { id: "state", title: "State", width: 136 }, { id: "owner", title: "Owner", width: 100 },
  { id: "wait_s", title: "Waited", width: 90, className: "num" }, { id: "run_s", title: "Ran", width: 90, className: "num" }, { id: "gpu_s", title: "GPU-hours", width: 106, className: "num" }, { id: "message", title: "What happened" }, { id: "ended_at", title: "Ended", width: 170, className: "num" },
].map((column) => ({ ...column, sort: (job) => job[column.id] ?? "" }));
const LARGEST_FIRST = ["id", "wait_s", "run_s", "gpu_s", "ended_at"];
const DEFAULT = "-ended_at";
const ON_PHONES = { wait_s: "waited", run_s: "ran", message: "why", ended_at: "gpus" }; // the place that a cell takes there
const BINS = 96;

/** Failures that differ only in numbers, paths and names of nodes have one cause. */
export function cause(message) {
  const text = clean(message || "no message", 200).replace(/ after \d+ tries$/, "");
  return text.replace(/0x[0-9a-f]+|\b\d+(\.\d+)?\b/gi, "N").replace(/node \S+/g, "node …").slice(0, 90);
}

const TEXT = new Intl.Collator("en", { numeric: true });

function order() {
  const given = query().get("sort") || DEFAULT, column = given.replace(/^-/, "");
  return COLUMNS.some((one) => one.id === column) ? { column, down: given.startsWith("-") } : { column: "ended_at", down: true };
}

/** Jobs by one of their values; of equal ones the newest first. */
export function sorted(jobs, column, down) {
  const { sort } = COLUMNS.find((one) => one.id === column), sign = down ? -1 : 1;
  const compare = (a, b) => (typeof a === "string" || typeof b === "string" ? TEXT.compare(a, b) : a - b);
  return [...jobs].sort((a, b) => sign * compare(sort(a), sort(b)) || b.id - a.id);
}

const middle = (values) => (values.length ? [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] : NaN);

export function show(place) {
  let stopped = false, all = [], shown = [], since = 0, held = null;
  const figures = h("dl", { class: "figures" }), charts = h("div", { class: "cards" }), empty = h("div", { class: "empty card", hidden: true });
  const search = h("input", { type: "search", placeholder: "Search ended jobs", "aria-label": "Search ended jobs", value: query().get("q") ?? "", oninput: () => { keep({ q: search.value }); filter(); } });
  const csv = h("button", { onclick: () => download("/v1/history.csv", "argosy-history.csv").catch(failed) }, "Download CSV");
  const costs = h("button", { onclick: () => download("/v1/overheads.csv", "argosy-overheads.csv").catch(failed) }, "Overheads CSV");
  const table = new Table({ columns: COLUMNS, label: "Ended jobs", make: () => h("tr", { class: "job" }, COLUMNS.map((column) => h("td", { class: `${column.className ?? ""} c-${ON_PHONES[column.id] ?? column.id}` }))), open: (job) => go(`/jobs/${job.id}`), mark() {}, sortBy, draw });
  put(place, h("div", { class: "head" }, h("h1", null, "Finished"), csv, costs), figures, charts, h("div", { class: "filters" }, search), empty, table.element);
  charts.style.marginBottom = "16px";

  function draw(row, job) {
    const values = [job.id, clean(job.name, 80), null, clean(job.owner, 40), span(job.wait_s), span(job.run_s), amount(job.gpu_s / 3600), clean(job.message), moment(job.ended_at)];
    values.forEach((value, i) => { if (value !== null) row.cells[i].textContent = value; });
    row.dataset.job = job.id;
    const state = row.cells[2].firstChild ?? row.cells[2].appendChild(h("span"));
    stateOf(state, job.state);
  }

  async function load() {
    since = performance.now();
    const found = [];
    let before = "";
    while (found.length < MOST) {
      const page = await get(`/v1/history?limit=1000${before}`);
      found.push(...page.jobs);
      if (!page.next || stopped) break;
      before = `&before=${page.next}`;
    }
    if (stopped) return;
    all = found;
    filter();
    held = all.length ? await usage(Math.min(...all.map((job) => job.started_at ?? job.ended_at))) : null;
    if (!stopped) summarise();
  }

  function sortBy(id) {
    const { column, down } = order();
    const next = `${(column === id ? !down : LARGEST_FIRST.includes(id)) ? "-" : ""}${id}`;
    keep({ sort: next === DEFAULT ? "" : next });
    filter();
  }

  function filter() {
    const word = search.value.toLowerCase(), { column, down } = order();
    shown = sorted(all, column, down).filter((job) => !word || `${job.id} ${job.name} ${job.owner} ${job.queue} ${job.state} ${job.message}`.toLowerCase().includes(word));
    table.sorted(column, down);
    table.show(shown);
    empty.hidden = all.length > 0;
    table.element.hidden = !all.length;
    if (!all.length) renew(empty, h("h2", null, "No job has ended yet"), h("p", null, "When one has, its times and its cause of failure are here."));
  }

  function summarise() {
    charts.hidden = figures.hidden = !all.length;
    if (!all.length) return;
    const ran = all.filter((job) => job.started_at);
    const count = (state) => all.filter((job) => job.state === state).length;
    const rows = [["Ended", several(all.length, "job")], ["Succeeded", percent(count("succeeded") / all.length)], ["Median wait", rough(middle(ran.map((job) => job.wait_s)))], ["Median completion time", rough(middle(ran.map((job) => job.jct_s)))], ["GPU-hours", amount(all.reduce((sum, job) => sum + job.gpu_s, 0) / 3600)], ["Preemptions per job", amount(all.reduce((sum, job) => sum + job.preemptions, 0) / all.length)]];
    renew(figures, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
    const causes = new Map();
    for (const job of all) if (job.state === "failed") causes.set(cause(job.message), (causes.get(cause(job.message)) ?? 0) + 1);
    const worst = [...causes].sort((a, b) => b[1] - a[1]).slice(0, 8);
    const most = worst[0]?.[1] ?? 1;
    const card = (title, ...content) => h("section", { class: "card" }, h("h2", null, title), content);
    const bar = (n) => { const fill = h("i"); fill.style.width = `${(100 * n) / most}%`; return h("span", { class: "meter bad" }, fill); };
    renew(charts, card("Time waited", histogram(ran.map((job) => job.wait_s), ...DURATIONS, { unit: "time waited", hue: 2 })), card("Time from submission to end", histogram(ran.map((job) => job.jct_s), ...DURATIONS, { unit: "completion time", hue: 1 })),
      held ? card(operates() ? "Utilisation: GPUs held" : "GPUs that you held", lines([{ name: "GPUs held", hue: 1, area: true, points: held }], { unit: "GPUs", height: 150, most: operates() ? cluster.state?.gpus : undefined }), h("p", { class: "note" }, utilisation())) : null,
      card("Jobs that ended", lines(["succeeded", "failed", "cancelled"].map((state, i) => ({ name: state, hue: [3, 6, 0][i], points: perHour(state) })), { unit: "jobs an hour", stacked: true, height: 150 })),
      card("Failures by cause", worst.length ? h("ul", { class: "stack" }, worst.map(([text, n]) => h("li", null, h("div", { class: "small" }, h("b", null, n), " ", h("bdi", null, text)), bar(n)))) : h("p", { class: "soft" }, "None has failed.")));
    costs.hidden = !operates() && !all.length;
  }

  /** GPUs held since a moment, as points in time; a user is told of his own. */
  async function usage(from) {
    await clockIsKnown;
    const until = now();
    const { edges, rows } = await get(`/v1/usage?by=queue&since=${from.toFixed(0)}&until=${until.toFixed(0)}&bins=${BINS}`);
    return edges.slice(1).map((edge, i) => [(edge + edges[i]) / 2, rows.reduce((sum, row) => sum + row.held[i], 0)]);
  }

  function utilisation() {
    const mean = held.reduce((sum, [, gpus]) => sum + gpus, 0) / held.length, most = cluster.state?.gpus;
    const share = operates() && most ? `, ${percent(mean / most)} of the ${several(most, "GPU")} that the cluster has now` : "";
    return `On average ${amount(mean)} GPUs were held${share}. Held is not busy: how much a GPU computes is not measured here.`;
  }

  function perHour(state) {
    const first = Math.floor(all.at(-1).ended_at / 3600), last = Math.floor(all[0].ended_at / 3600);
    const counts = new Array(Math.min(last - first + 1, 24 * 60)).fill(0);
    for (const job of all) if (job.state === state) { const i = Math.floor(job.ended_at / 3600) - (last - counts.length + 1); if (i >= 0) counts[i]++; }
    return counts.map((n, i) => [(last - counts.length + 1 + i + 0.5) * 3600, n]);
  }

  load().catch(failed);
  const stop = listen(() => { if (performance.now() - since > 15_000) { since = performance.now(); load().catch(() => {}); } });
  return () => { stopped = true; stop(); table.end(); };
}
