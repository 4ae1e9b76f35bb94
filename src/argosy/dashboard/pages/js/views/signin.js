// Signs in with the code of a one-time link, which stands behind # and so never reaches a server or a log.

import { signIn } from "../api.js";
import { h, renew, say } from "../dom.js";

export async function show(place, begin) {
  const code = location.hash.slice(1);
  const back = history.state?.back ?? "/jobs";
  const problem = h("p", { role: "alert", class: "notice bad", hidden: true });
  const enter = async (given) => {
    try {
      await signIn(given);
      history.replaceState(null, "", back);
      await begin();
    } catch (refusal) {
      problem.hidden = false;
      say(problem, refusal.message);
    }
  };
  if (code) history.replaceState(history.state, "", "/signin"); // first of all out of the address
  const field = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true, placeholder: "argosy-…" });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    enter({ token: field.value });
    field.value = "";
  } }, h("label", { for: "token" }, "Your token"), field, h("button", { class: "main" }, "Sign in"));
  renew(place, h("main", { class: "sign", id: "main" }, h("div", { class: "card" },
    h("div", { class: "brand" }, h("img", { src: "/pages/icon.svg", alt: "" }), h("h1", null, "Argosy")),
    problem, form, h("p", { class: "soft" }, "On the daemon's own machine there is a shorter way: ", h("code", null, "argosy dashboard"), " opens this page signed in. An operator makes tokens: ", h("code", null, "argosy token add YOU"), "."))));
  if (code) await enter({ code });
  else field.focus();
}
