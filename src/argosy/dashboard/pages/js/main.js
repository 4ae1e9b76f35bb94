// Starts the page: signs in, draws the frame, shows the screen of the address, and handles keys.

import { session, signOut, whoAmI } from "./api.js";
import { inform } from "./dialog.js";
import { h, icon, put, renew, say, width } from "./dom.js";
import { amount, several } from "./format.js";
import { cluster, keepUp, listen } from "./jobs.js";
import { SCREENS, go, route } from "./router.js";

const app = document.getElementById("app");
const THEME = "argosy-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
let leave = null; // ends the screen that is shown
let main;
let started = false;

function paint() {
  const chosen = localStorage.getItem(THEME);
  document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
}

function switchTheme() {
  localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  paint();
  dispatchEvent(new Event("theme"));
}

function frame() {
  const held = h("span"), meter = h("i"), link = h("span", { class: "link" }), policy = h("span", { class: "policy soft" });
  const alarm = h("div", { class: "alarm notice bad", role: "alert", hidden: true });
  main = h("main", { id: "main", tabindex: "-1" });
  const links = SCREENS.map((screen) => h("a", { href: `/${screen.name}`, "data-screen": screen.name }, icon(screen.name), h("span", null, screen.title)));
  const who = h("div", { class: "who small" }, h("span", null, "Signed in as "), h("b", null, h("bdi", null, session.owner)),
    h("span", null, session.role), h("button", { class: "plain", onclick: signOut }, "Sign out"), h("span", null, `Argosy ${session.version}`));
  renew(app,
    h("a", { class: "brand", href: "/jobs" }, h("img", { src: "/pages/icon.svg", alt: "" }), "Argosy"),
    h("header", { class: "bar" },
      h("span", { class: "held" }, h("span", { class: "meter", "aria-hidden": "true" }, meter), held), policy, h("span", { class: "grow" }), link,
      h("button", { class: "plain", title: "Keys (?)", "aria-label": "Show the keys", onclick: help }, icon("help")),
      h("button", { class: "plain", title: "Light or dark", "aria-label": "Switch between light and dark", onclick: switchTheme }, icon("theme"))),
    h("nav", { class: "nav", "aria-label": "Screens" }, links, who),
    h("div", { class: "main-column" }, main));
  app.className = "";
  const column = main.parentElement;
  column.prepend(alarm);
  alarm.style.margin = "16px 24px 0";
  listen(() => {
    const state = cluster.state;
    if (state) {
      say(held, `${amount(state.held)} of ${several(state.gpus, "GPU")} held`);
      width(meter, state.held / Math.max(state.gpus, 1));
      say(policy, `policy ${state.policy.slice(0, 40)}`);
      alarm.hidden = state.ok || cluster.link === "away";
      if (!state.ok) say(alarm, `Something is wrong: ${state.problems.filter(Boolean).join("; ") || "an operator can see what, on Health"}`);
    }
    link.className = `link ${cluster.link}`;
    link.dataset.link = cluster.link;
    say(link, { live: "live", asks: "every 2 s", away: "no connection; trying again", begins: "connecting" }[cluster.link]);
  });
}

async function render() {
  const [name = "jobs", rest] = location.pathname.split("/").filter(Boolean);
  if (name === "signin") return void (await signIn());
  if (!started) return;
  for (const link of app.querySelectorAll("[data-screen]")) {
    if (link.dataset.screen === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const wanted = location.pathname;
  const module = await import(name === "jobs" && rest ? "./views/job.js" : `./views/${SCREENS.some((s) => s.name === name) ? name : "jobs"}.js`);
  if (wanted !== location.pathname) return;
  leave?.();
  leave = null;
  const place = h("div");
  renew(main, place);
  scrollTo(0, 0);
  document.title = `${SCREENS.find((s) => s.name === name)?.title ?? "Jobs"}${rest ? ` ${rest}` : ""} · Argosy`;
  leave = module.show(place, rest) ?? null;
}

async function signIn() {
  leave?.();
  leave = null;
  app.className = "out";
  const { show } = await import("./views/signin.js");
  renew(app);
  await show(app, begin);
}

async function begin() {
  try {
    await whoAmI();
  } catch (problem) {
    if (problem.status === 401) {
      if (location.pathname !== "/signin") history.replaceState({ back: location.pathname + location.search }, "", "/signin");
      return render();
    }
    app.className = "out";
    renew(app, h("main", { class: "empty" }, h("h2", null, "No connection"), h("p", null, problem.message)));
    return void setTimeout(begin, 2000);
  }
  started = true;
  frame();
  keepUp();
  if (["/", "/signin"].includes(location.pathname)) history.replaceState(null, "", "/jobs");
  render();
}

function help() {
  const rows = [["/", "search"], ["j k or ↓ ↑", "next and previous job"], ["Enter", "open the job"], ["x", "mark the job"], ["Esc", "back, or take the marks away"],
    ...SCREENS.map((screen) => [`g ${screen.key}`, screen.title]), ["+ − ← →", "zoom and move the timeline"], ["f", "follow the log, on a job's page"], ["?", "this list"]];
  inform("Keys", h("dl", { class: "keys" }, rows.map(([key, what]) => [h("dt", null, key.split(" ").map((k) => [h("kbd", null, k), " "])), h("dd", null, what)])));
}

let before = "";
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !started) return;
  if (event.key === "?") help();
  else if (event.key === "/") {
    const field = main.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  } else if (before === "g") {
    const screen = SCREENS.find((one) => one.key === event.key);
    if (screen) go(`/${screen.name}`);
  }
  before = event.key;
});

addEventListener("signed-out", () => {
  if (!started) return;
  started = false;
  location.assign("/signin");
});
dark.addEventListener("change", () => { paint(); dispatchEvent(new Event("theme")); });
put(app, h("main", { class: "empty" }, "Loading …"));
paint();
route(render);
if (location.pathname === "/signin") render();
else begin();
