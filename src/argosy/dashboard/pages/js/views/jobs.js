// The table of all jobs: filtered by the address, sorted, arrays folded, with actions on those that are marked.

import { buttons } from "../actions.js";
import { h, put, renew, say, width } from "../dom.js";
import { amount, clean, gpus, now, percent, range, several, span } from "../format.js";
import { PLACE, cluster, jobs, listen, placeText } from "../jobs.js";
import { go, keep, query } from "../router.js";
import { SIGNS, STATES, stateOf } from "../states.js";
import { Table } from "../table.js";

const COLUMNS = [
  { id: "mark", title: "", width: 36 },
  { id: "id", title: "Job", width: 72, sort: (job) => job.id, className: "num" },
  { id: "name", title: "Name", width: 190, sort: (job) => job.name },
  { id: "state", title: "State", width: 128, sort: (job) => STATES.indexOf(job.shown) },
  { id: "place", title: "Place", width: 64, sort: (job) => (job.place === Infinity ? 1e9 : job.place ?? Infinity), className: "num", hint: PLACE },
  { id: "gpus", title: "GPUs", width: 96, sort: (job) => job.gpus || job.low / 1e6, className: "num", hint: "GPUs that it holds, of those that it asks for" },
  { id: "progress", title: "Progress", width: 130, sort: (job) => job.progress ?? -1 },
  { id: "eta", title: "Expected", width: 158, sort: (job) => job.starts?.[1] ?? job.endsIn?.[1] ?? Infinity, hint: "when it starts or is done, in eight of ten simulated futures" },
  { id: "why", title: "Reason", sort: (job) => job.why },
  { id: "age", title: "Age", width: 84, sort: (job) => -job.submitted, className: "num", hint: "since it was submitted" },
  { id: "owner", title: "Owner", width: 96, sort: (job) => job.owner },
  { id: "queue", title: "Queue", width: 92, sort: (job) => job.queue },
  { id: "priority", title: "Prio", width: 60, sort: (job) => job.priority, className: "num", hint: "priority, 0 to 100" },
];
const DEFAULT = "-id";
const EVERY_MS = 500; // the table is sorted anew at most this often; visible rows change at once
const TEXT = new Intl.Collator("en", { numeric: true });

function wanted() {
  const given = query();
  const sort = given.get("sort") || DEFAULT;
  return {
    text: (given.get("q") ?? "").toLowerCase(), states: new Set((given.get("state") ?? "").split(",").filter(Boolean)),
    owner: given.get("owner") ?? "", queue: given.get("queue") ?? "", column: sort.replace(/^-/, ""), down: sort.startsWith("-"), unfolded: given.get("arrays") === "all",
  };
}

/** The jobs that the filters let through, sorted, with the jobs of an array folded into one row. */
export function select(all, { text, states, owner, queue, column, down, unfolded }, open = new Set()) {
  const words = text.split(/\s+/).filter(Boolean);
  const found = all.filter((job) => (!states.size || states.has(job.shown)) && (!owner || job.owner === owner) && (!queue || job.queue === queue) && words.every((word) => job.text.includes(word)));
  const key = (COLUMNS.find((one) => one.id === column) ?? COLUMNS[1]).sort ?? ((job) => job.id);
  const keyed = found.map((job) => [key(job), job]);
  const sign = down ? -1 : 1;
  const byText = typeof keyed[0]?.[0] === "string";
  keyed.sort(byText ? (a, b) => sign * TEXT.compare(a[0], b[0]) || b[1].id - a[1].id : (a, b) => (a[0] === b[0] ? 0 : sign * (a[0] - b[0])) || b[1].id - a[1].id);
  if (unfolded) return keyed.map(([, job]) => job);
  const arrays = new Map();
  const shown = [];
  for (const [, job] of keyed) {
    if (job.array === null) { shown.push(job); continue; }
    const known = arrays.get(job.array);
    if (known) { known.members.push(job); if (known.open) shown.push(job); continue; }
    const fold = { fold: job.array, members: [job], open: open.has(job.array), at: shown.length };
    arrays.set(job.array, fold);
    shown.push(fold);
    if (fold.open) shown.push(job);
  }
  return shown.map((one) => (one.fold && one.members.length === 1 ? (one.open ? null : one.members[0]) : one)).filter(Boolean);
}

