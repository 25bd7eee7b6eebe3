// The tasks: when each runs next, how its last run ended, how long its last runs took.
import { attribute, el, mark, put, show, svg } from "./dom.js";
import { lacks, now, state } from "./source.js";
import { count, resultOf, seconds, span, took } from "./words.js";
import { taskLink } from "./links.js";
import { Rows } from "./rows.js";

const filterFrom = 12;
export const plotted = 30; // runs

let rows;
let filter = "";

export function startTasks(section) {
  rows = new Rows(section.querySelector(".rows"), { make, update, keyOf: (t) => t.status.name });
  const input = section.querySelector("input");
  input.addEventListener("input", () => {
    filter = input.value.trim().toLowerCase();
    rows.box.scrollTop = 0;
    drawTasks(section);
  });
}

export function drawTasks(section) {
  if (!state.snapshot) return;
  const all = state.snapshot.tasks;
  const found = filter ? all.filter((t) => t.status.name.toLowerCase().includes(filter)) : all;
  put(section.querySelector("h2"), lacks("tasks") ? "Tasks" : `Tasks ${all.length.toLocaleString("en")}`);
  put(section.querySelector(".sum"), summary(all, found));
  show(section.querySelector("input"), all.length > filterFrom || filter !== "");
  show(rows.box, found.length > 0);
  rows.set(found.length, (i) => found[i]);
  const empty = section.querySelector(".empty");
  show(empty, found.length === 0 && !lacks("tasks"));
  const kind = all.length === 0 ? "no tasks" : "not found";
  if (empty.dataset.kind === kind) return;
  empty.dataset.kind = kind;
  empty.replaceChildren(...(all.length > 0 ? [el("p", {}, "No name has this in it.")] : [
    el("p", {}, "No task has a record yet. A task runs on the leader only; these lines register one:"),
    el("pre", {}, "c.Tasks().Register(tenure.Task{\n  Name: \"report\", Schedule: tenure.Cron(\"0 3 * * *\"), Run: report,\n})"),
  ]));
}

function summary(all, found) {
  const parts = [];
  if (found.length !== all.length) parts.push(`${found.length} found`);
  for (const [word, is] of [["failing", failing], ["overdue", (t) => t.status.overdue], ["paused", (t) => t.status.paused], ["running", (t) => t.status.running]]) {
    const n = all.filter(is).length;
    if (n > 0) parts.push(`${n} ${word}`);
  }
  return parts.join(" · ");
}

export const failing = (t) => t.status.failures > 0 || Boolean(t.status.error);

function make() {
  const parts = { icon: el("span", { class: "mark" }), name: el("span", { class: "name" }), next: el("span", { class: "next num" }), result: el("span", { class: "result" }), plot: el("span", { class: "plot" }) };
  parts.mark = el("span", { class: "mark" });
  parts.word = el("span", { class: "word num" });
  parts.result.append(parts.mark, parts.word);
  const link = el("a", { class: "row task" }, parts.name, parts.next, parts.result, parts.plot);
  const item = el("li", {}, link);
  item.parts = { ...parts, link };
  return item;
}

function update(row, t, fresh) {
  const p = row.parts;
  attribute(p.link, "href", taskLink(t.status.name));
  attribute(p.name, "title", t.status.name);
  put(p.name, t.status.name);
  put(p.next, nextText(t.status));
  p.next.classList.toggle("warn", t.status.overdue);
  const result = lastText(t);
  mark(p.mark, result.shape);
  put(p.word, result.text, !fresh && !t.status.running); // for how long it runs changes each second
  attribute(p.word, "title", result.text);
  p.result.classList.toggle("warn", result.warn);
  plot(p.plot, t.runs);
}

// nextText is when a task runs next, or why it does not.
export function nextText(s) {
  if (s.paused) return s.pause?.by ? `paused by ${s.pause.by}` : "paused";
  if (s.running) return "runs now";
  if (s.held) return "held: too few instances";
  if (s.trigger) return "triggered";
  const next = seconds(s.next);
  if (!Number.isFinite(next)) return s.schedule === "on demand" ? "on demand" : "not planned";
  const left = next - now();
  if (s.overdue) return `overdue ${span(-left)}`;
  return left > 0 ? `in ${span(Math.ceil(left))}` : "due now";
}

// lastText is how the last run ended, or for how long the one that is on has run.
export function lastText(t) {
  const s = t.status;
  if (s.error) return { shape: "triangle", text: s.error, warn: true };
  if (!s.last?.state) return { shape: "dot", text: "never ran", warn: false };
  const { shape, warn } = resultOf(s.last.state);
  const lasted = lastedOf(s.last);
  const failed = ["failed", "abandoned"].includes(s.last.state);
  if (s.failures > 0 && failed) return { shape: "cross", text: `${s.last.state} ${s.failures > 1 ? `${s.failures}×` : ""} ${s.last.error}`.replace(/\s+/g, " ").trim(), warn: true };
  const before = s.failures > 0 ? `, failed ${s.failures}× before` : "";
  if (runsFor(s)) return { shape, text: `running for ${runsFor(s)}${before}`, warn: s.failures > 0 };
  if (before) return { shape, text: s.last.state + before, warn: true };
  if (s.last.state === "succeeded") return { shape, text: Number.isFinite(lasted) ? took(lasted) : "succeeded", warn };
  return { shape, text: s.last.state, warn };
}

// runsFor is for how long the run has been on that is on; "": that is not known, since whoever began
// it does not lead any more.
export function runsFor(s) {
  const leads = s.running && state.snapshot.roles.some((r) => r.role === s.role && r.leader?.token === s.last?.token);
  const started = leads && s.last.state === "running" ? seconds(s.last.started) : NaN;
  return Number.isFinite(started) ? span(now() - started) : "";
}

export const lastedOf = (run) => seconds(run.finished) - seconds(run.started);

// plot draws a bar a run, the oldest to the left. A run that failed is a bar with a cross on it.
export function plot(box, runs) {
  const key = runs.map((r) => r.id + r.state).join(" ");
  if (box.dataset.drawn === key) return;
  box.dataset.drawn = key;
  const shown = runs.slice(0, plotted).reverse();
  if (shown.length === 0) {
    box.replaceChildren();
    return;
  }
  const longest = Math.max(...shown.map(lastedOf).filter(Number.isFinite), 1e-3);
  const bars = shown.flatMap((run, n) => {
    const x = (plotted - shown.length + n) * 4;
    const height = Number.isFinite(lastedOf(run)) ? Math.max(1.5, (lastedOf(run) / longest) * 14) : 1.5;
    if (!resultOf(run.state).warn) return [svg("rect", { x, y: 20 - height, width: 3, height, rx: 0.5 })];
    return [svg("rect", { class: "failed", x, y: 20 - height, width: 3, height, rx: 0.5 }), svg("path", { class: "failed", d: `M${x - 0.2} 1.2l3.4 3.4m0-3.4l-3.4 3.4` })];
  });
  box.replaceChildren(svg("svg", { viewBox: `0 0 ${plotted * 4} 20`, class: "bars", role: "img", "aria-label": plotText(shown) }, ...bars));
}

function plotText(runs) {
  const failed = runs.filter((r) => resultOf(r.state).warn).length;
  const lasted = runs.map(lastedOf).filter(Number.isFinite).sort((a, b) => a - b);
  return `last ${count(runs.length, "run")}, ${failed} failed${lasted.length > 0 ? `, half took ${took(lasted[Math.floor(lasted.length / 2)])} or less` : ""}`;
}
