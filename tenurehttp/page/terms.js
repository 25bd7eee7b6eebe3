// A lane a role: its terms of the last 24 hours, and the gaps without a leader. The same as a table.
import { attribute, el, keyed, put, show } from "./dom.js";
import { lacks, now, state } from "./source.js";
import { clock, ends, roleName, seconds, span, took } from "./words.js";
import { termLink } from "./links.js";

// The lanes show the shortest of these that has all terms of the last 24 hours.
const windows = [{ length: 900, name: "last 15 minutes" }, { length: 3600, name: "last hour" }, { length: 21600, name: "last 6 hours" }, { length: 86400, name: "last 24 hours" }];
const shortGap = 1; // below that a gap is a hand-over, in seconds
const most = 200; // rows of the table

// lanesOf are the terms of each role, oldest first, with where they begin and end.
export function lanesOf() {
  const byRole = new Map(state.snapshot.roles.map((r) => [r.role, { role: r.role, leader: r.leader, terms: [] }]));
  for (const term of state.terms.values()) byRole.get(term.role)?.terms.push(term);
  for (const lane of byRole.values()) {
    lane.terms.sort((a, b) => a.token - b.token);
    lane.terms = lane.terms.map((term, i) => {
      const current = lane.leader?.token === term.token;
      const next = seconds(lane.terms[i + 1]?.began);
      const ended = seconds(term.ended);
      return { ...term, current, from: seconds(term.began), to: current ? now() : Number.isFinite(ended) ? ended : Number.isFinite(next) ? next : seconds(term.began) };
    }).filter((t) => Number.isFinite(t.from));
  }
  return [...byRole.values()];
}

// gapBefore is for how long nobody led before a term.
const gapBefore = (terms, i) => (i === 0 ? terms[i].gap_seconds ?? 0 : Math.max(0, terms[i].from - terms[i - 1].to));

export function drawTerms(section) {
  const lanes = lanesOf();
  const any = lanes.some((l) => l.terms.length > 0);
  const oldest = Math.min(now(), ...lanes.flatMap((l) => l.terms.filter((t) => t.to > now() - 86400).map((t) => Math.max(t.from, now() - 86400))));
  const frame = windows.find((w) => w.length >= now() - oldest) ?? windows.at(-1);
  const from = now() - frame.length;
  put(section.querySelector(".sum"), any ? frame.name : "");
  keyed(section.querySelector(".lanes"), any ? lanes : [], (l) => l.role, makeLane, (lane, l) => updateLane(lane, l, from, frame.length));
  drawAxis(section.querySelector(".axis"), any ? from : 0, frame.length);
  show(section.querySelector("details"), any);
  show(section.querySelector(".readout"), any);
  const readout = section.querySelector(".readout");
  if (!readout.textContent) put(readout, hint);
  const empty = section.querySelector(".empty");
  show(empty, !any && !lacks("roles"));
  if (!any && !empty.firstChild) empty.append(el("p", {}, "No term has begun yet. Each term of a leader will be a bar here, and each time without one a gap."));
  if (section.querySelector("details").open) drawTable(section.querySelector(".scroll"), lanes);
}

const hint = "Choose a term to see its token, and why it ended.";

function makeLane(l) {
  const bar = el("ul", { class: "lane", "aria-label": `Terms of ${roleName(l.role)}` });
  bar.addEventListener("keydown", walk);
  return el("div", { class: "lane-row" }, el("span", { class: "lane-name" }, roleName(l.role)), bar);
}

// walk moves the focus between the terms of a lane with the arrow keys: it is one stop of the tab key.
function walk(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const links = [...event.currentTarget.querySelectorAll("a")];
  const to = links[links.indexOf(document.activeElement) + step];
  if (!to) return;
  event.preventDefault();
  for (const link of links) link.tabIndex = link === to ? 0 : -1;
  to.focus();
}

