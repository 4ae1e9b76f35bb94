// Small charts in SVG: lines, steps and stacked areas over time, and histograms. Every axis says its unit.

import { h, renew, svg } from "./dom.js";
import { amount, clean, clockTime, moment } from "./format.js";

const LEFT = 46, RIGHT = 10, TOP = 18, BOTTOM = 22;

/** Round values between two limits, at most `most` of them. */
export function ticks(low, high, most = 5) {
  const raw = (high - low) / most || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * size).find((n) => n >= raw * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step) * step; n <= high + step * 1e-9; n += step) found.push(Number(n.toPrecision(12)));
  return found;
}

const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** Moments at full minutes, hours or days of the reader's time zone. */
export function timeTicks(from, to, most = 6) {
  const step = STEPS.find((n) => (to - from) / n <= most) ?? STEPS.at(-1);
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) found.push(t);
  return found.map((t) => [t, step >= 86400 ? moment(t).slice(5, 10) : to - from > 86400 ? moment(t, false).slice(5, 16) : clockTime(t).slice(0, step < 60 ? 8 : 5)]);
}

/**
 * series: [{name, hue, points: [[x, y], …], area}]; options: {unit, height, stacked, step, marks: [{x, text}], from, to, most, time};
 * `most` is a height that is shown even if nothing reaches it.
 */
export function lines(series, { unit, height = 150, stacked = false, step = false, marks = [], from, to, most: atLeast = -Infinity, time = true, label = "" }) {
  const box = h("figure");
  const drawn = series.filter((one) => one.points.some(([, y]) => Number.isFinite(y)));
  if (!drawn.length) return renew(box, h("p", { class: "soft small" }, "Nothing was reported yet."));
  const draw = () => {
    const wide = Math.max(220, box.clientWidth || 480);
    const xs = drawn.flatMap((one) => one.points.map(([x]) => x));
    const x0 = from ?? Math.min(...xs), x1 = Math.max(to ?? Math.max(...xs), x0 + 1e-6);
    const layers = stacked ? stack(drawn) : drawn.map((one) => ({ ...one, top: one.points }));
    const ys = layers.flatMap((one) => one.top.map(([, y]) => y)).filter(Number.isFinite);
    const least = Math.min(...ys), most = Math.max(...ys, atLeast);
    const y0 = least >= 0 && (stacked || step || least < 0.5 * most) ? 0 : least - 0.05 * (most - least || 1);
    const y1 = most > y0 ? most + 0.05 * (most - y0) : y0 + 1;
    const X = (x) => LEFT + ((x - x0) / (x1 - x0)) * (wide - LEFT - RIGHT);
    const Y = (y) => TOP + (1 - (y - y0) / (y1 - y0)) * (height - TOP - BOTTOM);
    const image = svg("svg", { class: "chart", viewBox: `0 0 ${wide} ${height}`, height, role: "img", "aria-label": label || `${drawn.map((one) => one.name).join(", ")} in ${unit}` });
    for (const y of ticks(y0, y1, 4)) {
      image.append(svg("path", { class: "axis", d: `M${LEFT} ${Y(y)}H${wide - RIGHT}` }), svg("text", { x: LEFT - 6, y: Y(y) + 4, "text-anchor": "end" }, amount(y)));
    }
    image.append(svg("text", { x: 0, y: 10 }, unit));
    const along = time ? timeTicks(x0, x1, Math.max(2, Math.floor(wide / 110))) : ticks(x0, x1, 6).map((x) => [x, amount(x)]);
    for (const [x, text] of along) {
      const at = X(x);
      if (at > LEFT + 8 && at < wide - 24) image.append(svg("text", { x: at, y: height - 6, "text-anchor": "middle" }, text));
    }
    for (const [i, one] of layers.entries()) {
      const points = one.top.filter(([, y]) => Number.isFinite(y));
      const path = points.map(([x, y], n) => `${n ? (step ? `H${X(x).toFixed(1)}V` : "L") : "M"}${n && step ? Y(y).toFixed(1) : `${X(x).toFixed(1)} ${Y(y).toFixed(1)}`}`).join("");
      const hue = `f${one.hue ?? (i % 8) + 1}`;
      if (stacked || one.area) {
        const floor = stacked ? one.base : points.map(([x]) => [x, y0]);
        const back = [...floor].reverse().map(([x, y], n) => (step && n ? `V${Y(y).toFixed(1)}H${X(x).toFixed(1)}` : `L${X(x).toFixed(1)} ${Y(y).toFixed(1)}`)).join("");
        image.append(svg("path", { class: `area ${hue}`, d: `${path}${back}Z` }));
      } else image.append(svg("path", { class: `line ${hue}`, d: path }));
    }
    for (const mark of marks) {
      if (mark.x < x0 || mark.x > x1) continue;
      const group = svg("g", null, svg("path", { class: "mark", d: `M${X(mark.x)} ${TOP}V${height - BOTTOM}` }), svg("title", null, clean(mark.text)));
      image.append(group);
    }
    const readout = h("div", { class: "legend" });
    const legend = (x) => renew(readout, drawn.length > 1 || x !== null ? drawn.map((one, i) => {
      const point = x === null ? null : nearest(one.points, x);
      return h("span", { title: clean(one.name) }, h("i", { class: `f${one.hue ?? (i % 8) + 1}` }), `${clean(one.name, 40)}${point ? ` ${amount(point[1])}` : ""}`);
    }) : null, x !== null ? h("span", null, time ? moment(x) : amount(x)) : null);
    const cursor = svg("path", { class: "cursor", visibility: "hidden" });
    image.append(cursor);
    image.addEventListener("pointermove", (event) => {
      const at = ((event.clientX - image.getBoundingClientRect().left) / image.getBoundingClientRect().width) * wide;
      const x = x0 + ((at - LEFT) / (wide - LEFT - RIGHT)) * (x1 - x0);
      if (x < x0 || x > x1) return;
      cursor.setAttribute("d", `M${at} ${TOP}V${height - BOTTOM}`);
      cursor.setAttribute("visibility", "visible");
      legend(x);
    });
    image.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); legend(null); });
    legend(null);
    renew(box, image, readout);
  };
  const sizes = new ResizeObserver(() => { if (box.isConnected) draw(); else sizes.disconnect(); });
  sizes.observe(box);
  return box;
}

