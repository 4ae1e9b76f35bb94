// A Gantt chart of past, present and expected runs, by node or by job, drawn on a canvas that is as large as the window.

import { get } from "../api.js";
import { timeTicks } from "../chart.js";
import { inkOn } from "../colour.js";
import { hideTip, showTip } from "../dialog.js";
import { h, put, renew, say } from "../dom.js";
import { clean, hue, moment, now, range, several, span } from "../format.js";
import { jobs, listen } from "../jobs.js";
import { go, keep, query } from "../router.js";

const SPANS = [["10m", 600], ["1h", 3600], ["6h", 21600], ["1d", 86400], ["1w", 604800], ["4w", 2419200]];
const LEFT = 92, TOP = 26, AHEAD = 0.3; // of the span lies in the future
const MOST_WAITING = 300; // jobs whose expected start is drawn
const LEAST_S = 300, MOST_S = 90 * 86400;

export function show(place) {
  let runs = [], nodes = [], cut = false, stopped = false, timer = 0, asked = 0, waits = 0, hits = [];
  let view = kept() ?? { length: chosen()[1], until: null };
  const by = () => (query().get("by") === "job" ? "job" : "node");
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Runs over time; the table of jobs has the same in words" });
  const spacer = h("div"), box = h("div", { class: "gantt" }, canvas, spacer), note = h("p", { class: "note soft" }), empty = h("div", { class: "empty card", hidden: true });
  const choices = [["node", "by node"], ["job", "by job"]].map(([name, title]) => h("button", { class: "chip", "data-by": name, onclick: () => { keep({ by: name === "node" ? "" : name }); box.scrollTop = 0; layOut(); } }, title));
  const spans = SPANS.map(([name, length]) => h("button", { class: "chip", "data-span": name, onclick: () => { view = { length, until: null }; keep({ span: name, from: "", to: "" }); load(); layOut(); } }, name));
  const search = h("input", { type: "search", placeholder: "Search jobs, owners, nodes", "aria-label": "Search the timeline", value: query().get("q") ?? "", oninput: () => { keep({ q: search.value }); layOut(); } });
  put(place, h("div", { class: "head" }, h("h1", null, "Timeline"), search, h("div", { class: "chips" }, choices), h("div", { class: "chips" }, spans), h("div", { class: "chips" }, h("button", { "aria-label": "Zoom out", onclick: () => zoom(1.6) }, "−"), h("button", { "aria-label": "Zoom in", onclick: () => zoom(1 / 1.6) }, "+"), h("button", { onclick: () => { view.until = null; keep({ span: SPANS.find(([, length]) => length === view.length)?.[0] ?? Math.round(view.length), from: "", to: "" }); load(); later(); } }, "Now"))), empty, box, note);
  note.style.marginTop = "8px";

  const limits = () => {
    const until = view.until ?? now() + view.length * AHEAD;
    return [until - view.length, until];
  };

  /** Keeps the part of time that is shown in the address, to the second. */
  function remember() {
    const [from, to] = limits();
    keep({ from: Math.round(from), to: Math.round(to) });
  }

  async function load() {
    asked = performance.now();
    const [from, to] = limits();
    try {
      const [found, map] = await Promise.all([get(`/v1/timeline?since=${Math.max(0, from - view.length).toFixed(0)}&until=${(to + view.length).toFixed(0)}`), get("/v1/map")]);
      if (stopped) return;
      ({ runs, cut } = found);
      nodes = map.nodes.map(([name, , gpus, state]) => ({ name, gpus, state }));
      layOut();
    } catch { /* the bar says that there is no connection */ }
  }

  /** A run as pieces: each with the places that it held from one moment to the next. */
  function pieces(run) {
    const moves = run.moves.length ? run.moves : [[run.from, run.parts.map(([node, devices]) => `${node}:${devices.join(",")}`).join(" ")]];
    return moves.map(([at, text], i) => ({ from: i ? at : run.from, to: moves[i + 1]?.[0] ?? run.to, paused: text === "paused", parts: text.split(" ").map((part) => /^([^:]+)(?::([\d,]+))?/.exec(part)).filter(Boolean).map(([, node, devices]) => [node, (devices ?? "").split(",").filter(Boolean).map(Number)]) }));
  }

  let lanes = [], height = 0;
  function layOut() {
    choices.forEach((chip) => chip.setAttribute("aria-pressed", String(chip.dataset.by === by())));
    spans.forEach((chip) => chip.setAttribute("aria-pressed", String(SPANS.find(([name]) => name === chip.dataset.span)[1] === view.length)));
    const word = search.value.toLowerCase();
    const fits = (run) => !word || `${run.job} ${run.name} ${run.owner} ${run.queue}`.toLowerCase().includes(word);
    const top = new Map();
    lanes = [];
    let y = TOP;
    const add = (key, title, tall, state = "up") => { top.set(key, lanes.length); lanes.push({ key, title, y, tall, state, bars: [] }); y += tall + 3; };
    if (by() === "node") {
      const hasHits = word && runs.some(fits);
      const shown = nodes.filter((node) => !word || hasHits || node.name.toLowerCase().includes(word));
      const each = Math.max(4, Math.min(24, (box.clientHeight - TOP - 8 - 3 * shown.length) / Math.max(1, shown.reduce((sum, node) => sum + node.gpus, 0)))); // pixels of a GPU
      for (const node of shown) add(node.name, node.name, Math.max(14, node.gpus * each), node.state);
    } else {
      const waiting = [...jobs.values()].filter((job) => job.starts && fits({ ...job, job: job.id })).sort((a, b) => a.starts[1] - b.starts[1]).slice(0, MOST_WAITING);
      for (const job of waiting) { // when they start is predicted, not where
        add(job.id, `${job.id} ${job.name}`, 15);
        lanes.at(-1).bars.push({ run: { job: job.id, name: job.name, owner: job.owner, waits: true }, from: null, low: 0, high: 1 });
      }
      for (const run of [...runs].filter(fits).sort((a, b) => b.job - a.job)) if (!top.has(run.job)) add(run.job, `${run.job} ${run.name}`, 15);
    }
    const gpusOf = new Map(nodes.map((node) => [node.name, node.gpus]));
    const nodeMatch = word && !runs.some(fits);
    for (const run of runs) {
      if (!fits(run) && !nodeMatch) continue;
      for (const piece of pieces(run)) {
        if (by() === "job") { lanes[top.get(run.job)]?.bars.push({ run, ...piece, low: 0, high: 1 }); continue; }
        for (const [node, devices] of piece.parts) {
          const lane = lanes[top.get(node)], all = gpusOf.get(node) || 1;
          for (const [first, last] of blocks(devices)) lane?.bars.push({ run, ...piece, low: first / all, high: (last + 1) / all });
        }
      }
    }
    height = y + 8;
    empty.hidden = runs.length > 0 || !asked;
    box.hidden = !empty.hidden;
    if (!runs.length) renew(empty, h("h2", null, "Nothing ran in this time"), h("p", null, "Choose a longer period, or submit a job: argosy submit --run 'sleep 30' --gpus 1"));
    say(note, `${cut ? "Only the longest 5,000 runs are drawn. " : ""}Hatched: expected, which is the median of the simulated futures. Pale: possible; in one of ten it ends later still. ${by() === "job" ? "Waiting jobs come first, soonest on top. " : "By job, waiting jobs are drawn too. "}Drag or ← → to move, wheel with Ctrl or + − to zoom, click for the job.`);
    later();
  }

  function later() {
    waits ||= requestAnimationFrame(() => { waits = 0; draw(); });
  }

  function draw() {
    if (stopped) return;
    const wide = box.clientWidth, tall = box.clientHeight, scale = devicePixelRatio || 1;
    spacer.style.height = `${Math.max(0, height - tall)}px`;
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(tall * scale)) {
      canvas.width = Math.round(wide * scale);
      canvas.height = Math.round(tall * scale);
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${tall}px`;
    }
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const hues = [colour("quiet"), ...Array.from({ length: 8 }, (_, i) => colour(`c${i + 1}`))];
    const g = canvas.getContext("2d");
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.fillStyle = colour("card");
    g.fillRect(0, 0, wide, tall);
    g.font = `12px ${style.getPropertyValue("--sans")}`;
    g.textBaseline = "middle";
    const [from, to] = limits(), present = now(), left = wide < 500 ? 64 : LEFT, X = (t) => left + ((t - from) / (to - from)) * (wide - left);
    const scrolled = box.scrollTop;
    hits = [];
    for (const [t] of timeTicks(from, to, Math.max(2, Math.floor(wide / 120)))) { g.fillStyle = colour("grid"); g.fillRect(X(t), TOP, 1, tall); }
    for (const lane of lanes) {
      const y = lane.y - scrolled;
      if (y + lane.tall < TOP || y > tall) continue;
      g.fillStyle = colour(lane.state === "up" ? "paper" : lane.state === "down" ? "bad-paper" : "warn-paper");
      g.fillRect(left, y, wide - left, lane.tall);
      for (const bar of lane.bars) drawBar(g, bar, y, lane.tall, { X, present, hues, wide, left, ink: colour("ink"), back: colour("paper") });
    }
    g.fillStyle = colour("card");
    g.fillRect(0, 0, left, tall);
    g.fillRect(0, 0, wide, TOP);
    g.fillStyle = colour("soft");
    for (const lane of lanes) {
      const y = lane.y - scrolled;
      if (y + lane.tall < TOP || y > tall) continue;
      g.save();
      g.beginPath();
      g.rect(0, Math.max(TOP, y), left - 6, lane.tall);
      g.clip();
      g.fillText(clean(lane.title, 60), 8, y + lane.tall / 2);
      g.restore();
    }
    g.textAlign = "center";
    for (const [t, text] of timeTicks(from, to, Math.max(2, Math.floor(wide / 120)))) if (X(t) > left + 20 && X(t) < wide - 30 && !(Math.abs(X(t) - X(present) - 14) < 40)) g.fillText(text, X(t), TOP / 2);
    g.textAlign = "left";
    if (present > from && present < to) {
      g.fillStyle = colour("accent");
      g.fillRect(X(present), TOP - 4, 1.5, tall);
      g.fillText("now", X(present) + 5, TOP / 2 + 1);
    }
  }

  /** The expected end of a run, or the expected whole of a job that waits: pale where it may be, hatched where it is likely. */
  function drawExpected(g, bar, { y0, high, fill, X, present, wide, left }) {
    const job = bar.to ? null : jobs.get(bar.run.job);
    const ends = job?.endsIn, starts = bar.run.waits ? job?.starts : [0, 0, 0];
    if (!ends || !starts) return;
    const [a, b, c, d] = [starts[0], starts[1], ends[1], ends[2]].map((s) => Math.max(left, Math.min(wide, X(present + s))));
    if (d <= a) return;
    g.fillStyle = fill;
    g.globalAlpha = 0.16;
    g.fillRect(a, y0, d - a, high);
    g.globalAlpha = 0.45;
    for (let at = b; at < c; at += 5) g.fillRect(at, y0, 2, high);
    g.globalAlpha = 1;
    hits.push([a, y0, d, y0 + high, bar]);
  }

  function drawBar(g, bar, y, tall, { X, present, hues, wide, left, ink, back }) {
    if (bar.run.waits) return drawExpected(g, bar, { y0: y, high: tall, fill: hues[hue(bar.run.job)], X, present, wide, left });
    const end = bar.to ?? present;
    const x = Math.max(left, X(bar.from)), x1 = Math.min(wide, X(end)), y0 = y + bar.low * tall, high = Math.max(2, (bar.high - bar.low) * tall - (tall > 20 ? 1 : 0));
    const fill = hues[bar.run.job ? hue(bar.run.job) : 0];
    if (x1 > left && x < wide) {
      const opacity = bar.paused ? 0.35 : 1;
      g.globalAlpha = opacity;
      g.fillStyle = fill;
      g.fillRect(x, y0, Math.max(1, x1 - x - (bar.to ? 0.5 : 0)), high);
      g.globalAlpha = 1;
      hits.push([x, y0, x1, y0 + high, bar]);
      if (bar.run.exit && bar.to === bar.run.to) { g.fillStyle = ink; g.fillRect(x1 - 2, y0, 2, high); }
      if (high > 12 && x1 - x > 46) {
        g.fillStyle = inkOn(fill, opacity, back);
        g.save();
        g.beginPath();
        g.rect(x, y0, x1 - x - 3, high);
        g.clip();
        g.fillText(`${bar.run.job} ${clean(bar.run.name, 40)}`, x + 4, y0 + high / 2);
        g.restore();
      }
    }
    drawExpected(g, bar, { y0, high, fill, X, present, wide, left });
  }

  const hitAt = (event) => {
    const area = canvas.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
    return hits.findLast(([x0, y0, x1, y1]) => x >= x0 - 1 && x <= x1 + 1 && y >= y0 && y <= y1)?.[4];
  };

  function zoom(by_, at = 0.5) {
    const [from, to] = limits(), length = Math.min(MOST_S, Math.max(LEAST_S, view.length * by_)), middle = from + (to - from) * at;
    view = { length, until: middle + length * (1 - at) };
    moved();
  }

  function moved() {
    remember();
    clearTimeout(timer);
    timer = setTimeout(load, 300);
    layOut();
  }

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, until: limits()[1], far: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const by_ = event.clientX - drag.x;
      drag.far ||= Math.abs(by_) > 4;
      if (drag.far) { view.until = drag.until - (by_ / (box.clientWidth - LEFT)) * view.length; later(); }
      return;
    }
    const bar = hitAt(event);
    canvas.style.cursor = bar ? "pointer" : "";
    if (!bar) return hideTip();
    const { run } = bar, job = jobs.get(run.job);
    showTip(event, h("b", null, `${run.job} `, h("bdi", null, clean(run.name, 60))), h("div", null, `${clean(run.owner, 40)}, ${run.waits ? "waits" : `run ${run.run}, ${run.to ? span(run.to - run.from) : "running"}`}`), run.waits ? null : h("div", null, `${moment(run.from)}${run.to ? ` – ${moment(run.to)}` : ""}`), run.stop ? h("div", null, run.stop) : null, run.exit ? h("div", null, `exit code ${run.exit}`) : null, !run.to && job?.starts ? h("div", null, `expected to start in ${range(job.starts[0], job.starts[2])}`) : null, !run.to && job?.endsIn ? h("div", null, `expected to be done in ${range(job.endsIn[0], job.endsIn[2])}`) : null);
  });
  canvas.addEventListener("pointerup", (event) => {
    const was = drag;
    drag = null;
    if (was?.far) return moved();
    const bar = hitAt(event);
    if (bar) go(`/jobs/${bar.run.job}`);
  });
  canvas.addEventListener("pointerleave", hideTip);
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && Math.abs(event.deltaX) < Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.getBoundingClientRect().left - LEFT) / (box.clientWidth - LEFT));
    else { view.until = limits()[1] + (event.deltaX / box.clientWidth) * view.length; moved(); }
  }, { passive: false });
  box.addEventListener("scroll", later, { passive: true });
  const keys = (event) => {
    if (event.target.closest("input, select, dialog") || event.ctrlKey || event.metaKey) return;
    const shift = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    if (shift) { view.until = limits()[1] + shift * view.length; moved(); }
    else if (event.key === "+" || event.key === "=") zoom(1 / 1.6);
    else if (event.key === "-") zoom(1.6);
  };
  addEventListener("keydown", keys);
  addEventListener("theme", later);
  const sizes = new ResizeObserver(() => layOut());
  sizes.observe(box);
  load();
  const stop = listen((changed) => {
    const fits = changed === null && view.until === null && !kept() && view.length !== chosen()[1]; // what has happened is known only now
    if (fits) view.length = chosen()[1];
    if (fits || (performance.now() - asked > 4000 && !drag)) load();
    else later();
  });
  const ticking = setInterval(later, 1000);
  return () => { stopped = true; stop(); clearInterval(ticking); clearTimeout(timer); sizes.disconnect(); hideTip(); removeEventListener("keydown", keys); removeEventListener("theme", later); };
}

/** The part of time in the address, if somebody has zoomed or moved it. */
function kept() {
  const [from, to] = ["from", "to"].map((name) => Number(query().get(name)));
  return from > 0 && to - from >= LEAST_S - 1 && to - from <= MOST_S + 1 ? { length: to - from, until: to } : null;
}

/** The period in the address; without one, the shortest up to six hours that shows all that has happened. */
function chosen() {
  const wanted = query().get("span"), seconds = Number(wanted);
  const given = SPANS.find(([name]) => name === wanted);
  if (given) return given;
  if (seconds >= LEAST_S && seconds <= MOST_S) return [wanted, seconds];
  let first = now();
  for (const job of jobs.values()) first = Math.min(first, job.submitted);
  return SPANS.slice(0, 2).find(([, length]) => now() - first < length * (1 - AHEAD)) ?? SPANS[2];
}

/** Neighbouring devices as [first, last]. */
export function blocks(devices) {
  const found = [];
  for (const device of [...devices].sort((a, b) => a - b)) {
    if (found.length && found.at(-1)[1] === device - 1) found.at(-1)[1] = device;
    else found.push([device, device]);
  }
  return found;
}
