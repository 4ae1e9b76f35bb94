// Builds elements. Every text becomes a text node, so that what a job wrote is never markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else if (name === "href") setAddress(element, String(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, ...children);
  return element;
}

/** Sets an address, which must be one of ours: a text from a job cannot become a link to somewhere else. */
function setAddress(element, address) {
  if (/^(\/(?!\/)|#|\?)/.test(address)) element.setAttribute("href", address);
}

export function put(element, ...children) {
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function renew(element, ...children) {
  element.replaceChildren();
  return put(element, ...children);
}

/** Changes a text only if it is another one: the browser then has nothing to lay out. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function width(element, share) {
  const wanted = `${Math.round(Math.min(Math.max(share || 0, 0), 1) * 1000) / 10}%`;
  if (element.style.width !== wanted) element.style.width = wanted;
}

const ICONS = {
  jobs: "M4 6h16M4 12h16M4 18h10", timeline: "M4 6h9M8 12h10M6 18h6M4 3v18", cluster: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
  people: "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM3 20c0-4 3-6 6-6s6 2 6 6M16 5.500a3 3 0 0 1 0 5.500M18 14.500c2 .8 3 2.700 3 5.500",
  policy: "M12 3v4M12 7 5 17h14L12 7zM3 20h18", finished: "M4 12l5 5L20 6", studies: "M5 4h11l3 3v13H5zM8 16v-3M12 16v-6M16 16v-4",
  health: "M3 12h4l3-7 4 14 3-7h4", theme: "M20 14A8 8 0 1 1 10 4a7 7 0 0 0 10 10z", help: "M9 9a3 3 0 1 1 4 2.800c-.7.3-1 .8-1 1.700M12 17.500v.1M12 22a10 10 0 1 0 0-20 10 10 0 0 0 0 20z",
};

export function icon(name) {
  const path = svg("path", { d: ICONS[name], fill: "none", stroke: "currentColor", "stroke-width": 1.8, "stroke-linecap": "round", "stroke-linejoin": "round" });
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, path);
}
