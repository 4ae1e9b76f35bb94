// How the daemon itself does: passes, planner, backend, disk, and, for operators, who did what.

import { get, operates } from "../api.js";
import { failed } from "../dialog.js";
import { h, put, renew } from "../dom.js";
import { amount, bytes, clean, moment, rough, speed } from "../format.js";
import { listen } from "../jobs.js";
import { keep, query } from "../router.js";
import { plain } from "../table.js";
import { below, figureList, quantile } from "./policy.js";

const ERRORS = [["planner", "of the policy"], ["backend", "of the backend, which starts and ends jobs"], ["disk", "in writing to the disk"], ["own", "of the daemon itself"]];

export function show(place) {
  let stopped = false, asked = 0, before = null;
  const body = h("div", { class: "stack" }), log = h("div"), more = h("button", { hidden: true, onclick: () => audit(before).catch(failed) }, "Earlier");
  const who = h("input", { type: "search", placeholder: "Only this person", "aria-label": "Only this person", value: query().get("who") ?? "", onchange: () => { keep({ who: who.value }); entries.length = 0; audit().catch(failed); } });
  const entries = [];
  put(place, h("div", { class: "head" }, h("h1", null, "Health")), body, operates() ? h("section", { class: "card" }, h("div", { class: "head" }, h("h2", null, "Audit log"), who), log, more) : null);
  body.style.marginBottom = "16px";

  async function load() {
    asked = performance.now();
    try {
      const told = await get("/v1/daemon");
      if (!stopped) draw(told);
    } catch { /* the bar says that there is no connection */ }
  }

  function draw({ version, figures, health, disk, home, streams, sessions }) {
    const { counts, times } = figures;
    const problems = health.problems.filter(Boolean);
    renew(body,
      health.ok ? h("p", { class: "notice", role: "status" }, "✓ All is well: jobs are being scheduled.") : h("div", { class: "notice bad", role: "alert" }, h("div", null, h("b", null, "Jobs may not be scheduled."), h("ul", null, (problems.length ? problems : ["Ask an operator what is wrong."]).map((text) => h("li", null, clean(text, 600)))))),
      figureList([["Passes", amount(counts.argosy_passes_total)], ["99 of 100 passes", below(quantile(times.argosy_pass_seconds, 0.99))], ["Last pass", health.last_pass_age_s === null ? "none yet" : `${rough(health.last_pass_age_s / speed())} ago`], ["99 of 100 decisions", below(quantile(times.argosy_decision_seconds, 0.99) / speed())], ["Last decision", health.last_decision_age_s === null ? "none yet" : `${rough(health.last_decision_age_s / speed())} ago`], ["Errors", amount(ERRORS.reduce((sum, [part]) => sum + (counts[`errors_${part}`] ?? 0), 0))]]),
      h("div", { class: "cards" },
        h("section", { class: "card" }, h("h2", null, "The daemon"), facts([["version", version], ["policy", health.policy], ["backend", health.backend], ["runs lost with their node", amount(counts.argosy_run_losses_total)], ["leftover processes that were killed", amount(counts.argosy_fenced_total)], ["clock since its first start", rough(health.uptime_clock_s)]])),
        h("section", { class: "card" }, h("h2", null, "Errors since its last start"), facts(ERRORS.map(([part, title]) => [title, amount(counts[`errors_${part}`] ?? 0)]))),
        disk ? h("section", { class: "card" }, h("h2", null, "This machine"), facts([["home", home], ["database", bytes(disk.database_bytes)], ["free on its disk", bytes(disk.free_bytes)], ["load of one minute", amount(disk.load)], ["open pages", amount(streams)], ["sessions", amount(sessions)]])) : null));
    body.firstChild.classList.toggle("good", health.ok);
  }

  const facts = (rows) => h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", null, name), h("dd", null, clean(value, 400))]));

  async function audit(from = null) {
    const page = await get(`/v1/audit?limit=30${from ? `&before=${from}` : ""}${who.value ? `&who=${encodeURIComponent(who.value)}` : ""}`);
    if (stopped) return;
    entries.push(...page.entries);
    before = page.next;
    more.hidden = !before;
    renew(log, entries.length ? plain(["When", "Who", "From", "What", "On", "Result", "Detail"], entries.map((one) => [h("span", { class: "nowrap" }, moment(one.at)), h("bdi", null, clean(one.who || "unknown", 60)), clean(one.address || "the daemon", 60), one.action, clean(one.object, 120), h("span", { class: one.result === "done" ? "tag" : "tag bad" }, one.result), clean(one.detail, 200)]), [], "Audit log") : h("p", { class: "soft" }, "There are no entries."));
  }

  load();
  if (operates()) audit().catch(failed);
  const stop = listen(() => { if (performance.now() - asked > 3000) load(); });
  return () => { stopped = true; stop(); };
}