export function show(place) {
  const marked = new Set();
  const open = new Set();
  let items = [];
  let timer = 0, updated = 0;

  const search = h("input", { type: "search", placeholder: "Search: name, number, owner, reason", "aria-label": "Search jobs", value: query().get("q") ?? "", oninput: () => { keep({ q: search.value }); update(); } });
  const owners = h("select", { "aria-label": "Owner", onchange: () => { keep({ owner: owners.value }); update(); } });
  const queues = h("select", { "aria-label": "Queue", onchange: () => { keep({ queue: queues.value }); update(); } });
  const chips = new Map(STATES.map((state) => {
    const count = h("b", null, "0");
    const chip = h("button", { class: "chip", "aria-pressed": "false", onclick: () => toggle(state) }, h("span", { "aria-hidden": "true" }, SIGNS[state]), state, count);
    return [state, { chip, count }];
  }));
  const fold = h("button", { class: "chip", "aria-pressed": "false", onclick: () => { keep({ arrays: wanted().unfolded ? "" : "all" }); update(); } }, "unfold arrays");
  const clear = h("button", { class: "plain", onclick: () => { search.value = ""; keep({ q: "", state: "", owner: "", queue: "" }); update(); } }, "Clear filters");
  const total = h("span", { class: "soft", "aria-live": "polite" });
  const actions = buttons(() => [...marked].map((id) => jobs.get(id)).filter(Boolean), { after: () => { marked.clear(); update(); } });
  const count = h("b");
  const bulk = h("div", { class: "bulk", role: "toolbar", "aria-label": "Actions on marked jobs", hidden: true }, count, actions.elements, h("button", { class: "plain", onclick: () => { marked.clear(); update(); } }, "Unmark"));
  const empty = h("div", { class: "empty card", hidden: true });
  const table = new Table({
    columns: COLUMNS, make: () => makeRow(marked, toggleMark, unfold), draw: (row, item) => drawRow(row, item, marked), label: "Jobs",
    open: (item) => (item.fold ? unfold(item) : go(`/jobs/${item.id}`)), mark: toggleMark, sortBy,
  });
  put(place, h("div", { class: "head" }, h("h1", null, "Jobs"), total), h("div", { class: "filters" }, search, owners, queues, fold, clear), h("div", { class: "filters" }, h("div", { class: "chips", role: "group", "aria-label": "States" }, [...chips.values()].map(({ chip }) => chip))), bulk, empty, table.element);

  function toggle(state) {
    const { states } = wanted();
    if (!states.delete(state)) states.add(state);
    keep({ state: [...states].join(",") });
    update();
  }

  function sortBy(id) {
    const { column, down } = wanted();
    const next = column === id ? !down : ["id", "gpus", "progress", "priority"].includes(id);
    keep({ sort: (next ? "-" : "") + id === DEFAULT ? "" : (next ? "-" : "") + id });
    update();
  }

  function toggleMark(item) {
    const members = item.fold ? item.members : [item];
    const all = members.every((job) => marked.has(job.id));
    for (const job of members) if (all) marked.delete(job.id); else marked.add(job.id);
    update();
  }

  function unfold(item) {
    if (!open.delete(item.fold)) open.add(item.fold);
    update();
  }

  function update() {
    timer = 0;
    const began = updated = performance.now();
    const filter = wanted();
    const all = [...jobs.values()];
    items = select(all, filter, open);
    table.sorted(filter.column, filter.down);
    table.show(items);
    const counts = {};
    for (const job of all) counts[job.shown] = (counts[job.shown] ?? 0) + 1;
    for (const [state, { chip, count }] of chips) {
      say(count, String(counts[state] ?? 0));
      chip.setAttribute("aria-pressed", String(filter.states.has(state)));
      chip.hidden = !counts[state] && !filter.states.has(state) && ["held", "paused", "starting", "stopping"].includes(state);
    }
    fold.setAttribute("aria-pressed", String(filter.unfolded));
    fold.hidden = !all.some((job) => job.array !== null);
    clear.hidden = !(filter.text || filter.states.size || filter.owner || filter.queue);
    const seen = items.reduce((sum, item) => sum + (item.fold ? (item.open ? 0 : item.members.length) : 1), 0);
    say(total, all.length ? (seen === all.length ? several(all.length, "job") : `${seen.toLocaleString("en")} of ${several(all.length, "job")}`) : "");
    options(owners, "all owners", all, (job) => job.owner, filter.owner);
    options(queues, "all queues", all, (job) => job.queue, filter.queue);
    for (const id of marked) if (!jobs.has(id)) marked.delete(id);
    bulk.hidden = !marked.size;
    say(count, `${several(marked.size, "job")} marked`);
    actions.update();
    teach(all.length);
    place.dataset.took = (performance.now() - began).toFixed(1);
  }

  function teach(known) {
    empty.hidden = items.length > 0 || !cluster.state;
    table.element.hidden = !empty.hidden;
    if (empty.hidden || empty.dataset.known === String(!!known)) return;
    empty.dataset.known = String(!!known);
    if (known) renew(empty, h("h2", null, "No job fits these filters"), h("p", null, "Clear the filters, or search for something else."));
    else renew(empty, h("h2", null, "No jobs yet"), h("p", null, "Submit one in a terminal; it appears here at once:"), h("pre", null, "argosy submit --run 'python train.py' --gpus 1\nargosy submit --run 'sleep 30' --gpus 1..2     # to try it out"));
  }

  const changed = (numbers) => {
    if (numbers === null) return update();
    if (!numbers.size && wanted().column !== "place") return table.update(); // no job has changed, but places may have
    timer ||= setTimeout(update, Math.max(0, updated + EVERY_MS - performance.now())); // at once after a quiet time
  };
  const stop = listen(changed);
  const ticking = setInterval(() => table.update(), 5000); // ages go on
  const escape = (event) => {
    if (event.key !== "Escape" || event.target.closest("dialog")) return;
    if (event.target === search) return void search.blur();
    marked.clear();
    update();
  };
  addEventListener("keydown", escape);
  const first = (event) => {
    if (["j", "ArrowDown"].includes(event.key) && [document.body, place.parentElement].includes(event.target)) { event.preventDefault(); table.move(0); }
  };
  addEventListener("keydown", first);
  update();
  return () => {
    stop();
    clearTimeout(timer);
    clearInterval(ticking);
    removeEventListener("keydown", escape);
    removeEventListener("keydown", first);
    table.end();
  };
}

