// What may be asked for: each asks once, in words that say the effect, and shows how it ended.
import { el, icon } from "./dom.js";
import { ask, get, problemOf, soon, state } from "./source.js";
import { list } from "./schedule.js";
import { roleName, seconds, span } from "./words.js";

const looksEach = 700; // at a command that is on, in milliseconds
const looksFor = 11 * 60 * 1000;
const unheardFor = 3; // looks without an answer, before that is said

// kinds are the actions: the label of the button, the question, the effect, and the body.
const kinds = {
  drain: {
    label: "Drain", title: (c) => `Drain ${c.instance.instance_id}?`,
    effect: (c) => `${moved(c.led)} It stays up and takes no work until the drain is ended.`,
    body: (c) => ({ instance_id: c.instance.instance_id }), gone: leadsMore,
  },
  undrain: {
    label: "End the drain", title: (c) => `End the drain of ${c.instance.instance_id}?`, effect: () => "It takes work again and may lead again.",
    body: (c) => ({ instance_id: c.instance.instance_id }),
  },
  remove: {
    label: "Remove the record", title: (c) => `Remove the record of ${c.instance.instance_id}?`,
    effect: () => "For one that is gone for good. If its process lives, it registers again with its next heartbeat.",
    body: (c) => ({ instance_id: c.instance.instance_id }),
  },
  resign: {
    label: "Resign", title: (c) => `Have ${c.leader || "the leader"} give up ${roleName(c.role)}?`,
    effect: () => "Its work is cancelled and awaited; running tasks may finish first. Then another candidate leads. It stands back for a moment, and leads again if there is no other.",
    body: (c) => ({ role: c.role, ...term(c) }), gone: anotherTerm,
  },
  transfer: {
    label: "Transfer", title: (c) => `Hand ${roleName(c.role)} over?`,
    effect: (c) => `${c.leader || "The leader"} offers the lead first. If nobody takes the offer, its term goes on.`,
    field: { name: "instance_id", label: "To which instance; empty: the best candidate", list: () => state.snapshot.instances.items.filter((i) => i.state === "active").map((i) => i.instance_id) },
    body: (c, value) => ({ role: c.role, instance_id: value, ...term(c) }), gone: anotherTerm,
  },
  pause: {
    label: "Pause", title: (c) => `Pause ${c.task.name}?`, effect: () => "Its slots pass without a run until it is resumed. A run that is on goes on.",
    field: { name: "reason", label: "Why, for those who look later" }, body: (c, value) => ({ task: c.task.name, reason: value }),
  },
  resume: {
    label: "Resume", title: (c) => `Resume ${c.task.name}?`, effect: () => "It runs again from its next slot on.", body: (c) => ({ task: c.task.name }),
  },
  trigger: {
    label: "Run now", title: (c) => `Run ${c.task.name} once, now?`,
    effect: (c) => `${leaderOf(c.task.role) || `The leader of ${roleName(c.task.role)}`} runs it once, between its slots${c.task.running ? ", after the run that is on" : ""}. Its slots stay as they are${c.task.paused ? ", and it stays paused" : ""}.`,
    field: { name: "args", label: "Arguments, one a line; empty: none", lines: true },
    body: (c, value) => ({ task: c.task.name, ...(value && { args: value.split("\n").map((line) => line.trim()).filter(Boolean) }) }),
    done: "It is left for the leader; its run shows in the drawer",
  },
  cancel: {
    label: "Cancel the run", title: (c) => `Cancel the run of ${c.task.name}?`,
    effect: (c) => `The context of the run${c.task.last?.instance_id ? ` on ${c.task.last.instance_id}` : ""} ends, and it is not tried again. The next slot is not affected.`, body: (c) => ({ task: c.task.name }),
    gone: anotherRun,
  },
  forget: {
    label: "Forget", title: (c) => `Forget ${c.task ? c.task.name : roleName(c.role)}?`,
    effect: (c) => c.task ? "Removes the record and the history of a task that nobody registers any more."
      : "For a role that no program has any more: removes the history of its terms, and its tasks with their histories.",
    body: (c) => c.task ? { task: c.task.name } : { role: c.role },
  },
};

function moved(led) {
  if (led.length === 0) return "It leads nothing, so nothing moves.";
  return `It leads ${list(led.map(roleName))}; ${led.length === 1 ? "that moves" : led.length === 2 ? "both move" : "all move"}.`;
}

// leaderOf is who leads a role; "": nobody.
const leaderOf = (role) => state.snapshot.roles.find((r) => r.role === (role ?? ""))?.leader?.instance_id ?? "";

// term is the term that the dialog was opened for: the server refuses the action in another one.
const term = (c) => (Number.isSafeInteger(c.token) && c.token > 0 ? { token: c.token } : {});

// anotherTerm says who leads, if it is not in the term that the dialog was opened for; "": it is, or
// that is not known.
function anotherTerm(c) {
  const role = state.snapshot.roles.find((r) => r.role === c.role);
  if (!role || !c.token || role.leader?.token === c.token) return "";
  return `${role.leader ? role.leader.instance_id || "another program" : "nobody"} leads ${roleName(c.role)} now`;
}

