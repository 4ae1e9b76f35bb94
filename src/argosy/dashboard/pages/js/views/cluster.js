// The map: every GPU, who holds it, what is drained or has failed, and whether a large job would still fit.

import { get, operates, post } from "../api.js";
import { confirm, failed, hideTip, showTip, toast } from "../dialog.js";
import { h, put, renew, say } from "../dom.js";
import { amount, clean, hue, percent, several } from "../format.js";
import { jobs, listen } from "../jobs.js";
import { go, keep, query } from "../router.js";

const EVERY_MS = 1500;
const TINY = 160; // nodes; beyond that they are drawn without names

export function show(place) {
  let nodes = [], stopped = false, timer = 0, began = 0;
  const drawn = new Map(); // by node: its element and what it shows
  const figures = h("dl", { class: "figures" }), map = h("div", { class: "map" }), note = h("p", { class: "note soft" });
  const by = h("select", { "aria-label": "Colours", onchange: () => { keep({ colour: by.value === "job" ? "" : by.value }); drawn.clear(); renew(map); draw(); } }, h("option", { value: "job" }, "colours: job"), h("option", { value: "owner" }, "colours: owner"));
  by.value = query().get("colour") === "owner" ? "owner" : "job";
  const search = h("input", { type: "search", placeholder: "Search nodes", "aria-label": "Search nodes", value: query().get("q") ?? "", oninput: () => { keep({ q: search.value }); draw(); } });
  put(place, h("div", { class: "head" }, h("h1", null, "Cluster"), search, by), figures, map, note);

  async function load() {
    if (stopped || document.hidden) return;
    began = performance.now();
    try {
      nodes = (await get("/v1/map")).nodes.map(([name, type, gpus, state, message, drained, rack, held]) => ({ name, type, gpus, state, message, drained, rack, held }));
      if (!stopped) draw();
    } catch { /* the bar says that there is no connection */ }
  }

  function draw() {
    const word = search.value.toLowerCase();
    const shown = nodes.filter((node) => !word || `${node.name} ${node.type} ${node.rack} ${node.state}`.toLowerCase().includes(word));
    map.classList.toggle("tiny", shown.length > TINY);
    map.style.setProperty("--node", shown.length > TINY ? "60px" : shown.length > 64 ? "110px" : shown.length > 36 ? "150px" : shown.length > 8 ? "180px" : "240px");
    const wanted = new Set(shown.map((node) => node.name));
    for (const [name, one] of drawn) if (!wanted.has(name)) { one.element.remove(); drawn.delete(name); }
    for (const node of shown) {
      const text = JSON.stringify(node);
      const one = drawn.get(node.name) ?? { element: h("button", { class: "node card" }) };
      if (one.text !== text) { paint(one.element, node); one.text = text; }
      if (!one.element.isConnected || !drawn.has(node.name)) map.append(one.element);
      drawn.set(node.name, one);
    }
    count();
  }

  function paint(element, node) {
    element.className = `node card ${node.state}`;
    const cells = Array.from({ length: node.gpus }, () => []);
    for (const [job, name, owner, devices, milli, paused, leaves] of node.held) for (const device of devices) cells[device]?.push({ job, name, owner, milli, paused, leaves });
    const used = cells.reduce((sum, held) => sum + Math.min(1000, held.reduce((a, one) => a + (one.paused ? 0 : one.milli), 0)), 0) / 1000;
    element.setAttribute("aria-label", `${node.name}, ${several(node.gpus, "GPU")} ${node.type}, ${amount(used)} held, ${node.state}`);
    element.onclick = (event) => { const job = event.target.dataset?.job; if (job > 0) go(`/jobs/${job}`); else about(node); };
    const grid = h("span", { class: "cells" }, cells.map((held, device) => {
      const first = held[0];
      if (!first) return h("i", { "data-device": device });
      const colour = first.job === 0 ? 0 : hue(by.value === "owner" ? first.owner : first.job);
      return h("i", { class: `on f${colour}${first.milli < 1000 ? " part" : ""}${first.paused ? " paused" : ""}${first.leaves ? " leaves" : ""}`, "data-job": first.job, "data-device": device });
    }));
    grid.style.setProperty("--across", Math.min(8, Math.max(4, node.gpus)));
    grid.onpointermove = (event) => hint(event, node, cells);
    grid.onpointerleave = () => { hideTip(); light(0); };
    renew(element, h("span", { class: "title" }, h("b", null, clean(node.name, 40)), h("span", { class: "soft" }, node.state === "up" ? clean(node.type, 12) : node.state)), grid);
  }

  function hint(event, node, cells) {
    const device = event.target.dataset?.device;
    if (device === undefined) return;
    const held = cells[device];
    light(held[0]?.job ?? 0);
    showTip(event, h("b", null, `${clean(node.name, 60)}:${device} ${clean(node.type, 20)}`), held.length ? held.map((one) => h("div", null, one.job ? `job ${one.job} ` : "a job of somebody else", h("bdi", null, clean(one.name, 60)), one.owner ? ` of ${clean(one.owner, 40)}` : "", one.milli < 1000 ? `, ${percent(one.milli / 1000)} of it` : "", one.paused ? ", paused" : "", one.leaves ? ", leaving" : "", progress(one.job))) : node.state === "up" ? "free" : `${node.state}${node.message ? `: ${clean(node.message)}` : ""}`);
  }

  const progress = (id) => (jobs.get(id)?.progress >= 0 && jobs.get(id).progress !== null ? `, ${percent(jobs.get(id).progress)} done` : "");

  function light(job) {
    for (const cell of map.querySelectorAll(".lit")) cell.classList.remove("lit");
    if (job > 0) for (const cell of map.querySelectorAll(`[data-job="${job}"]`)) cell.classList.add("lit");
  }

  async function about(node) {
    hideTip();
    if (!operates()) return;
    const drains = node.drained === null;
    const sure = await confirm({ title: `${drains ? "Drain" : "Use again"} ${clean(node.name, 60)}?`, yes: drains ? "Drain" : "Use again", body: [
      h("p", null, `${several(node.gpus, "GPU")} ${clean(node.type, 40)} in ${clean(node.rack, 40)}; ${node.state}${node.message ? `: ${clean(node.message)}` : ""}.`),
      h("p", null, drains ? "Nothing new starts there; what runs there goes on." : `It was drained by ${clean(node.drained, 60)}. Jobs may start there again.`)] });
    if (!sure) return;
    const send = (action) => post(`/v1/nodes/${encodeURIComponent(node.name)}/${action}`).then(load);
    await send(drains ? "drain" : "undrain").then(() => toast(`${clean(node.name, 60)} is ${drains ? "drained" : "in use again"}.`, () => send(drains ? "undrain" : "drain").catch(failed)), failed);
  }

  function count() {
    const up = nodes.filter((node) => node.state === "up");
    const free = up.map((node) => {
      const taken = new Set(node.held.flatMap(([, , , devices, , paused]) => (paused ? [] : devices)));
      return node.gpus - taken.size;
    });
    const total = nodes.reduce((sum, node) => sum + node.gpus, 0), idle = free.reduce((a, b) => a + b, 0), whole = up.filter((node, i) => free[i] === node.gpus).length;
    const shared = nodes.reduce((sum, node) => sum + node.held.filter(([, , , , milli]) => milli < 1000).length, 0);
    const held = nodes.reduce((sum, node) => sum + node.held.reduce((a, [, , , devices, milli, paused]) => a + (paused ? 0 : (devices.length * milli) / 1000), 0), 0);
    const rows = [["GPUs", amount(total)], ["Held", `${amount(held)} (${percent(held / Math.max(total, 1))})`], ["Free", amount(idle)], ["Nodes wholly free", `${whole} of ${up.length}`], ["Largest free block", free.length ? several(Math.max(...free), "GPU") : "–"], ["Draining", String(nodes.filter((n) => n.state === "draining").length)], ["Down", String(nodes.filter((n) => n.state === "down").length)], ["Shares of a GPU", amount(shared)]];
    if (figures.childElementCount !== rows.length) renew(figures, rows.map(([name]) => h("div", null, h("dt", null, name), h("dd"))));
    rows.forEach(([, value], i) => say(figures.children[i].lastChild, value));
    say(note, `Filled: held. Half filled: shared. Pale: paused. Dashed: leaving. ${operates() ? "Click a GPU for its job, a node to drain it. " : "GPUs of others are grey. "}How busy a held GPU really is, is not measured by this backend.`);
  }

  load();
  const stop = listen(() => {
    const wait = Math.max(0, began + EVERY_MS - performance.now());
    timer ||= setTimeout(() => { timer = 0; load(); }, wait);
  });
  return () => { stopped = true; stop(); clearTimeout(timer); hideTip(); };
}