function options(select, all, found, key, chosen) {
  const names = [...new Set(found.map(key))].sort();
  if (chosen && !names.includes(chosen)) names.push(chosen);
  select.hidden = names.length < 2 && !chosen;
  const text = names.join("\n");
  if (select.dataset.names !== text) {
    select.dataset.names = text;
    renew(select, h("option", { value: "" }, all), names.map((name) => h("option", { value: name }, clean(name, 40))));
  }
  select.value = chosen;
}

function makeRow(marked, toggleMark, unfold) {
  const row = h("tr", { class: "job" });
  const box = h("input", { type: "checkbox", onchange: () => toggleMark(row.item) });
  const foldButton = h("button", { class: "fold plain", hidden: true, onclick: () => unfold(row.item) });
  const link = h("a", { class: "name" });
  const meter = h("i");
  row.cells_ = {
    box, foldButton, link, meter, state: h("span", { class: "state" }), share: h("span"), bar: h("span", { class: "meter" }, meter), id: h("td", { class: "num c-id" }), place: h("td", { class: "num c-place" }), gpus: h("td", { class: "num c-gpus" }),
    eta: h("td", { class: "c-eta" }), why: h("span"), age: h("td", { class: "num c-age" }), owner: h("td", { class: "c-owner" }), queue: h("td", { class: "c-queue" }), priority: h("td", { class: "num c-priority" }),
  };
  const c = row.cells_;
  return put(row, h("td", { class: "c-mark" }, box), c.id, h("td", { class: "c-name" }, foldButton, h("bdi", null, link)), h("td", { class: "c-state" }, c.state), c.place, c.gpus,
    h("td", { class: "c-progress" }, h("span", { class: "progress" }, c.bar, c.share)), c.eta, h("td", { class: "why c-why" }, c.why), c.age, c.owner, c.queue, c.priority);
}

