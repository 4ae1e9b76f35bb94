// Questions, short messages, and hints beside the pointer.

import { h, put, renew } from "./dom.js";

const KEEP_MS = 8000;

/** Asks before something is done; resolves with the form's values, or null if the user thinks better of it. */
export function confirm({ title, body, yes, danger = false, fields = [] }) {
  return new Promise((resolve) => {
    const done = (value) => {
      box.close();
      box.remove();
      resolve(value);
    };
    const form = h("form", { method: "dialog", onsubmit: (event) => {
      event.preventDefault();
      done(Object.fromEntries(new FormData(form)));
    } });
    const id = `dialog-${Math.random().toString(36).slice(2)}`;
    const box = h("dialog", { "aria-labelledby": id, oncancel: (event) => { event.preventDefault(); done(null); } }, form);
    put(form, h("h2", { id }, title), body, fields, h("div", { class: "buttons" },
      h("button", { type: "button", onclick: () => done(null) }, "Keep as it is"),
      h("button", { type: "submit", class: danger ? "danger" : "main" }, yes)));
    document.body.append(box);
    box.showModal();
    (form.querySelector("input, select") ?? form.querySelector("button[type=submit]")).focus();
  });
}

export function inform(title, ...content) {
  const box = h("dialog", { "aria-label": title, onclose: () => box.remove() }, h("h2", null, title), content,
    h("div", { class: "buttons" }, h("button", { class: "main", onclick: () => box.close() }, "Close")));
  document.body.append(box);
  box.showModal();
}

/** Says what has happened; with `undo`, offers to take it back for some seconds. */
export function toast(text, undo = null, label = "Undo") {
  const box = h("div", { class: "toast fade" }, h("span", null, text));
  const timer = setTimeout(() => box.remove(), KEEP_MS);
  if (undo) put(box, h("button", { onclick: () => { clearTimeout(timer); box.remove(); undo(); } }, label));
  document.getElementById("toasts").append(box);
}

export function failed(problem) {
  toast(problem.message ?? String(problem));
}

let tip = null;

export function showTip(event, ...content) {
  tip ??= document.body.appendChild(h("div", { class: "tip", role: "tooltip" }));
  renew(tip, ...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(4, event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18)}px`;
}

export function hideTip() {
  if (tip) tip.hidden = true;
}
