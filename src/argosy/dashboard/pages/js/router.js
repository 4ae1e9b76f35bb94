// Which screen is shown, by the address. Every screen has an address that can be kept and sent.

export const SCREENS = [
  { name: "jobs", title: "Jobs", key: "j" },
  { name: "timeline", title: "Timeline", key: "t" },
  { name: "cluster", title: "Cluster", key: "c" },
  { name: "people", title: "People", key: "p" },
  { name: "policy", title: "Policy", key: "l" },
  { name: "finished", title: "Finished", key: "f" },
  { name: "studies", title: "Studies", key: "s" },
  { name: "health", title: "Health", key: "h" },
];

let show = () => {};
let table = "/jobs"; // the table of jobs as it was filtered last

export function route(render) {
  show = render;
  addEventListener("popstate", () => show());
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='/']");
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
}

/** Where the way back from a job leads: to the table with the filters that it had. */
export function backToJobs() {
  return table;
}

export function go(address) {
  if (location.pathname === "/jobs") table = location.pathname + location.search;
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  show();
}

/** The filters of a screen, kept in its address without a new entry in the history for every letter. */
export function query() {
  return new URLSearchParams(location.search);
}

export function keep(values) {
  const wanted = query();
  for (const [name, value] of Object.entries(values)) {
    if (value === "" || value === null || value === undefined || value === false) wanted.delete(name);
    else wanted.set(name, value);
  }
  const text = wanted.toString().replaceAll("%2C", ",");
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}
