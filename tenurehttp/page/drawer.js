// The drawer: all that is known of an instance, a task or a term. The fragment of the address names it.
import { el, icon, keyed, put, show } from "./dom.js";
import { age, asker, get, now, state } from "./source.js";
import { clock, full, fullIn, resultOf, roleName, seconds, span, stateOf, took } from "./words.js";
import { instanceLink, parse, taskLink, termLink } from "./links.js";
import { inWords } from "./schedule.js";
import { endOf, lanesOf } from "./terms.js";
import { lastedOf, nextText, plot, runsFor } from "./tasks.js";
import { loadOf } from "./instances.js";
import { buttons } from "./actions.js";

const runsShown = 100;
const termsShown = 20;
const heldFor = 15000; // for which what somebody has in hand stays as it is, in milliseconds

let open = null; // what is shown
let extra = {}; // what was read for it
let before = null; // where the focus was
let drawn = "";
let held = 0; // since when what is shown stays, though it should say something else; 0: it should not
let pressed = false; // a button of the pointer is down in the drawer: what is below it must stay until it is up

export function startDrawer(drawer) {
  drawer.querySelector(".close").addEventListener("click", close);
  drawer.addEventListener("pointerdown", () => { pressed = true; });
  for (const over of ["pointerup", "pointercancel"]) addEventListener(over, () => { pressed = false; });
  addEventListener("hashchange", () => follow(drawer));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && open && !document.querySelector("dialog[open]")) close();
  });
  follow(drawer);
}

function close() {
  history.pushState(null, "", location.pathname + location.search);
  follow(document.getElementById("drawer"));
}

function follow(drawer) {
  const named = parse(location.hash);
  if (!named && !open) return;
  if (named && !open) before = document.activeElement;
  open = named;
  extra = {};
  drawn = "";
  show(drawer, Boolean(named));
  document.body.classList.toggle("drawn", Boolean(named));
  if (named) {
    drawDrawer(drawer);
    read(drawer, named);
    drawer.scrollTop = 0;
    drawer.focus({ preventScroll: true });
  } else {
    if (before?.isConnected) before.focus({ preventScroll: true });
    before = null;
  }
}

let readAt = 0; // when the snapshot was received with which what is open was read
let reads = 0;
let taken = 0; // the last read whose answer is shown: one that was asked for earlier may come later

// read asks for what the snapshot does not have.
async function read(drawer, what) {
  const path = what.kind === "instance" ? `instances/${encodeURIComponent(what.name)}` : what.kind === "task" ? `tasks/${encodeURIComponent(what.name)}?limit=${runsShown}` : "";
  readAt = state.received;
  if (!path) return;
  const got = {};
  const mine = ++reads;
  const by = asker();
  try {
    Object.assign(got, await get(path));
  } catch (error) {
    got.error = error.message;
  }
  if (open !== what || mine < taken || by !== asker()) return;
  taken = mine;
  extra = got;
  drawDrawer(drawer);
}

// drawDrawer draws what is open. What it shows is made anew only if it says something else.
export function drawDrawer(drawer) {
  if (!open || !state.snapshot) return;
  if (readAt !== state.received) read(drawer, open);
  const { title, key, parts } = { instance: instanceParts, task: taskParts, term: termParts }[open.kind]();
  put(drawer.querySelector("h2"), title);
  const text = JSON.stringify(key);
  const body = drawer.querySelector(".body");
  if (text === drawn) {
    held = 0;
  } else if (drawn === "" || !inHand(body) || performance.now() - (held ||= performance.now()) > heldFor) {
    held = 0;
    drawn = text;
    const focused = body.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const unfolded = new Set([...body.querySelectorAll("details[open]")].map((d) => d.dataset.run));
    body.replaceChildren(...parts().filter(Boolean));
    for (const d of body.querySelectorAll("details")) d.open = unfolded.has(d.dataset.run);
    if (focused) [...body.querySelectorAll("a, button, summary")].find((node) => nameOf(node) === focused)?.focus({ preventScroll: true });
  }
  for (const node of body.querySelectorAll("[data-live]")) put(node, lives[node.dataset.live]?.() ?? "");
}

// nameOf tells what can have the focus in the drawer apart, also after it was made anew.
const nameOf = (node) => node.dataset.action ?? node.getAttribute("href") ?? node.parentElement.dataset.run;

// inHand says that somebody is about to click, or has selected a text: both would be lost.
function inHand(body) {
  const selection = getSelection();
  return pressed || (!selection.isCollapsed && body.contains(selection.anchorNode));
}

// lives are the texts that change each second.
const lives = {
  beat: () => (extra.instance ? `${span(extra.instance.age_seconds + age())} ago` : ""),
  next: () => { const t = taskOf(open.name); return t ? nextText(t.status) : ""; },
  running: () => { const t = taskOf(open.name); return t ? runsFor(t.status) : ""; },
  ...Object.fromEntries([0, 1, 2, 3, 4].map((i) => [`slot${i}`, () => { const left = seconds(extra.upcoming?.[i]) - now(); return left > 0 ? span(Math.ceil(left)) : "due"; }])),
};

