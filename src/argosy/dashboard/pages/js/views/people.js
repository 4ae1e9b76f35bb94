// Who holds and waits for how much, beside quotas and limits, now and over time.

import { get } from "../api.js";
import { lines } from "../chart.js";
import { h, put, renew, say } from "../dom.js";
import { amount, clean, now, span } from "../format.js";
import { clockIsKnown, cluster, jobs, listen } from "../jobs.js";
import { keep, query } from "../router.js";
import { plain } from "../table.js";

const SPANS = [["6h", 21600], ["1d", 86400], ["3d", 259200], ["1w", 604800], ["4w", 2419200]];
const SHOWN = 7; // of the largest; the others are drawn as one

export function show(place) {
  let stopped = false, usage = { owner: null, queue: null }, limits = [], queues = [], timer = 0, asked = 0;
  const chosen = () => SPANS.find(([name]) => name === query().get("span")) ?? SPANS[1];
  const price = h("input", { type: "number", min: 0, step: "any", placeholder: "0", "aria-label": "Price of a GPU-hour", value: query().get("price") ?? "", oninput: () => { keep({ price: price.value }); draw(); if (usage.owner) drawCharts(); } });
  price.style.width = "90px";
  const spans = SPANS.map(([name]) => h("button", { class: "chip", onclick: () => { keep({ span: name === "1d" ? "" : name }); load(); } }, name));
  const people = h("div"), byQueue = h("div"), held = h("div"), waiting = h("div"), heldQueue = h("div"), used = h("div"), paid = h("div");
  const card = (title, ...content) => h("section", { class: "card" }, h("h2", null, title), content);
  const costNote = h("p", { class: "note" }), paidCard = card("Cost, by person", paid, costNote);
  put(place, h("div", { class: "head" }, h("h1", null, "People and queues"), h("label", null, "price of a GPU-hour ", price), h("div", { class: "chips", role: "group", "aria-label": "Period" }, spans)),
    h("div", { class: "stack" }, card("People", people), card("Queues", byQueue), h("div", { class: "cards" }, card("GPUs held, by person", held), card("Jobs waiting, by person", waiting), card("GPUs held, by queue", heldQueue), card("GPU-hours used, by person", used, h("p", { class: "note" }, "Added up from the beginning of the period.")), paidCard)));

  async function load() {
    asked = performance.now();
    await clockIsKnown;
    const [, length] = chosen();
    spans.forEach((chip, i) => chip.setAttribute("aria-pressed", String(SPANS[i][0] === chosen()[0])));
    const until = now();
    const ask = (by) => get(`/v1/usage?by=${by}&since=${(until - length).toFixed(0)}&until=${until.toFixed(0)}&bins=96`);
    try {
      const [owner, queue, known, all] = await Promise.all([ask("owner"), ask("queue"), get("/v1/limits"), get("/v1/queues")]);
      usage = { owner, queue };
      limits = known.limits;
      queues = all.queues;
      if (!stopped) { draw(); drawCharts(); }
    } catch { /* the bar says that there is no connection */ }
  }

  function tally(key) {
    const found = new Map();
    for (const job of jobs.values()) {
      const one = found.get(job[key]) ?? { held: 0, running: 0, waiting: 0, longest: 0, wants: 0 };
      if (!job.over) {
        one.held += job.gpus;
        if (job.state === "pending") { one.waiting++; one.wants += job.low; one.longest = Math.max(one.longest, job.waited); } else one.running++;
      }
      found.set(job[key], one);
    }
    return found;
  }

  /** What a GPU-hour costs: as typed, or else the mean of the cluster file; 0 if neither is known. */
  function costOfHour() {
    return price.value === "" ? usage.owner?.price_per_gpu_hour ?? 0 : Number(price.value) || 0;
  }

  function draw() {
    const known = usage.owner?.price_per_gpu_hour ?? null, cost = costOfHour();
    price.placeholder = known === null ? "0" : amount(known);
    price.title = known === null ? "the cluster file gives no prices" : "without another: the mean of the cluster file";
    const rows = (key, extra) => {
      const now_ = tally(key), hours = new Map((usage[key]?.rows ?? []).map((row) => [row.name, row.gpu_hours]));
      const all = [...hours.values()].reduce((a, b) => a + b, 0);
      return [...new Set([...now_.keys(), ...hours.keys()])].map((name) => ({ name, ...(now_.get(name) ?? { held: 0, running: 0, waiting: 0, longest: 0, wants: 0 }), hours: hours.get(name) ?? 0 })).sort((a, b) => b.hours - a.hours).map((row) => [h("bdi", null, h("a", { href: `/jobs?${key}=${encodeURIComponent(row.name)}` }, clean(row.name, 60))), amount(row.held), ...extra(row.name, row), amount(row.running), amount(row.waiting), amount(row.wants), row.longest ? span(row.longest) : "", row.hours.toFixed(1), all ? `${((100 * row.hours) / all).toFixed(1)}%` : "", cost ? (row.hours * cost).toFixed(2) : "–"]);
    };
    const tail = ["Running", "Waiting", "GPUs wanted", "Longest wait", `GPU-hours, ${chosen()[0]}`, "Share", "Cost"];
    const everybody = limits.find((row) => row.owner === "*");
    renew(people, jobs.size ? plain(["Person", "GPUs held", "Limit", ...tail], rows("owner", (name) => [amount((limits.find((row) => row.owner === name) ?? everybody)?.gpus ?? NaN)]), [1, 2, 3, 4, 5, 6, 7, 8, 9], "People") : h("p", { class: "soft" }, "Nobody has submitted a job yet. Add people with ", h("code", null, "argosy token add NAME"), "."));
    const total = queues.reduce((sum, queue) => sum + queue.weight, 0) || 1;
    renew(byQueue, plain(["Queue", "GPUs held", "Quota", "Limit", "Fair share", ...tail], rows("queue", (name) => {
      const queue = queues.find((one) => one.name === name);
      return [queue ? amount(queue.quota_gpus) : "–", amount(queue?.limit_gpus ?? NaN), queue && cluster.state ? amount((cluster.state.gpus * queue.weight) / total) : "–"];
    }), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], "Queues"));
  }

  function drawCharts() {
    const series = (found, what) => {
      const middle = found.edges.slice(1).map((edge, i) => (edge + found.edges[i]) / 2);
      const sorted = [...found.rows].sort((a, b) => b.gpu_hours - a.gpu_hours);
      const made = sorted.slice(0, SHOWN).map((row, i) => ({ name: row.name, hue: i + 1, points: middle.map((x, n) => [x, row[what][n]]) }));
      const rest = sorted.slice(SHOWN);
      if (rest.length) made.push({ name: `${rest.length} others`, hue: 0, points: middle.map((x, n) => [x, rest.reduce((sum, row) => sum + row[what][n], 0)]) });
      return made;
    };
    renew(held, lines(series(usage.owner, "held"), { unit: "GPUs", stacked: true, height: 200 }));
    renew(waiting, lines(series(usage.owner, "waiting"), { unit: "jobs", stacked: true, height: 200 }));
    renew(heldQueue, lines(series(usage.queue, "held"), { unit: "GPUs", stacked: true, height: 200 }));
    const hours = addedUp(series(usage.owner, "held"), usage.owner.edges), cost = costOfHour();
    renew(used, lines(hours, { unit: "GPU-hours", stacked: true, height: 200 }));
    paidCard.hidden = !cost;
    if (!cost) return;
    const money = price.value === "" ? "the currency of the cluster file" : "your currency";
    renew(paid, lines(hours.map((one) => ({ ...one, points: one.points.map(([x, y]) => [x, y * cost]) })), { unit: money, stacked: true, height: 200 }));
    say(costNote, `Added up from the beginning of the period, at ${amount(cost)} for a GPU-hour${price.value === "" ? ", the mean of the cluster file's prices" : ", as typed above"}.`);
  }

  load();
  const stop = listen(() => { timer ||= setTimeout(() => { timer = 0; draw(); if (performance.now() - asked > 30_000) load(); }, 2000); });
  return () => { stopped = true; stop(); clearTimeout(timer); };
}

/** Means of GPUs in equal parts of time as GPU-hours since the first of them. */
export function addedUp(series, edges) {
  const hours = (edges[1] - edges[0]) / 3600;
  return series.map((one) => {
    let sum = 0;
    return { ...one, points: [[edges[0], 0], ...one.points.map(([, gpus], i) => [edges[i + 1], (sum += gpus * hours)])] };
  });
}
