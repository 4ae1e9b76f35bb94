// Turns values into text that people read. Times follow the daemon's clock, which a demonstration lets run faster.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const COLOUR = /\u001b\[[0-9;:]{0,40}[A-Za-z]|\u001b\][^\u0007\u001b]{0,2000}(?:\u0007|\u001b\\)/g;
const LONGEST = 300;

let clock = { at: Date.now() / 1000, seen: performance.now() / 1000, speed: 1 };

export function setClock(at, speed) {
  clock = { at, seen: performance.now() / 1000, speed: speed || 1 };
}

export function now() {
  return clock.at + (performance.now() / 1000 - clock.seen) * clock.speed;
}

export function speed() {
  return clock.speed;
}

/** Shows characters that would hide or turn round other text as their codes, and cuts what is too long. */
export function clean(text, longest = LONGEST) {
  const cut = String(text ?? "").slice(0, longest + 1);
  const shown = cut.replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return cut.length > longest ? `${shown.slice(0, longest)}…` : shown;
}

/** A line of a log: colours are taken out, other control characters are shown as codes. */
export function cleanLine(line) {
  return clean(line.replace(COLOUR, "").replaceAll("\t", "    ").replace(/\r+$/, "").replace(/^.*\r/, ""), 4000);
}

export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  const whole = Math.max(0, Math.round(seconds));
  const [d, hours, minutes, rest] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${d}d ${hours}h`;
  if (hours) return `${hours}h ${String(minutes).padStart(2, "0")}m`;
  return minutes ? `${minutes}m ${String(rest).padStart(2, "0")}s` : `${rest}s`;
}

export function rough(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(seconds < 36000 ? 1 : 0)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

/** A range of durations with one unit, such as 12–18 min. */
export function range(low, high) {
  if (!Number.isFinite(high)) return Number.isFinite(low) ? `> ${rough(low)}` : "> 1 year";
  const [a, b] = [rough(low), rough(high)];
  if (a === b) return `≈ ${a}`;
  const [x, unit] = a.split(" ");
  return b.endsWith(` ${unit}`) ? `${x}–${b}` : `${a} – ${b}`;
}

const two = (n) => String(n).padStart(2, "0");

export function moment(unix, seconds = true) {
  if (!unix) return "";
  const d = new Date(unix * 1000);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? `:${two(d.getSeconds())}` : ""}`;
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
}

export function clockTime(unix) {
  const d = new Date(unix * 1000);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

export function amount(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
  if (Number.isInteger(value)) return String(value);
  if (size >= 100) return value.toFixed(0);
  return size < 1e-3 && size > 0 ? value.toExponential(1) : String(Number(value.toPrecision(digits)));
}

export function bytes(n) {
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1024 || unit === "TiB") return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
  return "";
}

export function percent(share) {
  return share === null || share === undefined ? "" : `${Math.floor(share * 100 + 1e-9)}%`;
}

export function several(n, one, more = `${one}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : more}`;
}

export function gpus(job) {
  const size = job.low === job.high ? amount(job.high) : `${amount(job.low)}–${amount(job.high)}`;
  return job.gpus ? `${amount(job.gpus)} of ${size}` : size;
}

/** The same colour for the same thing on every screen: one of eight. */
export function hue(key) {
  let sum = 7;
  for (const c of String(key)) sum = (sum * 31 + c.codePointAt(0)) >>> 0;
  return (sum % 8) + 1;
}