// facts is a list of names and values; a value that is not known is left out.
function facts(...pairs) {
  return el("dl", {}, ...pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null && value !== false)
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

const live = (name) => el("span", { "data-live": name });
const heading = (text) => el("h3", {}, text);

function instanceParts() {
  const i = extra.instance ?? state.snapshot.instances.items.find((one) => one.instance_id === open.name);
  if (!i) return { title: open.name, key: ["instance", open.name, extra.error ?? ""], parts: () => [el("p", {}, extra.error ?? "Reading …")] };
  extra.instance = i;
  const { age_seconds: _, last_heartbeat: __, ...stable } = i;
  const terms = [...state.terms.values()].filter((t) => t.instance_id === i.instance_id).sort((a, b) => b.token - a.token);
  const runs = state.snapshot.tasks.flatMap((t) => t.runs).filter((r) => r.instance_id === i.instance_id).sort((a, b) => seconds(b.started) - seconds(a.started)).slice(0, termsShown);
  const led = state.snapshot.roles.filter((r) => r.leader?.instance_id === i.instance_id).map((r) => r.role);
  return {
    title: i.instance_id,
    key: ["instance", stable, terms.map((t) => [t.token, t.ended]), runs.map((r) => r.id + r.state), led, state.snapshot.actions],
    parts: () => [
      facts(["State", stateWord(i.state)], ["Leads", led.map(roleName).join(", ")], ["Last heartbeat", live("beat")], ["Started", full(seconds(i.started_at))], ["Version", i.version],
        ["Address", i.address], ["Host", i.host], ["Ports", pairs(i.ports)], ["Candidate of", (i.roles ?? []).map(roleName).join(", ")], ["Capabilities", (i.capabilities ?? []).join(", ")],
        ["Load", i.load && loadLine(i.load)], ["Workers", i.worker_count > 0 && String(i.worker_count)], ["Worker ID", i.worker_id > 0 && String(i.worker_id)], ["Incarnation", i.incarnation]),
      buttons([i.state === "draining" ? "undrain" : "drain", "remove"], { instance: i, led }),
      ...metadata(i.metadata), heading("Terms held"), termList(terms.slice(0, termsShown)), heading("Tasks run"), runList(runs, true),
    ],
  };
}

const stateWord = (word) => el("span", { class: stateOf(word).warn ? "state warn" : "state" }, icon(stateOf(word).shape), ` ${word}`);
const pairs = (object) => Object.entries(object ?? {}).map(([k, v]) => `${k} ${v}`).join(", ");

function loadLine(load) {
  return [`cpu ${Math.round((load.cpu ?? 0) * 100)} %`, `memory ${Math.round((load.memory ?? 0) * 100)} %`, `${load.jobs ?? 0} jobs`, `${load.connections ?? 0} connections`].join(", ");
}

function metadata(values) {
  const all = Object.entries(values ?? {});
  if (all.length === 0) return [];
  return [heading("Metadata, by its own word"), facts(...all.map(([name, value]) => [name, String(value)]))];
}

function termList(terms) {
  if (terms.length === 0) return el("p", { class: "quiet" }, "None that is known.");
  const known = new Map(lanesOf().flatMap((l) => l.terms).map((t) => [`${t.role}/${t.token}`, t]));
  return el("ul", { class: "plainlist" }, ...terms.map((term) => {
    const t = known.get(`${term.role}/${term.token}`);
    const when = t ? `${clock(t.from, now())}, ${t.current ? "goes on" : `${took(t.to - t.from)}, ${endOf(t)}`}` : "";
    return el("li", {}, el("a", { href: termLink(term.role, term.token) }, roleName(term.role)), ` ${when}`);
  }));
}

function runList(runs, named) {
  if (runs.length === 0) return el("p", { class: "quiet" }, "None that is known.");
  return el("ul", { class: "plainlist runs" }, ...runs.map((r) => {
    const { shape, warn } = resultOf(r.state);
    const lasted = lastedOf(r);
    const words = [clock(seconds(r.started), now()), r.state, Number.isFinite(lasted) ? took(lasted) : "", r.attempt > 1 ? `attempt ${r.attempt}` : "", r.trigger ? "triggered" : ""].filter(Boolean).join(", ");
    return el("li", { class: warn ? "warn" : "" }, el("span", {}, icon(shape), " ", named ? el("a", { href: taskLink(r.task) }, r.task) : el("a", { href: instanceLink(r.instance_id) }, r.instance_id || "unknown"), ` ${words}`),
      r.error ? errorOf(r) : null);
  }));
}

// errorOf is an error; of one with a stack the first line, and the stack on demand.
function errorOf(run) {
  const [first, ...rest] = run.error.trimEnd().split("\n");
  if (rest.length === 0) return el("pre", {}, first);
  return el("div", {}, el("pre", {}, first), el("details", { "data-run": run.id }, el("summary", {}, "The whole error, with its stack"), el("pre", {}, rest.join("\n"))));
}

// slotList are the next slots: by the clock of the schedule's zone, and by the reader's.
function slotList(slots, zone) {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const there = zone || "UTC";
  return el("table", { class: "slots" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, there), here === there ? null : el("th", { scope: "col" }, `here, ${here}`), el("th", { scope: "col" }, "in"))),
    el("tbody", {}, ...slots.map((slot, i) => el("tr", {}, el("td", {}, fullIn(seconds(slot), there)), here === there ? null : el("td", {}, full(seconds(slot))), el("td", { "data-live": `slot${i}` })))));
}

