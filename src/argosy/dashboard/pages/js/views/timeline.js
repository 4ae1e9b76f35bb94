import { h, put } from "../dom.js"; export function show(place) { put(place, h("h1", null, "…")); }
