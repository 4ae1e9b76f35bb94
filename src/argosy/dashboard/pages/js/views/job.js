// One job: what it does now, why, what has happened to it, how it learns, and its log.

import { buttons } from "../actions.js";
import { get } from "../api.js";
import { lines } from "../chart.js";
import { failed } from "../dialog.js";
import { h, put, renew, say } from "../dom.js";
import { amount, clean, clockTime, gpus, moment, now, percent, range, rough, several, span } from "../format.js";
import { PLACE, jobs, listen, placeText } from "../jobs.js";
import { logView } from "../log.js";
import { backToJobs, go } from "../router.js";
import { stateOf } from "../states.js";
import { plain } from "../table.js";

const SLOW_MS = 4000; // curves and reasons are asked for at most this often
const KEPT = 400; // events on the page

const HINTS = {
  Place: PLACE,
  Goodput: "share of its run time in which it made progress, as far as its starts, stops and resizes were measured",
};

/** Where a run was, as a number of GPUs: n1:0,1 n2:3×0.5 → 2.5. */
export function gpusIn(text) {
  let sum = 0;
  for (const part of text.split(" ")) {
    const [, devices, share] = /^[^:]+:([\d,]+)(?:×([\d.]+))?$/.exec(part) ?? [];
    if (devices) sum += devices.split(",").length * Number(share ?? 1);
  }
  return sum;
}

const FIRST = ["loss", "samples_per_s"], LAST = ["samples", "workers"];
const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) - 10 : LAST.indexOf(name) + 1);

export function allocation(events, job) {
  const points = [];
  const marks = [];
  for (const event of events) {
    const place = event.text.replace(/^(runs on|now on) /, "");
    if (event.kind === "running" || (event.kind === "changed" && event.text.startsWith("now on"))) points.push([event.at, gpusIn(place)]);
    else if (event.kind === "changed" || ["suspended", "failed", "lost", "succeeded", "cancelled"].includes(event.kind)) points.push([event.at, 0]);
    if (["resizing", "moving", "suspended", "failed", "lost", "grown", "requeued", "worker-replaced"].includes(event.kind)) marks.push({ x: event.at, text: `${event.kind}: ${event.text}` });
  }
  if (points.length) points.unshift([job.submitted, 0]);
  if (points.length) points.push([job.ended ?? now(), points.at(-1)[1]]);
  return { points, marks };
}

const within = (low, high) => `in ${range(low, high).replace("≈ ", "about ")}`.replace("in >", "in more than");
const ending = (job, how) => (job.endsIn ? `${how} ${within(job.endsIn[0], job.endsIn[2])}.` : "");
const starting = (job) => (job.starts ? ` It is expected to start ${within(job.starts[0], job.starts[2])}${job.endsIn ? ` and to be done ${within(job.endsIn[0], job.endsIn[2])}` : ""}.` : "");

function sentence(job, told) {
  const size = several(job.gpus, "GPU").replace(/^1 GPU$/, "one GPU");
  if (job.state === "running" && !job.paused) {
    const left = ending(job, " It is expected to be done") || (job.progress === null ? " It does not report its progress." : "");
    return `It runs on ${job.gpus ? size : "no GPU"} (${clean(job.places)}), ${job.progress === null ? "" : `${percent(job.progress)} of its work is done, and `}has run for ${rough(job.ran)}.${left}`;
  }
  if (job.over) {
    const took = `It waited ${rough(job.waited)} and ran ${rough(job.ran)}.`;
    const how = { succeeded: "It has succeeded.", failed: `It has failed: ${clean(told?.text ?? job.why)}.`, cancelled: "It was cancelled." }[job.state];
    return `${how} ${took}`;
  }
  const text = clean(told?.state === job.state && told.text ? told.text : job.why);
  const retry = job.retry ? ` It is tried again in ${span(job.retry - now())}.` : "";
  if (job.state === "pending") return `It has waited for ${rough(job.waited)}: ${text}.${retry}${starting(job)}`;
  return `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}.`;
}

