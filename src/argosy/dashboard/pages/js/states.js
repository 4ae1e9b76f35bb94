// The states of a job as people see them, each with a sign of its own, so that colour is never needed.

import { say } from "./dom.js";

export const STATES = ["running", "starting", "stopping", "paused", "waiting", "held", "failed", "succeeded", "cancelled"];
export const SIGNS = { running: "●", starting: "◔", stopping: "◑", paused: "‖", waiting: "○", held: "⊟", failed: "✕", succeeded: "✓", cancelled: "⊘" };

export function stateOf(element, state) {
  const wanted = `state ${state}`;
  if (element.className === wanted && element.firstChild) return element;
  element.className = wanted;
  element.textContent = "";
  const sign = document.createElement("i");
  sign.setAttribute("aria-hidden", "true");
  say(sign, SIGNS[state] ?? "");
  element.append(sign, state);
  return element;
}