function drawRow(row, item, marked) {
  const c = row.cells_;
  row.item = item;
  const folded = !!item.fold;
  const members = folded ? item.members : [item];
  const job = folded ? item.members[0] : item;
  const isMarked = members.every((one) => marked.has(one.id));
  c.box.checked = isMarked;
  c.box.setAttribute("aria-label", `Mark job ${job.id}`);
  row.setAttribute("aria-selected", String(isMarked));
  row.dataset.job = folded ? `array-${item.fold}` : job.id;
  c.foldButton.hidden = !folded;
  say(c.id, folded ? String(item.fold) : String(job.id));
  const name = clean(job.name, 100);
  if (folded) {
    say(c.foldButton, item.open ? "▾" : "▸");
    c.foldButton.setAttribute("aria-expanded", String(item.open));
    c.foldButton.setAttribute("aria-label", `Array ${item.fold}`);
    say(c.link, `${name} ×${members.length}`);
    c.link.removeAttribute("href");
  } else {
    say(c.link, job.index === null ? name : `${name} [${job.index}]`);
    if (c.link.getAttribute("href") !== `/jobs/${job.id}`) c.link.setAttribute("href", `/jobs/${job.id}`);
  }
  c.link.title = name;
  const states = folded ? tally(members) : null;
  const shown = folded ? (members.find((one) => one.shown === "running") ?? members.find((one) => !one.over) ?? job).shown : job.shown;
  stateOf(c.state, shown);
  const places = members.map((one) => one.place).filter((one) => one !== null);
  say(c.place, places.length ? placeText(Math.min(...places)) : "");
  say(c.gpus, folded ? amount(members.reduce((sum, one) => sum + one.gpus, 0)) : gpus(job));
  const share = folded ? members.reduce((sum, one) => sum + (one.state === "succeeded" ? 1 : one.progress ?? 0), 0) / members.length : job.state === "succeeded" ? 1 : job.progress;
  c.bar.hidden = share === null;
  c.bar.className = `meter${shown === "failed" ? " bad" : share === 1 ? " good" : ""}`;
  width(c.meter, share);
  say(c.share, percent(share));
  say(c.eta, folded ? "" : expected(job));
  const retry = job.retry ? `; tried again in ${span(job.retry - now())}` : "";
  const why = folded ? states : clean(job.why) + retry;
  say(c.why, why);
  c.why.title = why;
  say(c.age, span(now() - job.submitted).split(" ")[0]);
  say(c.owner, clean(job.owner, 64));
  say(c.queue, clean(job.queue, 64));
  say(c.priority, amount(job.priority));
}

function expected(job) {
  const soon = job.starts ?? (job.state === "pending" ? null : job.endsIn);
  return soon ? `${job.starts ? "starts" : "done"} ${range(soon[0], soon[2]).replace("≈", "in ≈").replace(/^(?=\d)/, "in ")}` : "";
}

function tally(members) {
  const counts = new Map();
  for (const job of members) counts.set(job.shown, (counts.get(job.shown) ?? 0) + 1);
  return [...counts].sort((a, b) => STATES.indexOf(a[0]) - STATES.indexOf(b[0])).map(([state, n]) => `${n} ${state}`).join(", ");
}