export function show(place, id) {
  const number = Number(id);
  let events = [], detail = null, told = null, slow = 0, slowAt = 0, ended = false, log = null, asking = false;
  const head = h("h1"), state = h("span", { class: "state" }), said = h("p", { class: "sentence", "aria-live": "polite" });
  const change = h("p", { class: "change" }), evidence = h("p", { class: "soft small" });
  const figures = h("dl", { class: "figures" });
  const actions = buttons(() => [jobs.get(number)].filter(Boolean), { hides: true });
  const where = h("div"), curves = h("div", { class: "cards" }), story = h("ol", { class: "story" }), runs = h("div"), similar = h("div"), file = h("pre", { class: "file" }), logs = h("div");
  const card = (title, ...content) => h("section", { class: "card" }, h("h2", null, title), content);
  const overTime = card("GPUs over time", where, h("p", { class: "note" }, "Dotted lines mark resizes, moves, suspensions and failures; point at one to read it."));
  const whole = h("div", { class: "stack", hidden: true }, h("section", { class: "card" }, said, change, evidence), figures,
    overTime, curves,
    card("Log", logs), h("div", { class: "cards" }, card("Story", story), h("div", { class: "stack" }, card("Runs", runs), card("Jobs like this one", similar))), card("Its file", file));
  put(place, h("div", { class: "head" }, h("a", { href: backToJobs() }, "← Jobs"), head, state, actions.elements), whole);

  function draw() {
    const job = jobs.get(number);
    if (!job) return;
    whole.hidden = false;
    overTime.hidden = curves.hidden = !job.runs; // a job that has never run has nothing to draw
    say(head, `${number} ${clean(job.name, 100)}`);
    stateOf(state, job.shown);
    say(said, sentence(job, told));
    say(change, told?.change && job.state === "pending" && told.state === job.state ? `What would start it now: ${clean(told.change)}` : "");
    say(evidence, told?.evidence?.behind?.length && job.state === "pending" ? `It waits behind ${told.evidence.behind.length === 1 ? "job" : "jobs"} ${told.evidence.behind.slice(0, 12).join(", ")}${told.evidence.behind.length > 12 ? " …" : ""}.` : "");
    const rows = [["GPUs", gpus(job)], ...(job.state === "pending" ? [["Place", job.place ? placeText(job.place) : "–"]] : []), ["Progress", job.progress === null ? "–" : percent(job.progress)], ["Waited", span(job.waited)], ["Ran", span(job.ran)], ["GPU-hours", amount(job.gpuSeconds / 3600)],
      ["Goodput", goodput()], ["Runs", String(job.runs)], ["Resizes", String(job.resizes)], ["Preemptions", String(job.preemptions)], ["Failures", String(job.failures)]];
    if (figures.childElementCount !== rows.length) renew(figures, rows.map(([name]) => h("div", { title: HINTS[name] }, h("dt", null, name), h("dd"))));
    rows.forEach(([, value], i) => say(figures.children[i].lastChild, value));
    actions.update();
    if (job.runs && !log) { log = logView(number, job.runs); renew(logs, log.element); }
    else if (log) log.update(job.runs);
    else if (!logs.childElementCount) renew(logs, h("p", { class: "soft" }, "It has not started, so there is no log yet."));
  }

  function goodput() {
    const job = jobs.get(number);
    const lost = events.filter((event) => event.kind === "measured").reduce((sum, event) => sum + Number(/took ([\d.]+) s/.exec(event.text)?.[1] ?? 0), 0);
    return job.ran > 0 && lost > 0 ? percent(Math.max(0, 1 - lost / job.ran)) : "–";
  }

  function drawStory() {
    const job = jobs.get(number);
    const atEnd = story.scrollTop + story.clientHeight > story.scrollHeight - 30;
    renew(story, events.slice(-KEPT).map((event) => h("li", null, h("time", { class: "soft mono", title: moment(event.at) }, clockTime(event.at)), h("span", { class: "tag" }, clean(event.kind, 20)), h("span", null, clean(event.text)))));
    if (atEnd) story.scrollTop = story.scrollHeight;
    const { points, marks } = allocation(events, job);
    renew(where, points.length ? lines([{ name: "GPUs held", points, area: true, hue: 1 }], { unit: "GPUs", step: true, marks, height: 140 }) : h("p", { class: "soft" }, "It has not held a GPU yet."));
  }

  async function refresh() {
    if (asking || ended) return;
    asking = true;
    try {
      const after = events.at(-1)?.id ?? 0;
      const news = (await get(`/v1/jobs/${number}/events?after=${after}&limit=1000`)).events;
      events.push(...news);
      if (news.length || !story.childElementCount) drawStory();
      if (performance.now() - slowAt > SLOW_MS || !slowAt) {
        slowAt = performance.now();
        const [explained, found, all] = await Promise.all([get(`/v1/jobs/${number}/explain`), get(`/v1/jobs/${number}/curves`), get(`/v1/jobs/${number}/runs`)]);
        told = explained;
        if (ended) return;
        drawCurves(found);
        drawRuns(all.runs);
      }
      draw();
    } catch (problem) {
      if (problem.status === 404) gone();
      if (problem instanceof TypeError) throw problem; // a fault of this page, not of the connection
    } finally {
      asking = false;
    }
  }

  function drawCurves({ at, values, checkpoints }) {
    const job = jobs.get(number);
    const marks = checkpoints.map((saved) => ({ x: saved.at, text: `saved at step ${saved.step}` }));
    const names = Object.keys(values).filter((name) => !["step", "progress", "epoch"].includes(name)).sort((a, b) => rank(a) - rank(b));
    const units = { loss: "loss", samples_per_s: "samples/s", samples: "samples" };
    const made = names.map((name, i) => h("section", { class: "card" }, h("h2", null, { loss: "Loss", samples_per_s: "Throughput" }[name] ?? clean(name, 60).replaceAll("_", " ")), lines([{ name, hue: (i % 8) + 1, points: at.map((t, n) => [t, values[name][n]]) }], { unit: units[name] ?? clean(name, 24).replaceAll("_", " "), marks })));
    const saved = checkpoints.length ? `${several(checkpoints.length, "checkpoint")} kept; the newest is of step ${checkpoints[0].step}, ${rough(now() - checkpoints[0].at)} old.` : "No checkpoint was saved yet.";
    const teach = made.length || job?.over ? null : h("p", { class: "soft" }, "The job reports no loss or speed. With the SDK it would: ", h("code", null, "for batch in job.steps(loader): … job.report(loss=loss)"));
    renew(curves, made, h("section", { class: "card" }, h("h2", null, "Checkpoints"), h("p", null, saved), teach));
  }

  function drawRuns(all) {
    renew(runs, all.length ? plain(["Run", "Began", "Ran", "GPU-hours", "End"], all.slice(-50).reverse().map((run) => [run.generation, moment(run.launched_at).slice(5), span(run.ended_at ? run.run_s : now() - run.launched_at), amount(run.gpu_s / 3600), run.ended_at ? clean(run.stop ?? (run.message || `exit code ${run.exit_code}`), 120) : "runs"]), [0, 2, 3], "Runs") : h("p", { class: "soft" }, "None yet."));
  }

  function gone() {
    ended = true;
    renew(place, h("div", { class: "empty card" }, h("h2", null, `There is no job ${number}`), h("p", null, "It does not exist, or it belongs to somebody else."), h("p", null, h("a", { href: "/jobs" }, "See your jobs"))));
  }

  async function begin() {
    if (!Number.isSafeInteger(number) || number < 1) return gone();
    try {
      detail = await get(`/v1/jobs/${number}`);
    } catch (problem) {
      return problem.status === 404 ? gone() : failed(problem);
    }
    say(file, JSON.stringify(prune(detail.spec), null, 2));
    const like = (await get(`/v1/jobs/${number}/similar`)).jobs;
    renew(similar, like.length ? plain(["Job", "State", "Waited", "Ran", "GPU-hours"], like.slice(0, 8).map((one) => [h("a", { href: `/jobs/${one.id}` }, one.id), stateOf(h("span"), one.state), span(one.wait_s), span(one.run_s), amount(one.gpu_s / 3600)]), [2, 3, 4], "Jobs like this one") : h("p", { class: "soft" }, "None of this owner with this name or model has ended yet."));
    await refresh();
  }

  begin();
  const stop = listen((changed) => {
    if (ended || (changed && !changed.has(number) && performance.now() - slow < 2000)) return;
    slow = performance.now();
    refresh();
  });
  const ticking = setInterval(() => { if (!ended && detail) draw(); }, 1000);
  const keys = (event) => {
    if (event.target.closest("input, select, textarea, dialog")) return;
    if (event.key === "Escape") go(backToJobs());
    if (event.key === "f") log?.toggle();
  };
  addEventListener("keydown", keys);
  return () => { ended = true; stop(); clearInterval(ticking); log?.end(); removeEventListener("keydown", keys); };
}

/** The job file without what was not given. */
function prune(value) {
  if (Array.isArray(value)) return value.length ? value.map(prune) : undefined;
  if (value === null || typeof value !== "object") return value ?? undefined;
  const kept = Object.entries(value).map(([name, inner]) => [name, name === "env" ? Object.fromEntries(Object.keys(inner).map((key) => [key, "(set)"])) : prune(inner)]).filter(([, inner]) => inner !== undefined && !(typeof inner === "object" && !Object.keys(inner).length));
  return Object.fromEntries(kept);
}
