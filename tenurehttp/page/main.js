// Draws the page when something is known anew, and each second, since times go on.
import { attribute, el, icon, keyed, mark, put, show } from "./dom.js";
import { age, ask, now, problemOf, signIn, soon, start, state } from "./source.js";
import { clock, count, seconds, span } from "./words.js";
import { taskLink } from "./links.js";
import { drawRoles } from "./roles.js";
import { drawTerms } from "./terms.js";
import { drawInstances, startInstances } from "./instances.js";
import { drawTasks, failing, startTasks } from "./tasks.js";
import { drawChanges } from "./changes.js";
import { drawDrawer, startDrawer } from "./drawer.js";

const byID = (id) => document.getElementById(id);
const root = document.documentElement;
const attentionShown = 5;

function draw() {
  const began = performance.now();
  drawState();
  if (state.snapshot) {
    const s = state.snapshot;
    put(byID("name"), s.namespace);
    document.title = `${s.namespace} · ${s.roles.every((r) => r.leader) ? "led" : "no leader"} · tenure`;
    put(byID("redis"), s.redis.address ? `redis at ${s.redis.address}` : "");
    drawCaller(s);
    drawAttention(s);
    drawRoles(byID("roles"), (text) => put(byID("said"), text));
    drawTerms(byID("terms"));
    drawInstances(byID("instances"));
    drawTasks(byID("tasks"));
    drawChanges(byID("changes"));
    drawDrawer(byID("drawer"));
  }
  state.cost = performance.now() - began;
  root.dataset.cost = state.cost.toFixed(2); // for those who measure
  root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
}

// drawState says how old what is shown is, and greys the page if it is too old.
function drawState() {
  const lost = state.lost > 0;
  const stale = Boolean(state.snapshot?.stale);
  const none = !state.snapshot;
  root.classList.toggle("stale", lost || stale || Boolean(state.problem && !none));
  const old = span(age());
  const words = none ? (lost ? "no connection" : state.problem ? "no answer" : "connecting") : lost || state.problem ? `last seen ${old} ago` : stale ? `stale · ${old} old` : `live · ${age() < 1.5 ? "now" : `${old} ago`}`;
  const live = byID("live");
  put(live.lastElementChild, words);
  mark(live.firstElementChild, none && !lost && !state.problem ? "ring" : lost || stale || state.problem ? "dashed" : "full");
  const text = lostText(lost, stale);
  show(byID("lost"), text !== "");
  put(byID("lost"), text);
  show(byID("main"), !none);
}

function lostText(lost, stale) {
  if (lost) {
    const seen = state.snapshot ? ` Last seen ${span(age())} ago.` : "";
    return `The connection to the server of this page is lost.${seen} It is tried again every other second.`;
  }
  if (state.problem?.status === 401) return "Sign in to see this cluster.";
  if (state.problem && !state.snapshot) return `There is nothing to show yet: ${state.problem.text}.`;
  if (state.problem) return `The server of this page answers with an error: ${state.problem.text}. Last seen ${span(age())} ago.`;
  if (!stale) return "";
  const ago = state.snapshot.redis.answered_seconds_ago;
  const since = ago === null ? "" : ` since ${clock(seconds(state.snapshot.at) + state.snapshot.age_seconds - ago, now())}`;
  return `Redis gives no usable answer${since}${state.snapshot.error ? `: ${state.snapshot.error}` : ""}. What you see is the last snapshot, ${span(age())} old.`;
}

// drawCaller says who asks, and offers to sign in if somebody may do more.
function drawCaller(s) {
  show(byID("caller"), s.caller !== "");
  put(byID("caller"), s.caller ? `as ${s.caller}` : "");
}

function drawAttention(s) {
  // Whether a role is led is what its band says, in larger type.
  const found = (s.status.problems ?? []).filter((text) => text !== "nobody leads")
    .map((text) => ({ text: text.replace(/^(\d+) (?=drifted|down|lost|active|were)/, (_, n) => `${count(Number(n), "instance")} `) }));
  for (const t of s.tasks) {
    if (t.status.overdue) found.push({ text: `task ${t.status.name} is overdue`, href: taskLink(t.status.name) });
    else if (failing(t)) found.push({ text: t.status.failures > 0 ? `task ${t.status.name} failed ${count(t.status.failures, "time")} in a row` : `task ${t.status.name} stands still`, href: taskLink(t.status.name) });
  }
  const shown = found.slice(0, attentionShown);
  if (found.length > attentionShown) shown.push({ text: `and ${found.length - attentionShown} more` });
  show(byID("attention"), shown.length > 0);
  keyed(byID("attention").firstElementChild, shown, (f) => f.text + (f.href ?? ""), (f) => el("li", {}, icon("triangle"), f.href ? el("a", { href: f.href }, f.text) : el("span", {}, f.text)));
}

// drawSignIn shows the button if there is somebody who may do more, or see anything.
function drawSignIn() {
  show(byID("signin"), !("wall" in root.dataset) && (state.problem?.status === 401 || (state.mayAsk && state.snapshot?.actions.length === 0)));
}

// askWho lets the browser ask for a password, or asks for a token itself.
async function askWho() {
  let answer;
  try {
    answer = await ask("trigger", { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
    if (answer.status === 404) answer = await ask("snapshot?limit=0");
  } catch {
    return;
  }
  const challenge = answer.headers.get("WWW-Authenticate") ?? "";
  if (answer.status === 401 && challenge.toLowerCase().startsWith("bearer")) tokenDialog();
  else if (answer.status === 401 || answer.status === 403) tell("You may look, and do nothing else", await problemOf(answer));
  else soon();
}

function tokenDialog() {
  const dialog = byID("ask");
  const input = el("input", { id: "ask-field", type: "password", autocomplete: "current-password", required: true });
  const form = el("form", { method: "dialog" }, el("h2", { id: "ask-title" }, "Sign in"), el("label", { for: "ask-field" }, "Your token. It is kept while this tab is open."), input,
    el("p", { class: "buttons" }, el("button", { type: "submit" }, "Sign in"), el("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Leave it")));
  form.addEventListener("submit", () => signIn(input.value));
  dialog.replaceChildren(form);
  dialog.showModal();
}

function tell(title, text) {
  const dialog = byID("ask");
  dialog.replaceChildren(el("form", { method: "dialog" }, el("h2", { id: "ask-title" }, title), el("p", {}, text), el("p", { class: "buttons" }, el("button", { type: "submit" }, "Close"))));
  dialog.showModal();
}

// The switch goes from the system's colours to light to dark; the choice is kept.
function startTheme() {
  const order = ["system", "light", "dark"];
  const button = byID("theme");
  const shapes = { system: "half", light: "ring", dark: "full" };
  const say = () => {
    const theme = root.dataset.theme ?? "system";
    mark(button, shapes[theme]);
    attribute(button, "aria-label", `Theme: ${theme}`);
    attribute(button, "title", `Theme: ${theme}`);
  };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme ?? "system") + 1) % order.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      if (next === "system") localStorage.removeItem("tenure-theme");
      else localStorage.setItem("tenure-theme", next);
    } catch { /* it holds until the page is left */ }
    say();
  });
  say();
}

startTheme();
startInstances(byID("instances"));
startTasks(byID("tasks"));
startDrawer(byID("drawer"));
byID("signin").addEventListener("click", askWho);
byID("terms").querySelector("details").addEventListener("toggle", draw);
start(() => {
  draw();
  drawSignIn();
});
setInterval(() => {
  if (!document.hidden) draw();
}, 1000);
