// What may be done to jobs: each action says what it will do, asks first, and offers to take it back where it can.

import { post } from "./api.js";
import { confirm, failed, toast } from "./dialog.js";
import { h } from "./dom.js";
import { clean, several } from "./format.js";

const MOST = 1000; // jobs in one request

const ACTIONS = {
  cancel: {
    title: "Cancel", danger: true, fits: (job) => !job.over,
    ask: (jobs) => jobs.some((job) => job.gpus || job.state !== "pending")
      ? "Running jobs are asked to save their work and leave; what has waited never starts."
      : "They leave the queue and never start.",
    undo: { label: "Submit again", act: again },
  },
  hold: { title: "Hold", fits: (job) => job.state === "pending" && !job.held, ask: () => "They stay in the queue, but do not start until they are released.", undo: { label: "Undo", act: (jobs) => send("release", jobs) } },
  release: { title: "Release", fits: (job) => job.held, ask: null, undo: { label: "Undo", act: (jobs) => send("hold", jobs) } },
  requeue: { title: "Requeue", fits: (job) => ["running", "starting"].includes(job.state), ask: () => "They save their work, leave their GPUs, and wait for their turn again. The policy may start them again at once." },
  priority: {
    title: "Priority", fits: (job) => !job.over, ask: () => "A policy that reads priorities puts jobs with a higher one first.",
    fields: (jobs) => [h("label", { for: "priority" }, "Priority, 0 to 100: ", h("input", { id: "priority", name: "priority", type: "number", min: 0, max: 100, step: "any", required: true, value: String(jobs[0].priority) }))],
    undo: { label: "Undo", act: unprioritise },
  },
};

const DONE = { cancel: "cancelled", hold: "held back", release: "released", requeue: "put back into the queue", priority: "given a new priority" };

async function send(name, jobs, more = {}) {
  const answers = [];
  for (let i = 0; i < jobs.length; i += MOST) {
    answers.push(await post(`/v1/jobs/${name}`, { ids: jobs.slice(i, i + MOST).map((job) => job.id), ...more }));
  }
  return answers;
}

/** Submits jobs once more, for their owners. */
async function again(jobs) {
  const made = (await send("resubmit", jobs)).flatMap((answer) => answer.ids);
  toast(`Submitted again: ${made.length === 1 ? `job ${made[0]}` : several(made.length, "job")}`);
}

async function unprioritise(jobs) {
  for (const value of new Set(jobs.map((job) => job.priority))) {
    await send("priority", jobs.filter((job) => job.priority === value), { priority: value });
  }
}

async function act(name, chosen) {
  const action = ACTIONS[name];
  const jobs = chosen.filter(action.fits);
  const one = jobs.length === 1;
  const what = one ? `job ${jobs[0].id}` : several(jobs.length, "job");
  let given = {};
  if (action.ask) {
    const list = h("ul", { class: "what small" }, jobs.slice(0, 12).map((job) => h("li", null, h("span", { class: "mono" }, job.id), " ", h("bdi", null, clean(job.name, 60)), " ", h("span", { class: "soft" }, job.shown))),
      jobs.length > 12 ? h("li", { class: "soft" }, `and ${several(jobs.length - 12, "other")}`) : null);
    const left = chosen.length - jobs.length;
    given = await confirm({ title: `${action.title} ${what}?`, body: [h("p", null, action.ask(jobs)), list, left ? h("p", { class: "soft" }, `${several(left, "marked job")} cannot be changed in this way and ${left === 1 ? "stays" : "stay"} as ${left === 1 ? "it is" : "they are"}.`) : null], yes: `${action.title} ${what}`, danger: action.danger, fields: action.fields?.(jobs) ?? [] });
    if (!given) return false;
  }
  try {
    await send(name, jobs, name === "priority" ? { priority: Number(given.priority) } : {});
  } catch (problem) {
    failed(problem);
    return false;
  }
  const undo = action.undo;
  toast(`${what[0].toUpperCase()}${what.slice(1)} ${one ? "was" : "were"} ${DONE[name]}.`, undo ? () => undo.act(jobs).catch(failed) : null, undo?.label);
  return true;
}

/** A button for each action; those that fit none of the jobs are disabled, or hidden. `chosen` gives the jobs at that moment. */
export function buttons(chosen, { after = () => {}, hides = false } = {}) {
  const made = Object.entries(ACTIONS).map(([name, action]) => [action, h("button", { "data-action": name, onclick: async () => (await act(name, chosen())) && after() }, action.title)]);
  return {
    elements: made.map(([, button]) => button),
    update: () => {
      const jobs = chosen();
      for (const [action, button] of made) button[hides ? "hidden" : "disabled"] = !jobs.some(action.fits);
    },
  };
}
