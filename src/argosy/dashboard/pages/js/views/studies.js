// Reports of comparisons, leagues, training and growth, and the curves of a training that still runs.

import { get, operates, post } from "../api.js";
import { lines } from "../chart.js";
import { failed } from "../dialog.js";
import { h, put, renew } from "../dom.js";
import { bytes, clean, moment, several } from "../format.js";
import { query, keep } from "../router.js";
import { plain } from "../table.js";

const EVERY_MS = 5000;

export function show(place) {
  let stopped = false, timer = 0;
  const body = h("div"), back = h("button", { hidden: true, onclick: () => { keep({ open: "" }); begin(); } }, "← All studies");
  put(place, h("div", { class: "head" }, h("h1", null, "Studies"), back), body);

  const teach = (title, text) => renew(body, h("div", { class: "empty card" }, h("h2", null, title), h("p", null, text), h("pre", null, "argosy compare --like philly --jobs 500 --load 1 --cluster small \\\n  --policies fifo,srtf,las --report out/report.html\nargosy serve --studies out")));

  async function begin() {
    clearTimeout(timer);
    const path = query().get("open");
    back.hidden = !path;
    if (!operates()) return teach("Studies are shown to operators", "They are files on the daemon's machine.");
    try {
      if (!path) await list();
      else if (path.endsWith(".html")) await frame(path);
      else await curves(path);
    } catch (problem) {
      failed(problem);
    }
  }

  async function list() {
    const { folder, files } = await get("/v1/studies");
    if (stopped) return;
    if (!folder) return teach("No folder of studies", "Name one when you start the daemon; its reports are then listed here.");
    if (!files.length) return teach("No studies yet", `Reports and training logs in ${clean(folder)} are listed here.`);
    const open = (file) => h("a", { href: `/studies?open=${encodeURIComponent(file.path)}` }, h("bdi", null, clean(file.path, 160)));
    renew(body, h("section", { class: "card" }, plain(["Study", "Kind", "Written", "Size"], files.map((file) => [open(file), file.kind === "report" ? "report" : "training curves", moment(file.at), bytes(file.bytes)]), [2, 3], "Studies")), h("p", { class: "note soft" }, `${several(files.length, "file")} in ${clean(folder)}`));
  }

  async function frame(path) {
    const { address } = await post("/v1/studies/open", { path });
    if (!stopped) renew(body, h("iframe", { class: "frame", sandbox: "allow-scripts", title: `Report ${clean(path, 100)}`, src: address, referrerpolicy: "no-referrer" }));
  }

  async function curves(path) {
    const { values, rows } = await get(`/v1/studies/curves?path=${encodeURIComponent(path)}`);
    if (stopped) return;
    const names = Object.keys(values);
    const along = ["step", "steps", "iteration", "epoch", "interval"].find((name) => names.includes(name));
    const made = names.filter((name) => name !== along && values[name].some(Number.isFinite)).map((name, i) => h("section", { class: "card" }, h("h2", null, clean(name, 60)), lines([{ name, hue: (i % 8) + 1, points: values[name].map((y, n) => [along ? values[along][n] : n, y]) }], { unit: clean(name, 24), time: false })));
    renew(body, h("p", { class: "soft" }, `${clean(path)}: ${several(rows, "line")}; it is read again every ${EVERY_MS / 1000} s.`), made.length ? h("div", { class: "cards" }, made) : h("p", null, "There are no numbers in it yet."));
    timer = setTimeout(begin, EVERY_MS);
  }

  begin();
  return () => { stopped = true; clearTimeout(timer); };
}
