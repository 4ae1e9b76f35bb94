// A table of any length: only the rows that can be seen exist, and they are used again while it is scrolled.

import { h, put } from "./dom.js";

const SPARE = 8; // rows beyond each edge

export class Table {
  /** columns: {id, title, width, sort, className}; `draw(row, item)` fills a row that was made by `make()`. */
  constructor({ columns, make, draw, open, mark, label, sortBy }) {
    Object.assign(this, { columns, make, draw, open, mark });
    this.items = [];
    this.rows = [];
    this.current = 0;
    this.above = h("tr", { class: "gap", "aria-hidden": "true" }, h("td"));
    this.below = h("tr", { class: "gap", "aria-hidden": "true" }, h("td"));
    this.body = h("tbody", null, this.above, this.below);
    this.heads = columns.map((column) => h("th", { scope: "col", class: `${column.className ?? ""} c-${column.id}` },
      column.sort ? h("button", { onclick: () => sortBy(column.id), title: column.hint }, column.title, h("span", { "aria-hidden": "true" })) : h("span", { title: column.hint }, column.title)));
    this.table = h("table", { role: "grid", "aria-label": label }, h("colgroup", null, columns.map((column) => h("col", { class: `c-${column.id}` }))), h("thead", null, h("tr", null, this.heads)), this.body);
    [...this.table.querySelectorAll("col")].forEach((col, i) => { if (columns[i].width) col.style.width = `${columns[i].width}px`; });
    this.table.style.setProperty("--wide", `${columns.reduce((sum, column) => sum + (column.width ?? 240), 0)}px`);
    this.element = h("div", { class: "grid", onkeydown: (event) => this.key(event) }, this.table);
    this.element.addEventListener("scroll", () => this.later(), { passive: true });
    this.sizes = new ResizeObserver(() => { this.height = 0; this.update(); });
    this.sizes.observe(this.element);
  }

  end() {
    this.sizes.disconnect();
  }

  sorted(id, down) {
    this.heads.forEach((head, i) => {
      const isIt = this.columns[i].id === id;
      if (isIt) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      const sign = head.querySelector("button span");
      if (sign) sign.textContent = isIt ? (down ? " ↓" : " ↑") : "";
    });
  }

  show(items) {
    this.items = items;
    this.table.setAttribute("aria-rowcount", items.length + 1);
    this.current = Math.min(this.current, Math.max(0, items.length - 1));
    this.update();
  }

  later() {
    this.waits ??= requestAnimationFrame(() => { this.waits = null; this.update(false); });
  }

  /** Draws what can be seen; while it is scrolled, only the rows that have come into view. */
  update(anew = true) {
    this.height ||= parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 40;
    const room = this.element.clientHeight || innerHeight;
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((this.element.scrollTop + room) / this.height) + SPARE);
    while (this.rows.length < last - first) {
      const row = this.make();
      row.tabIndex = -1;
      row.addEventListener("click", (event) => this.click(event, row));
      this.rows.push(row);
      this.body.insertBefore(row, this.below);
    }
    const inside = document.activeElement?.closest?.("tbody tr");
    this.rotate(first);
    this.rows.forEach((row, i) => {
      const index = first + i;
      if (!anew && !row.hidden && row.index === index && index < last) return;
      row.hidden = index >= last;
      if (row.hidden) return void row.removeAttribute("data-job");
      row.index = index;
      row.setAttribute("aria-rowindex", index + 2);
      row.tabIndex = index === this.current ? 0 : -1;
      this.draw(row, this.items[index]);
    });
    this.above.firstChild.style.height = `${first * this.height}px`;
    this.below.firstChild.style.height = `${(this.items.length - last) * this.height}px`;
    if (inside && this.body.contains(inside)) this.rowOf(this.current)?.focus({ preventScroll: true });
  }

  /** Moves rows that have left one edge to the other, so that the rest stays as it is. */
  rotate(first) {
    const by = first - (this.first ?? first);
    this.first = first;
    if (!by || Math.abs(by) >= this.rows.length) return;
    const moved = by > 0 ? this.rows.splice(0, by) : this.rows.splice(by);
    const before = by > 0 ? this.below : this.rows[0];
    for (const row of moved) this.body.insertBefore(row, before);
    if (by > 0) this.rows.push(...moved);
    else this.rows.unshift(...moved);
  }

  rowOf(index) {
    return this.rows.find((row) => !row.hidden && row.index === index);
  }

  click(event, row) {
    if (event.target.closest("input, button, a")) return;
    this.current = row.index;
    this.open(this.items[row.index]);
  }

  move(to) {
    this.current = Math.max(0, Math.min(this.items.length - 1, to));
    const top = this.current * this.height;
    const head = this.element.querySelector("thead").offsetHeight;
    const room = this.element.clientHeight - head;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    if (top + this.height > this.element.scrollTop + room) this.element.scrollTop = top + this.height - room;
    this.update();
    this.rowOf(this.current)?.focus({ preventScroll: true });
  }

  key(event) {
    const page = Math.floor(this.element.clientHeight / this.height) - 1;
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.target.closest("input, button") && !["j", "k"].includes(event.key)) return;
    if (event.key in steps) {
      event.preventDefault();
      const step = steps[event.key];
      this.move(Number.isFinite(step) ? this.current + step : step < 0 ? 0 : this.items.length - 1);
    } else if (event.key === "Enter" && this.items[this.current]) this.open(this.items[this.current]);
    else if (event.key === "x" && this.items[this.current]) this.mark(this.items[this.current]);
  }
}

/** A short table that is drawn whole. `rows` are lists of cells; `right` are the columns with numbers. */
export function plain(head, rows, right = [], label = "") {
  const cell = (tag) => (value, i) => put(h(tag, { class: right.includes(i) ? "num" : null, scope: tag === "th" ? "col" : null }), value);
  return h("div", { class: "scroll-x" }, h("table", { class: "plain-table", "aria-label": label || null }, h("thead", null, h("tr", null, head.map(cell("th")))), h("tbody", null, rows.map((row) => h("tr", null, row.map(cell("td")))))));
}