function stack(series) {
  let base = series[0].points.map(([x]) => [x, 0]);
  return series.map((one) => {
    const top = one.points.map(([x, y], i) => [x, (y || 0) + base[i][1]]);
    const layer = { ...one, top, base };
    base = top;
    return layer;
  });
}

function nearest(points, x) {
  let found = null;
  for (const point of points) {
    if (point[0] > x) break;
    if (Number.isFinite(point[1])) found = point;
  }
  return found;
}

/** How often values fall between round limits of durations. */
export function histogram(values, limits, names, { unit, height = 140, hue = 1 }) {
  const counts = limits.map((limit, i) => values.filter((v) => v < limit && (i === 0 || v >= limits[i - 1])).length);
  const most = Math.max(1, ...counts);
  const box = h("figure");
  const draw = () => {
    const wide = Math.max(220, box.clientWidth || 480);
    const each = (wide - LEFT - RIGHT) / counts.length;
    const image = svg("svg", { class: "chart", viewBox: `0 0 ${wide} ${height}`, height, role: "img", "aria-label": `How many jobs, by ${unit}` }, svg("text", { x: 0, y: 10 }, "jobs"));
    const Y = (n) => TOP + (1 - n / most) * (height - TOP - BOTTOM);
    for (const y of ticks(0, most, 4).filter(Number.isInteger)) image.append(svg("path", { class: "axis", d: `M${LEFT} ${Y(y)}H${wide - RIGHT}` }), svg("text", { x: LEFT - 6, y: Y(y) + 4, "text-anchor": "end" }, amount(y)));
    counts.forEach((n, i) => image.append(svg("g", null, svg("rect", { class: `f${hue}`, "stroke-width": 0, x: LEFT + i * each + 2, y: Y(n), width: Math.max(1, each - 4), height: Y(0) - Y(n), rx: 2 }), svg("title", null, `${names[i]}: ${n}`)),
      svg("text", { x: LEFT + (i + 0.5) * each, y: height - 6, "text-anchor": "middle" }, names[i])));
    renew(box, image);
  };
  const sizes = new ResizeObserver(() => { if (box.isConnected) draw(); else sizes.disconnect(); });
  sizes.observe(box);
  return box;
}

export const DURATIONS = [[60, 600, 1800, 3600, 7200, 21600, 86400, Infinity], ["<1m", "10m", "30m", "1h", "2h", "6h", "1d", ">1d"]];