// leadsMore says so if an instance leads what it did not when the dialog was opened: more would move
// than was said; "": it does not.
function leadsMore(c) {
  const more = state.snapshot.roles.filter((r) => r.leader?.instance_id === c.instance.instance_id && !c.led.includes(r.role));
  return more.length > 0 ? `${c.instance.instance_id} leads ${list(more.map((r) => roleName(r.role)))} now` : "";
}

// anotherRun says so if another run has begun since the dialog was opened; "": none has, or that is
// not known.
function anotherRun(c) {
  const task = state.snapshot.tasks.find((t) => t.status.name === c.task.name)?.status;
  if (!task || task.last?.id === c.task.last?.id) return ""; // it may wait for its next attempt
  return `that run has ended${task.running ? ", and another one is on" : ""}`;
}

// buttons are those of the actions that the caller may ask for; null: there are none.
export function buttons(names, context) {
  const may = names.filter((name) => state.snapshot.actions.includes(name) && !("wall" in document.documentElement.dataset));
  if (may.length === 0) return null;
  return el("p", { class: "buttons" }, ...may.map((name) => el("button", { type: "button", "data-action": name, onclick: () => confirm(name, context) }, kinds[name].label)));
}

// confirm asks once, and then shows how the command ended.
function confirm(name, context) {
  const kind = kinds[name];
  const dialog = document.getElementById("ask");
  const from = document.activeElement;
  const input = kind.field && (kind.field.lines ? el("textarea", { id: "ask-field", name: kind.field.name, rows: 3, maxlength: 900, spellcheck: "false" }) : el("input", { id: "ask-field", name: kind.field.name, maxlength: 128, autocomplete: "off", list: kind.field.list ? "ask-list" : null }));
  const choices = kind.field?.list && el("datalist", { id: "ask-list" }, ...kind.field.list().map((value) => el("option", { value })));
  const outcome = el("p", { class: "outcome", role: "status", tabindex: -1, hidden: true });
  const no = el("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Leave it");
  const yes = el("button", { type: "submit" }, kind.label);
  const form = el("form", { method: "dialog" }, el("h2", { id: "ask-title" }, kind.title(context)), el("p", {}, kind.effect(context)),
    kind.field && el("label", { for: "ask-field" }, kind.field.label), input, choices, outcome, el("p", { class: "buttons" }, yes, no));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    yes.remove();
    no.textContent = "Close";
    if (input) input.disabled = true;
    const report = (text, shape, warn) => {
      if (outcome.textContent === ` ${text}`) return;
      outcome.classList.toggle("warn", Boolean(warn));
      outcome.replaceChildren(icon(shape), ` ${text}`);
      if (!outcome.hidden) return; // the focus may be elsewhere by now
      outcome.hidden = false;
      outcome.focus();
    };
    const gone = kind.gone?.(context); // while the dialog was open
    if (gone) report(`Not asked: ${gone}.`, "triangle", true);
    else send(kind, name, kind.body(context, input?.value.trim() ?? ""), report);
  });
  form.addEventListener("keypress", (event) => { // a key that is held since before the question is no answer
    if (event.repeat && event.key === "Enter" && !kind.field?.lines) event.preventDefault();
  });
  dialog.addEventListener("close", () => (from?.isConnected ? from : document.getElementById("drawer")).focus(), { once: true });
  dialog.replaceChildren(form);
  dialog.showModal();
  (input ?? no).focus();
}

async function send(kind, name, body, report) {
  report("Asking …", "ring");
  try {
    const answer = await ask(name, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: AbortSignal.timeout(60000) });
    if (!answer.ok) {
      report(`Refused: ${await problemOf(answer)}`, "cross", true);
      return;
    }
    await follow(kind, await answer.json(), report);
  } catch (error) {
    report(`No answer: ${error.message}. It may have been done all the same: what changed shows below.`, "triangle", true);
  } finally {
    soon();
  }
}

// follow looks what becomes of a command until it has ended.
async function follow(kind, command, report) {
  const until = performance.now() + looksFor;
  let unheard = 0; // looks in a row without an answer: it is looked at again, and may not be listed yet
  while (command.state === "asked" && performance.now() < until) {
    if (unheard < unheardFor) report(`Asked of ${command.instance_id || "the leader"}${command.by ? ` by ${command.by}` : ""}. Waiting for its end.`, "half");
    else report("What became of it is not known: there is no answer. It is asked again.", "triangle", true);
    await new Promise((resolve) => setTimeout(resolve, looksEach));
    try {
      command = (await get(`commands/${encodeURIComponent(command.id)}`)).command;
      unheard = 0;
    } catch {
      unheard++;
    }
  }
  const by = command.by ? ` Asked for by ${command.by}.` : "";
  const lasted = seconds(command.ended) - seconds(command.asked);
  switch (command.state) {
    case "done": return report(`${kind.done ?? "Done"}${lasted >= 1 ? ` after ${span(lasted)}` : ""}.${by}`, "check");
    case "expired": return report(`Nobody took it in time: it is not done any more.${by}`, "triangle", true);
    case "failed": return report(`Failed: ${command.error || "no reason was given"}.${by}`, "cross", true);
    default: return report(unheard > 0 ? `What became of it is not known.${by}` : `It is not over yet.${by}`, "half", unheard > 0);
  }
}
