// A log that is followed: bounded, searchable, and shown as text, whatever the job has written.

import { open } from "./api.js";
import { h, put, renew, say } from "./dom.js";
import { cleanLine, several } from "./format.js";

const TAIL = 256 * 1024; // bytes at the beginning
const MOST_LINES = 4000; // on the page; earlier ones are in the file, and in `argosy logs`
const LONGEST = 64 * 1024; // of a line that does not end

export function logView(number, runs) {
  const lines = h("div", { class: "log wrap", tabindex: "0", role: "log", "aria-label": `Log of job ${number}`, "aria-live": "off" });
  const search = h("input", { type: "search", placeholder: "Find in the log", "aria-label": "Find in the log", oninput: () => find() });
  const found = h("span", { class: "soft small", "aria-live": "polite" });
  const status = h("span", { class: "soft small" });
  const follow = h("button", { "aria-pressed": "true", class: "chip", onclick: () => setFollow(follow.getAttribute("aria-pressed") !== "true") }, "follow");
  const wrap = h("button", { "aria-pressed": "true", class: "chip", onclick: () => wrap.setAttribute("aria-pressed", String(lines.classList.toggle("wrap"))) }, "wrap lines");
  const which = h("select", { "aria-label": "Run", onchange: () => start() });
  const element = h("div", null, h("div", { class: "log-tools" }, which, search, h("button", { onclick: () => step(-1), "aria-label": "Previous match" }, "↑"), h("button", { onclick: () => step(1), "aria-label": "Next match" }, "↓"), found, follow, wrap, status), lines);
  let controller = null, rest = "", dropped = 0, place = -1, matches = [], pending = [];

  function setFollow(on) {
    follow.setAttribute("aria-pressed", String(on));
    if (on) lines.scrollTop = lines.scrollHeight;
  }

  lines.addEventListener("scroll", () => {
    const atEnd = lines.scrollTop + lines.clientHeight > lines.scrollHeight - 24;
    if ((follow.getAttribute("aria-pressed") === "true") !== atEnd) follow.setAttribute("aria-pressed", String(atEnd));
  }, { passive: true });

  async function start() {
    controller?.abort();
    controller = new AbortController();
    const { signal } = controller;
    renew(lines);
    rest = "";
    dropped = 0;
    for (;;) {
      try {
        say(status, "");
        const answer = await open("GET", `/v1/jobs/${number}/log?follow=true&tail=${TAIL}&generation=${which.value}`, null, signal);
        renew(lines);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          take(value);
        }
        if (rest) add([rest]);
        rest = "";
        say(status, "this run has ended");
        return;
      } catch (problem) {
        if (problem.name === "AbortError") return;
        say(status, problem.message);
        if (problem.status && problem.status !== 429) return;
        await new Promise((done) => setTimeout(done, 2000));
        if (signal.aborted) return;
      }
    }
  }

  function take(text) {
    const parts = (rest + text).split("\n");
    rest = parts.pop();
    if (rest.length > LONGEST) { parts.push(rest); rest = ""; }
    add(parts);
  }

  function add(parts) {
    if (parts.length > MOST_LINES) parts = parts.slice(-MOST_LINES);
    if (!pending.length) requestAnimationFrame(flush);
    pending.push(...parts);
    if (pending.length > MOST_LINES) { dropped += pending.length - MOST_LINES; pending = pending.slice(-MOST_LINES); }
  }

  function flush() {
    const word = search.value.toLowerCase();
    const fresh = document.createDocumentFragment();
    for (const part of pending) fresh.append(mark(h("div"), cleanLine(part.slice(0, LONGEST)), word));
    pending = [];
    lines.append(fresh);
    while (lines.childElementCount > MOST_LINES) { lines.firstChild.remove(); dropped++; }
    if (dropped) say(status, `the last ${several(MOST_LINES, "line")}; all of it: argosy logs ${number}`);
    if (follow.getAttribute("aria-pressed") === "true") lines.scrollTop = lines.scrollHeight;
    if (word) count();
  }

  function mark(line, text, word) {
    line.className = "";
    if (!word) { if (line.childElementCount || line.textContent !== text) line.textContent = text; return line; }
    const lower = text.toLowerCase();
    renew(line);
    let at = 0;
    for (let next = lower.indexOf(word); next >= 0; next = lower.indexOf(word, at)) {
      put(line, text.slice(at, next), h("mark", null, text.slice(next, next + word.length)));
      at = next + word.length;
      line.className = "found";
    }
    return put(line, text.slice(at));
  }

  function find() {
    const word = search.value.toLowerCase();
    for (const line of lines.children) mark(line, line.textContent, word);
    count();
    place = -1;
    if (matches.length) { setFollow(false); step(-1); }
  }

  function count() {
    matches = [...lines.querySelectorAll(".found")];
    say(found, search.value ? several(matches.length, "line") : "");
  }

  function step(by) {
    if (!matches.length) return;
    place = (place + by + matches.length) % matches.length;
    matches[place].scrollIntoView({ block: "center" });
  }

  const update = (newest) => {
    if (which.childElementCount === newest) return;
    const latest = which.childElementCount === 0 || Number(which.value) === which.childElementCount;
    const chosen = which.value;
    renew(which, Array.from({ length: newest }, (_, i) => h("option", { value: i + 1 }, `run ${i + 1}`)).reverse());
    which.hidden = newest < 2;
    which.value = latest ? newest : chosen;
    if (latest) start();
  };
  update(runs);
  return { element, update, end: () => controller?.abort(), toggle: () => setFollow(follow.getAttribute("aria-pressed") !== "true") };
}