const taskOf = (name) => state.snapshot.tasks.find((t) => t.status.name === name);

function taskParts() {
  const t = taskOf(open.name);
  if (!t) return { title: open.name, key: ["task", open.name], parts: () => [el("p", {}, "There is no record of this task.")] };
  const s = t.status;
  const runs = extra.runs ?? t.runs;
  const upcoming = extra.upcoming ?? (s.next ? [s.next] : []);
  const words = inWords(s.schedule);
  return {
    title: s.name,
    key: ["task", s, runsFor(s) !== "", runs.map((r) => r.id + r.state), extra.upcoming, extra.zone, state.snapshot.actions],
    parts: () => {
      const bars = el("span", { class: "plot wide" });
      plot(bars, runs);
      return [
        facts(["Next", live("next")], ["Running", runsFor(s) && runOn(s.last)], ["Schedule", words || s.schedule || "not known"], ["As written", words && s.schedule],
          ["Role", roleName(s.role)], ["Last success", s.last_success && full(seconds(s.last_success))], ["Failed since then", s.failures > 0 && `${s.failures}×`], ["Slots passed over", s.skipped > 0 && String(s.skipped)],
          ["Paused", s.paused && `by ${s.pause?.by || "somebody"}, ${clock(seconds(s.pause?.at), now())}${s.pause?.reason ? `: ${s.pause.reason}` : ""}`],
          ["Registered here", s.known ? "yes" : "no"], ["Stands still", s.error && el("span", { class: "warn" }, s.error)]),
        buttons([s.paused ? "resume" : "pause", "trigger", s.running && "cancel", !s.known && "forget"].filter(Boolean), { task: s }),
        upcoming.length > 0 && heading(upcoming.length > 1 ? `The next ${upcoming.length} times` : "The next time"), upcoming.length > 0 && slotList(upcoming, extra.zone),
        upcoming.length > 0 && s.paused && el("p", { class: "quiet" }, "As long as it is paused, these pass without a run."),
        heading("How long the last runs took"), bars, heading("Runs"), runList(runs, false),
      ];
    },
  };
}

// runOn says where a run is on, and since when.
function runOn(run) {
  const since = `, since ${clock(seconds(run.started), now())}${run.attempt > 1 ? `, attempt ${run.attempt}` : ""}${run.trigger ? ", triggered" : ""}`;
  return el("span", {}, "for ", live("running"), " on ", el("a", { href: instanceLink(run.instance_id) }, run.instance_id || "unknown"), since);
}

function termParts() {
  const lane = lanesOf().find((l) => l.role === open.role);
  const term = lane?.terms.find((t) => t.token === open.token);
  const title = `Term of ${roleName(open.role)}`;
  if (!term) return { title, key: ["term", open], parts: () => [el("p", {}, "This term is not among those that are known.")] };
  const role = state.snapshot.roles.find((r) => r.role === term.role);
  const at = lane.terms.indexOf(term);
  const neighbours = [lane.terms[at - 1], lane.terms[at + 1]];
  const ended = !term.current && !role?.leader && at === lane.terms.length - 1; // nobody leads the role since
  const promises = term.current && role?.guarantees?.lease_ttl_seconds > 0 ? role.guarantees : null; // who stands alone has no lease
  const { to: _, ...stable } = term;
  return {
    title,
    key: ["term", stable, ended, neighbours.map((n) => n?.token), state.snapshot.actions],
    parts: () => [
      facts(["Leader", term.instance_id ? el("a", { href: instanceLink(term.instance_id) }, term.instance_id) : "unknown"], ["Token", String(term.token)], ["Began", full(term.from)],
        ["Ended", term.current ? "" : full(term.to)], ["Lasted", term.current ? "" : took(term.to - term.from)], ["End", endOf(term)], ["Nobody led before for", term.gap_seconds > 0 && took(term.gap_seconds)],
        ["Address", term.current && role?.leader?.address]),
      term.current && buttons(["transfer", "resign"], { role: term.role, leader: term.instance_id, token: term.token }),
      ended && buttons(["forget"], { role: term.role }),
      promises && heading("What it promises"),
      promises && facts(["Lease", took(promises.lease_ttl_seconds)], ["After a crash another leads within", took(promises.crash_failover_seconds)], ["It bears an outage of Redis of", took(promises.outage_tolerance_seconds)]),
      heading("Before and after"),
      el("ul", { class: "plainlist" }, ...neighbours.map((n, i) => n && el("li", {}, `${i === 0 ? "before: " : "after: "}`, el("a", { href: termLink(n.role, n.token) }, n.instance_id || "unknown"), ` from ${clock(n.from, now())}`))),
    ],
  };
}
