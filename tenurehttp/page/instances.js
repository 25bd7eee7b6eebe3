// The instances, those that are not active first. The server chooses the rows that can be seen.
import { attribute, el, mark, put, show, svg } from "./dom.js";
import { age, lacks, query, soon, state } from "./source.js";
import { count, roleName, span, stateOf } from "./words.js";
import { instanceLink } from "./links.js";
import { Rows } from "./rows.js";

const block = 50; // rows are asked for in such steps
const filterFrom = 12; // with fewer a filter is clutter
const pointsKept = 24; // of the load of an instance
const historiesKept = 500;

let rows;
let fresh; // the last answer that was drawn
const loads = new Map(); // of instances, by ID: what they said since the page is open

export function startInstances(section) {
  rows = new Rows(section.querySelector(".rows"), { make, update, keyOf: (i) => i.instance_id });
  rows.seen = want;
  const input = section.querySelector("input");
  input.addEventListener("input", () => {
    query.q = input.value.trim();
    query.offset = 0;
    rows.box.scrollTop = 0;
    soon();
  });
}

// want asks for the rows that can be seen, if they are not there.
function want(first, end) {
  const page = state.snapshot?.instances;
  if (!page || end <= first) return;
  const offset = Math.max(0, Math.floor((first - block / 2) / block) * block);
  const limit = Math.max(2 * block, Math.ceil((end - offset) / block) * block);
  const there = first >= page.offset && end <= page.offset + page.items.length;
  const changed = offset !== query.offset || limit !== query.limit;
  query.offset = offset;
  query.limit = limit;
  if (!there && changed) soon();
}

export function drawInstances(section) {
  const { instances: page, status } = state.snapshot;
  if (fresh !== page) {
    fresh = page;
    for (const i of page.items) note(i);
  }
  put(section.querySelector("h2"), lacks("instances") ? "Instances" : `Instances ${page.total.toLocaleString("en")}`);
  put(section.querySelector(".sum"), countsText(status.counts, page));
  show(section.querySelector("input"), page.total > filterFrom || query.q !== "");
  rows.set(page.matched, (i) => page.items[i - page.offset]);
  const empty = section.querySelector(".empty");
  show(rows.box, page.matched > 0);
  drawEmpty(empty, page, status.counts);
}

function countsText(counts, page) {
  const parts = ["down", "drifted", "unknown", "joining", "draining", "active"].filter((s) => counts[s] > 0).map((s) => `${counts[s].toLocaleString("en")} ${s}`);
  if (counts.malformed > 0) parts.push(`${count(counts.malformed, "malformed record")}`);
  if (query.q) parts.unshift(`${page.matched.toLocaleString("en")} found`);
  return parts.join(" · ");
}

function drawEmpty(empty, page, counts) {
  const kind = lacks("instances") ? "" : page.matched === 0 && query.q ? "none" : page.total === 0 ? "nobody" : counts.total === 1 ? "alone" : "";
  show(empty, kind !== "");
  if (empty.dataset.kind === kind) return;
  empty.dataset.kind = kind;
  empty.replaceChildren(...{
    none: [el("p", {}, "No ID has this in it. Capitals count.")],
    nobody: [el("p", {}, "No instance is registered. One registers as soon as its coordinator runs, with the same Redis and namespace.")],
    alone: [el("p", {}, "This one is alone: if it stops, nobody takes over. Start the same program once more, with another ID:"), el("pre", {}, "HOSTNAME=second ./your-service")],
  }[kind] ?? []);
}

// note keeps the load that an instance has said with a heartbeat.
function note(i) {
  if (!i.load) return;
  const known = loads.get(i.instance_id) ?? { beat: "", points: [] };
  if (known.beat === i.last_heartbeat) return;
  loads.delete(i.instance_id); // so that the map is in the order of use
  known.beat = i.last_heartbeat;
  known.points = [...known.points, loadOf(i.load).share].slice(-pointsKept);
  loads.set(i.instance_id, known);
  if (loads.size > historiesKept) loads.delete(loads.keys().next().value);
}

// loadOf is the load in a few words, and as a share.
export function loadOf(load) {
  if (!load) return { text: "", share: 0 };
  if (load.cpu > 0 || load.memory > 0) {
    return load.cpu >= load.memory ? { text: `cpu ${Math.round(load.cpu * 100)} %`, share: load.cpu } : { text: `mem ${Math.round(load.memory * 100)} %`, share: load.memory };
  }
  if (load.jobs > 0) return { text: count(load.jobs, "job"), share: load.jobs };
  if (load.connections > 0) return { text: `${load.connections.toLocaleString("en")} conn.`, share: load.connections };
  return { text: "idle", share: 0 };
}

function make() {
  const parts = {
    icon: el("span", { class: "mark" }), id: el("span", { class: "name" }), leads: el("span", { class: "tag" }),
    state: el("span", { class: "state" }), beat: el("span", { class: "beat num" }), line: el("span", { class: "line" }), load: el("span", { class: "load num" }), version: el("span", { class: "version" }),
  };
  const link = el("a", { class: "row instance" }, el("span", { class: "who" }, parts.icon, parts.id, parts.leads), parts.state, parts.beat, el("span", { class: "busy" }, parts.line, parts.load), parts.version);
  const item = el("li", {}, link);
  item.parts = { ...parts, link };
  return item;
}

function update(row, i, isFresh) {
  const p = row.parts;
  row.classList.toggle("coming", !i);
  if (!i) {
    put(p.id, "…");
    attribute(p.link, "href", "#instances");
    return;
  }
  const { shape, warn } = stateOf(i.state);
  attribute(p.link, "href", instanceLink(i.instance_id));
  attribute(p.id, "title", i.instance_id);
  row.classList.toggle("warn", warn);
  mark(p.icon, shape);
  put(p.id, i.instance_id);
  put(p.leads, leadsText(i));
  put(p.state, i.state, !isFresh);
  put(p.beat, `${span(i.age_seconds + age())} ago`);
  const load = loadOf(i.load);
  put(p.load, load.text);
  sparkline(p.line, loads.get(i.instance_id)?.points ?? []);
  put(p.version, i.version ?? "", !isFresh);
}

// leadsText is what an instance leads by who leads now, not by its last heartbeat.
function leadsText(i) {
  const led = state.snapshot.roles.filter((r) => r.leader?.instance_id === i.instance_id).map((r) => roleName(r.role));
  if (led.length === 0) return "";
  return led.length <= 2 ? `leads ${led.join(", ")}` : `leads ${led.length} roles`;
}

// sparkline draws the load since the page is open, once there is enough of it.
function sparkline(box, points) {
  const key = points.join(" ");
  if (box.dataset.drawn === key) return;
  box.dataset.drawn = key;
  if (points.length < 3) {
    box.replaceChildren();
    return;
  }
  const top = Math.max(...points) > 1 ? Math.max(...points) : 1;
  const x = (n) => (n / (pointsKept - 1)) * 60;
  const from = pointsKept - points.length;
  const line = points.map((p, n) => `${x(from + n).toFixed(1)},${(15 - (p / top) * 14).toFixed(1)}`).join(" ");
  box.replaceChildren(svg("svg", { viewBox: "0 0 60 16", class: "spark", "aria-hidden": "true", preserveAspectRatio: "none" }, svg("polyline", { points: line })));
}
