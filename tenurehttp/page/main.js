// Draws the page when something is known anew, and each second, since times go on.
import { attribute, el, icon, keyed, mark, put, show } from "./dom.js";
import { age, ask, challenge, now, signIn, signOut, soon, start, state } from "./source.js";
import { clock, count, span } from "./words.js";
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
    document.title = [s.namespace, document.hidden ? "" : leading(s), "tenure"].filter(Boolean).join(" · "); // a tab that is hidden does not read on
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
  drawSignIn();
  state.cost = performance.now() - began;
  root.dataset.cost = state.cost.toFixed(2); // for those who measure
  root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
}

// leading says in a word whether all roles are led. One of which that is not known is not listed.
function leading(s) {
  if (state.lost || state.problem || s.stale) return "leader not known";
  if (!s.roles.every((r) => r.leader)) return "no leader";
  if ((s.unread ?? []).some((u) => u.part === "roles" && !s.roles.some((r) => r.role === u.name))) return "leader not known";
  return s.truncated ? "led, as far as is shown" : "led";
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
  if (state.problem?.status === 0) return `What stands before the server of this page answers in its place: perhaps you must sign in there again. Load this page anew.${state.snapshot ? ` Last seen ${span(age())} ago.` : ""}`;
  if (state.problem?.status === 401) return state.signedIn ? `The server does not take these credentials (any more): ${state.problem.text}. Sign in again to see this cluster.` : "Sign in to see this cluster.";
  if (state.problem?.status === 403) return `The server refuses to show you this cluster: ${state.problem.text}.${state.signedIn ? " Sign out, and in as somebody who may read." : ""}`;
  if (state.problem && !state.snapshot) return `There is nothing to show yet: ${state.problem.text}.`;
  if (state.problem) return `The server of this page answers with an error: ${state.problem.text}. Last seen ${span(age())} ago.`;
  if (!stale) return "";
  const ago = state.snapshot.redis.answered_seconds_ago;
  const since = ago === null ? "" : ` since ${clock(now() - (age() - state.snapshot.age_seconds) - ago, now())}`;
  return `Redis gives no usable answer${since}${state.snapshot.error ? `: ${state.snapshot.error}` : ""}. What you see is the last snapshot, ${span(age())} old.`;
}

// drawCaller says who asks, and offers to sign in if somebody may do more.
function drawCaller(s) {
  show(byID("caller"), s.caller !== "");
  put(byID("caller"), s.caller ? `as ${s.caller}` : "");
}

function drawAttention(s) {
  // Whether a role is led is what its band says, in larger type.
  const found = (s.status.problems ?? []).filter((text) => !text.startsWith("nobody leads"))
    .map((text) => ({ text: text.replace(/^(\d+) (?=drifted|down|lost|active|were)/, (_, n) => `${count(Number(n), "instance")} `) }));
  if (s.truncated) found.unshift({ text: "not all is shown: there are more roles, instances or tasks than the server of this page reads" });
  for (const t of s.tasks) {
    if (t.status.overdue) found.push({ text: `task ${t.status.name} is overdue`, href: taskLink(t.status.name) });
    else if (failing(t)) found.push({ text: t.status.failures > 0 ? `task ${t.status.name} failed ${count(t.status.failures, "time")} in a row` : `task ${t.status.name} stands still`, href: taskLink(t.status.name) });
  }
  const shown = found.slice(0, attentionShown);
  if (found.length > attentionShown) shown.push({ text: `and ${found.length - attentionShown} more` });
  show(byID("attention"), shown.length > 0);
  keyed(byID("attention").firstElementChild, shown, (f) => f.text + (f.href ?? ""), (f) => el("li", {}, icon("triangle"), f.href ? el("a", { href: f.href }, f.text) : el("span", {}, f.text)));
}

let asked = false; // the page has asked by itself

// drawSignIn shows the buttons: to sign in if there is somebody who may do more, or see anything.
function drawSignIn() {
  const wall = "wall" in root.dataset;
  const unknown = state.problem?.status === 401;
  show(byID("signin"), !wall && (unknown || (!state.signedIn && state.mayAsk && state.snapshot?.actions.length === 0)));
  show(byID("signout"), !wall && state.signedIn);
  if (unknown && !state.signedIn && !asked && !wall && !byID("ask").open) {
    asked = true;
    signInDialog(state.challenge);
  }
}

// askWho finds out what the server wants to see, and asks for it.
async function askWho() {
  if (state.challenge) return signInDialog(state.challenge);
  let answer;
  try {
    answer = await ask("trigger", { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
  } catch (error) {
    return tell("No answer", `${error.message}.`);
  }
  if (answer.status === 401) return signInDialog(challenge(answer));
  if (answer.status === 403) return refused(await answer.json().catch(() => ({})));
  return soon();
}

// refused says why there is no sign-in.
function refused({ code, detail = "HTTP 403" }) {
  tell(code === "cross_origin" ? "Nobody can act from this page" : "You may look, and do nothing else", `${detail}.`);
}

// signInDialog asks for a token, or for a name and a password.
function signInDialog(wanted) {
  const scheme = wanted.split(" ")[0].toLowerCase();
  if (scheme !== "bearer" && scheme !== "basic") return tell("This page cannot sign in", `The server wants to see "${wanted || "nothing that it names"}". Sign in there another way, and load this page again.`);
  const dialog = byID("ask");
  const name = scheme === "basic" && el("input", { id: "ask-name", autocomplete: "username", required: true });
  const secret = el("input", { id: "ask-field", type: "password", autocomplete: "current-password", required: true });
  const outcome = el("p", { class: "outcome warn", role: "alert", hidden: true });
  const clear = location.protocol === "http:" && !["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  let tries = 0;
  const form = el("form", { method: "dialog" }, el("h2", { id: "ask-title" }, "Sign in"),
    name && el("label", { for: "ask-name" }, "Your name"), name, el("label", { for: "ask-field" }, scheme === "basic" ? "Your password" : "Your token"), secret,
    el("p", { class: "quiet" }, `It is kept while this tab is open, and stands in no address.${clear ? " The connection to this server is not encrypted: others on its way can read what you type here." : ""}`), outcome,
    el("p", { class: "buttons" }, el("button", { type: "submit" }, "Sign in"), el("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Leave it")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const tried = scheme === "basic" ? `Basic ${base64(`${name.value}:${secret.value}`)}` : `Bearer ${secret.value.trim()}`;
    const mine = ++tries;
    const counts = () => mine === tries && dialog.open && form.isConnected; // not if it was left, or something else was tried
    const why = await signIn(tried, counts);
    if (!counts()) return;
    if (!why) return dialog.close();
    outcome.hidden = false;
    put(outcome, why);
    secret.select();
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}

const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

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
byID("signout").addEventListener("click", signOut);
byID("terms").querySelector("details").addEventListener("toggle", draw);
start(draw);
setInterval(() => {
  if (!document.hidden) draw();
}, 1000);
