// The shadow: another policy that is asked what it would do, beside the one that decides; and its promotion, with a guard.

import { get, operates, post, put as send } from "../api.js";
import { confirm, failed, toast } from "../dialog.js";
import { h, put, renew } from "../dom.js";
import { amount, clean, moment, percent } from "../format.js";
import { plain } from "../table.js";
import { figureList } from "./policy.js";

const PHASES = { guarded: "It is guarded: if jobs stay longer than expected by more than", kept: "It was kept: the guard has ended.", "fell-back": "It was worse, so the daemon fell back by itself.", unguarded: "It is not guarded." };
const digits = (share) => Math.abs(100 * share).toFixed(1);

/** A gain of time in words: how much shorter, or longer. */
const shorter = (gain) => `${digits(gain)}% ${gain >= 0 ? "shorter" : "longer"}`;

/** A range of gains in words, the smaller change first; the sign is in the word, never in the number. */
export function between(low, high) {
  if (low < 0 && high >= 0) return `between ${shorter(low)} and ${shorter(high)}`;
  const [least, most] = low < 0 ? [high, low] : [low, high];
  return `${digits(least)}–${shorter(most)}`;
}

/** A card for operators; `update(known)` asks for news, and offers the policies that are known. */
export function shadowCard() {
  const names = h("datalist", { id: "policies" }), told = h("div", { class: "stack" });
  const wanted = h("input", { name: "policy", list: "policies", required: true, placeholder: "srtf", "aria-label": "Policy to compare" });
  const form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); set(wanted.value.trim()); } }, wanted, names, h("button", { class: "main" }, "Compare"));
  const element = h("section", { class: "card", hidden: true }, h("h2", null, "Another policy in the shadow"), h("p", { class: "soft" }, "It is asked what it would run, and does nothing. Then the future is played through under both, with the same lengths of jobs."), form, told);
  let drawn = "";

  async function set(policy) {
    try {
      draw(await send("/v1/shadow", { policy }));
      toast(policy ? `${policy} is compared from now on.` : "Nothing is compared any more.");
      wanted.value = "";
    } catch (problem) {
      failed(problem);
    }
  }

  async function promote(policy) {
    const given = await confirm({ title: `Let ${clean(policy, 80)} decide?`, yes: "Promote it", danger: true, body: [h("p", null, "It decides from now on; running jobs go on. While it is guarded, the daemon estimates what the present policy would have made of the same jobs, and falls back if it is worse.")],
      fields: [h("p", null, h("label", null, "fall back if jobs stay longer by ", h("input", { name: "guard", type: "number", min: 1, max: 1000, step: "any", value: "10", required: true }), " %")), h("p", null, h("label", null, "guard it for ", h("input", { name: "hours", type: "number", min: 0.1, max: 720, step: "any", value: "1", required: true }), " hours"))] });
    if (!given) return;
    try {
      await post("/v1/promote", { policy, guard: Number(given.guard) / 100, for_s: 3600 * Number(given.hours) });
      toast(`${clean(policy, 80)} decides from now on.`);
      await load();
    } catch (problem) {
      failed(problem);
    }
  }

  function promotion(found) {
    if (!found) return null;
    const now = found.phase === "guarded" ? `${PHASES.guarded} ${percent(found.guard)}, ${clean(found.former, 80)} decides again.` : PHASES[found.phase];
    const last = found.last ? ` Time in the system against what ${clean(found.former, 80)} would have made: ${shorter(-found.last.by_jobs)}, and ${shorter(-found.last.by_gpus)} if jobs count by their GPUs.` : "";
    return h("p", { class: `notice ${found.phase === "fell-back" ? "bad" : found.phase === "kept" ? "good" : ""}`, role: "status" }, `${clean(found.policy, 80)} took over from ${clean(found.former, 80)} at ${moment(found.at)}. ${now}${found.reason ? ` ${clean(found.reason)}.` : ""}${last}`);
  }

  function draw(found) {
    const text = JSON.stringify(found);
    if (text === drawn) return;
    drawn = text;
    const { policy, gain } = found;
    const knows = gain.mean !== null && gain.low !== null;
    renew(told, promotion(found.promotion), policy ? [
      h("p", { class: "sentence" }, h("b", null, clean(policy, 80)), ` beside ${clean(found.live, 80)} since ${moment(found.since, false)}: `, knows ? `jobs would take ${shorter(gain.mean)} on average (${between(gain.low, gain.high)} in nine of ten comparisons).` : "it is not known yet what it would win."),
      figureList([["Decisions", amount(found.decisions)], ["Compared", amount(found.compared)], ["Skipped", amount(found.skipped)], ["Too slow", amount(found.slow)], ["Failed", amount(found.failed)], ["Same GPUs to the same jobs", found.agreement === null ? "–" : percent(found.agreement)]]),
      found.problem ? h("p", { class: "notice bad" }, clean(found.problem)) : null,
      found.differ.length ? [h("h3", null, `Where they differed last, at ${moment(found.last_at)}`), plain(["Job", "GPUs now", "GPUs by the shadow"], found.differ.slice(0, 12).map((one) => [h("a", { href: `/jobs/${one.job}` }, one.job), amount(one.gpus), amount(one.shadow_gpus)]), [0, 1, 2], "Differences")] : null,
      h("div", { class: "chips" }, h("button", { onclick: () => promote(policy) }, `Promote ${clean(policy, 40)} …`), h("button", { onclick: () => set(null) }, "Compare no longer")),
    ] : h("p", null, "No policy is compared at the moment. Name one, with parameters if you like: srtf, or tiresias-las:limits=600,3600."));
  }

  async function load() {
    const found = await get("/v1/shadow").catch(() => null); // a daemon without a policy of its own has none
    element.hidden = !found;
    if (found) draw(found);
  }

  function update(known) {
    if (!operates()) return;
    if (names.childElementCount !== known.length) renew(names, known.map((name) => h("option", { value: name })));
    load();
  }
  return { element: put(h("div"), element), update };
}