function updateLane(row, lane, from, length) {
  const pieces = [];
  const today = new Date(now() * 1000).toDateString();
  lane.terms.forEach((term, i) => {
    if (term.to < from) return;
    const before = gapBefore(lane.terms, i);
    if (i > 0 && before >= shortGap) pieces.push({ key: `gap ${term.token}`, gap: true, from: lane.terms[i - 1].to, to: term.from });
    pieces.push({ key: String(term.token), term, from: term.from, to: term.to, before });
  });
  const newest = lane.terms.at(-1);
  if (newest && !lane.leader && now() - newest.to >= shortGap) pieces.push({ key: "gap now", gap: true, open: true, from: newest.to, to: now() });
  const list = row.lastElementChild;
  keyed(list, pieces, (p) => p.key, makePiece, (item, p) => {
    const start = Math.max(0, (p.from - from) / length);
    const end = Math.min(1, (p.to - from) / length);
    item.style.left = `min(${(start * 100).toFixed(3)}%, 100% - 4px)`;
    item.style.width = `${(Math.max(0, end - start) * 100).toFixed(3)}%`;
    item.classList.toggle("narrow", end - start < 0.06);
    if (p.gap) {
      attribute(item, "title", gapText(p, lane.role));
      put(item.firstElementChild, gapText(p, lane.role));
      return;
    }
    item.classList.toggle("current", p.term.current);
    const says = p.term.current ? "" : [p.from, p.to, p.before, p.term.instance_id, p.term.reason, today].join(); // of thousands the most say what they did
    if (says && item.says === says) return;
    item.says = says;
    const link = item.firstElementChild;
    attribute(link, "href", termLink(p.term.role, p.term.token));
    attribute(link, "aria-label", termText(p.term, p.before));
    put(link, p.term.instance_id || "unknown");
  });
  const links = [...list.querySelectorAll("a")];
  if (links.length > 0 && !links.some((l) => l.tabIndex === 0)) links.at(-1).tabIndex = 0;
}

function makePiece(p) {
  if (p.gap) return el("li", { class: "gap" }, el("span", { class: "unseen" }));
  const link = el("a", { tabindex: -1 });
  const tell = () => put(document.querySelector("#terms .readout"), link.getAttribute("aria-label"));
  const hush = () => put(document.querySelector("#terms .readout"), hint);
  for (const [name, does] of [["mouseenter", tell], ["focus", tell], ["mouseleave", hush], ["blur", hush]]) link.addEventListener(name, does);
  return el("li", { class: "term" }, link);
}

const gapText = (p, role) => `nobody led ${roleName(role)} for ${took(p.to - p.from)}${p.open ? " so far" : ""}, from ${clock(p.from, now())}`;

// termText is all that a term says.
export function termText(term, before) {
  const parts = [`${term.instance_id || "An unknown instance"} ${term.current ? "leads" : "led"} ${roleName(term.role)} ${term.current ? "since" : "from"} ${clock(term.from, now())}`];
  if (!term.current) parts.push(`to ${clock(term.to, now())} (${took(term.to - term.from)})`);
  else parts.push(`(${span(term.to - term.from)})`);
  let text = `${parts.join(" ")}, token ${term.token}`;
  if (!term.current) text += `, ${endOf(term)}`;
  if (before > 0) text += `; nobody led for ${took(before)} before`;
  return text;
}

export const endOf = (term) => (term.current ? "goes on" : ends[term.reason] ?? (term.reason || "end not known"));

function drawAxis(axis, from, length) {
  const steps = from ? [0, 0.25, 0.5, 0.75, 1] : [];
  keyed(axis, steps, (s) => s, () => el("span"), (mark, s) => {
    mark.style.left = `${s * 100}%`;
    put(mark, s === 1 ? "now" : clock(from + s * length, now(), true));
  });
}

function drawTable(box, lanes) {
  const rows = lanes.flatMap((l) => l.terms.map((t, i) => ({ ...t, before: gapBefore(l.terms, i) }))).sort((a, b) => b.from - a.from).slice(0, most);
  if (!box.firstChild) {
    box.append(el("table", {}, el("thead", {}, el("tr", {}, ...["Role", "Leader", "Began", "Lasted", "Ended", "Gap before", "Token"].map((t) => el("th", { scope: "col" }, t)))), el("tbody")));
  }
  keyed(box.querySelector("tbody"), rows, (t) => `${t.role}/${t.token}`, (t) => el("tr", {},
    el("td", {}, roleName(t.role)), el("td", {}, el("a", { href: termLink(t.role, t.token) }, t.instance_id || "unknown")), el("td", {}, clock(t.from, now())),
    el("td"), el("td"), el("td"), el("td", {}, String(t.token))), (row, t) => {
    const cells = row.children;
    put(cells[3], t.current ? span(t.to - t.from) : took(t.to - t.from));
    put(cells[4], endOf(t));
    put(cells[5], t.before > 0 ? took(t.before) : "–");
    cells[5].classList.toggle("warn", t.before >= shortGap);
  });
}
