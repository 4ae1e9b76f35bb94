// The policy that runs: what it decides and may see, what it costs, and what is not known about others yet.

import { get } from "../api.js";
import { h, put, renew } from "../dom.js";
import { amount, clean, rough, speed } from "../format.js";
import { cluster, jobs, listen } from "../jobs.js";
import { shadowCard } from "./shadow.js";

export const MEANING = {
  declared: "work that users declare", demand: "what jobs ask for", duration: "true durations (only in simulations)", estimate: "estimates of durations", history: "what has ended before", nodes: "nodes and what is free", overhead: "measured costs of starts and moves", placement: "where jobs are", profile: "measured speeds of models", progress: "progress that jobs report", rate: "present speeds", service: "time and GPU-time received",
};

/** Why jobs wait, by the daemon's name of the reason. */
export const REASONS = {
  "no-gpus": "there are not enough free GPUs", fragmented: "enough GPUs are free, but not together", "no-cpus": "too few CPUs are free beside the free GPUs", "no-memory": "too little memory is free beside the free GPUs", "gpu-type": "no GPU of a type that they accept is free",
  behind: "a job ahead of them does not fit, and the policy keeps the order", outranked: "jobs with a better rank hold the GPUs", outbid: "other jobs bid more for the GPUs", quota: "their queue has reached its limit", reserved: "free nodes are reserved for another queue", "nodes-down": "nodes are down or draining", policy: "the policy gives them nothing now",
  limit: "their owner has reached a limit", "place-not-free": "another run is still leaving their place", "policy-failed": "the policy has failed", held: "they are held back until somebody releases them", dependency: "they wait for other jobs", "back-off": "their last run ended early, and they are tried again soon", new: "the policy has not been asked about them yet",
};

/** The limit below which a share of all samples lies, from cumulative buckets. */
export function quantile(buckets, share) {
  const total = buckets?.at(-1)?.[1] ?? 0;
  if (!total) return NaN;
  return (buckets.find(([, count]) => count >= share * total)[0] ?? Infinity);
}

export const below = (seconds) => (Number.isNaN(seconds) ? "–" : seconds === Infinity ? `> ${amount(30 / speed())} s` : seconds < 1 ? `≤ ${amount(seconds * 1000)} ms` : `≤ ${amount(seconds)} s`);
export const figureList = (rows) => h("dl", { class: "figures" }, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));

export function show(place) {
  let stopped = false, asked = 0, told = null;
  const body = h("div", { class: "stack" }), shadow = shadowCard(), others = h("div", { class: "stack" });
  put(place, h("div", { class: "head" }, h("h1", null, "Policy lab")), h("div", { class: "stack" }, body, shadow.element, others));
  const card = (title, ...content) => h("section", { class: "card" }, h("h2", null, title), content);

  async function load() {
    asked = performance.now();
    try {
      told = await get("/v1/policy");
      if (stopped) return;
      draw();
      shadow.update(told.known ?? []);
    } catch { /* the bar says that there is no connection */ }
  }

  function draw() {
    if (!told || !cluster.state) return;
    const { counts, times } = told.figures;
    const all = [...jobs.values()], waiting = all.filter((job) => job.state === "pending"), over = all.filter((job) => job.over && job.runs);
    const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : NaN);
    const decided = counts.argosy_decision_seconds_count ?? 0;
    renew(body,
      told.problem ? h("p", { class: "notice bad" }, `It has failed: ${clean(told.problem)}. Running jobs go on; it is asked again.`) : null,
      card("The policy that runs", h("p", { class: "sentence" }, h("b", null, clean(told.name, 120)), `: ${clean(told.summary)}.`),
        h("dl", { class: "facts" }, h("dt", null, "decides"), h("dd", null, clean(told.decides ?? "–")), h("dt", null, "may see"), h("dd", null, (told.sees ?? []).map((name) => h("span", { class: "tag", title: MEANING[name] ?? "" }, MEANING[name] ?? name)).flatMap((tag) => [tag, " "])), h("dt", null, "preempts"), h("dd", null, told.preemptive ? "yes" : "no"), h("dt", null, "source"), h("dd", null, clean(told.reference ?? "–")))),
      figureList([["Decisions", amount(decided)], ["Mean time of a decision", decided ? rough_(counts.argosy_decision_seconds_sum / decided / speed()) : "–"], ["99 of 100 decisions", below(quantile(times.argosy_decision_seconds, 0.99) / speed())], ["Starts", amount(counts.argosy_starts_total)], ["Preemptions", amount(counts.argosy_preemptions_total)], ["Resizes", amount(counts.argosy_resizes_total)], ["Failures of the policy", amount(counts.errors_planner ?? 0)]]),
      h("div", { class: "cards" },
        card("Measured on this cluster", h("dl", { class: "facts" }, h("dt", null, "GPUs held now"), h("dd", null, `${amount(cluster.state?.held)} of ${amount(cluster.state?.gpus)}`), h("dt", null, "mean wait of jobs that ended"), h("dd", null, rough(mean(over.map((job) => job.wait ?? 0))) || "–"), h("dt", null, "mean completion time"), h("dd", null, rough(mean(over.map((job) => job.ended - job.submitted))) || "–"), h("dt", null, "longest wait now"), h("dd", null, rough(Math.max(0, ...waiting.map((job) => job.waited)))), h("dt", null, "preemptions per ended job"), h("dd", null, amount(mean(over.map((job) => job.preemptions)))), h("dt", null, "resizes per ended job"), h("dd", null, amount(mean(over.map((job) => job.resizes)))))),
        card("Why jobs wait now", reasons(waiting))));
    if (!others.childElementCount) put(others, card("Other policies on what happened", h("p", null, "What would the jobs of this daemon have gained under others? Replay its own history, in a terminal on this machine; the report then stands under Studies, if the daemon was started with --studies out:"),
        h("pre", { class: "file" }, "argosy replay --policies tiresias-las,srtf,gavel-max-min --report out/replay.html"), h("p", { class: "note" }, "Jobs have the lengths that they really had, and starts, stops and moves cost what was measured here. “actual” is what really happened.")));
  }

  const rough_ = (seconds) => (seconds < 1 ? `${amount(seconds * 1000)} ms` : rough(seconds));

  function reasons(waiting) {
    if (!waiting.length) return h("p", { class: "soft" }, "No job waits.");
    const counts = new Map();
    for (const job of waiting) counts.set(job.category || "new", (counts.get(job.category || "new") ?? 0) + 1);
    return h("ul", { class: "stack" }, [...counts].sort((a, b) => b[1] - a[1]).map(([name, n]) => {
      const fill = h("i");
      fill.style.width = `${(100 * n) / waiting.length}%`;
      return h("li", null, h("div", null, h("b", null, n), ` ${REASONS[name] ?? clean(name, 60).replaceAll("-", " ")}`), h("span", { class: "meter" }, fill));
    }));
  }

  load();
  const stop = listen((changed) => { if (changed === null) draw(); if (performance.now() - asked > 5000) load(); });
  return () => { stopped = true; stop(); };
}
