// The words and units of the page: those of the command line and of the documentation.

// span is a length of time in at most two units.
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds + 1e-9));
  if (!Number.isFinite(s)) return "unknown";
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m${s % 60 ? ` ${s % 60} s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${Math.floor((s % 3600) / 60) ? ` ${Math.floor((s % 3600) / 60)} m` : ""}`;
  return `${Math.floor(s / 86400)} d${Math.floor((s % 86400) / 3600) ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}

// took is how long something took, which may have been short.
export function took(seconds) {
  if (!(seconds >= 0)) return "unknown";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return span(seconds);
}

// seconds reads a time of the API, or returns NaN.
export function seconds(text) {
  return text ? Date.parse(text) / 1000 : NaN;
}

const timeFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const shortFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const dateFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const fullFormat = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

// clock is a time of day in the reader's zone, with the date if it is another day, and with the year
// if it is another year.
export function clock(at, now, short = false) {
  if (!Number.isFinite(at)) return "unknown";
  const time = (short ? shortFormat : timeFormat).format(at * 1000);
  const date = dateFormat.format(at * 1000);
  if (date === dateFormat.format(now * 1000)) return time;
  const sameYear = new Date(at * 1000).getFullYear() === new Date(now * 1000).getFullYear();
  return `${sameYear ? dayFormat.format(at * 1000) : date} ${time}`;
}

// full is a time with date and zone.
export function full(at) {
  return Number.isFinite(at) ? fullFormat.format(at * 1000) : "unknown";
}

// fullIn is a time with date and zone, by the clock of a zone; one that the browser does not know is
// UTC.
export function fullIn(at, zone) {
  if (!Number.isFinite(at)) return "unknown";
  try {
    return new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long", timeZone: zone }).format(at * 1000);
  } catch {
    return `${new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium", timeZone: "UTC" }).format(at * 1000)} UTC`;
  }
}

// roleName is how a role is called, as the metrics do: the default one has no name of its own.
export const roleName = (role) => (role === "default" ? "role:default" : role || "default");

// count is a number with its noun.
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

// waits say why nobody leads: what holds for all candidates, and what holds for the process that
// answers.
export const waits = {
  empty: "Redis knows nothing of this role yet, so leaders are asked to renew first",
  young: "Redis is young: a leader may hold a lease from before its restart",
  hold: "Redis has restarted, failed over or lost data: a leader may hold a lease that it forgot",
  vanished: "the lease vanished before its end, and may be held until then",
  reserved: "the last leader has left the lease to another instance for a moment",
  yield: "a better candidate asks, and comes first for a moment",
  silence: "Redis gave no usable answer for as long as a lease lasts",
  lease: "the last lease may still be held",
  foreign: "another program holds the lease",
};
export const ownWaits = {
  penalty: "stands back after a term of its own",
  unhealthy: "fails its health check",
  ineligible: "may not lead",
  draining: "drains",
};

// ends say why a term ended.
export const ends = {
  expired: "expired: no renewal in time",
  lost: "lost: Redis refused a renewal",
  resigned: "resigned",
  failed: "failed: its work or its health check",
  stopped: "its process stopped",
  done: "its work is done",
  transferred: "transferred",
  lapsed: "lapsed: died or cut off",
  unheard: "unheard: the candidate had no answer",
  forgotten: "forgotten: Redis has lost it",
};

// states are the shapes of the states of instances, and whether somebody should look.
export const states = {
  active: { shape: "full", warn: false },
  joining: { shape: "ring", warn: false },
  draining: { shape: "half", warn: false },
  drifted: { shape: "dashed", warn: true },
  down: { shape: "cross", warn: true },
  unknown: { shape: "triangle", warn: true },
};
export const stateOf = (state) => states[state] ?? states.unknown;

// results are those of the states of runs.
export const results = {
  running: { shape: "play", warn: false },
  succeeded: { shape: "check", warn: false },
  failed: { shape: "cross", warn: true },
  abandoned: { shape: "cross", warn: true },
  interrupted: { shape: "half", warn: false },
  canceled: { shape: "ring", warn: false },
};
export const resultOf = (state) => results[state] ?? { shape: "dot", warn: false };

// changeText says what a change is.
export function changeText(c) {
  const who = c.instance_id || "an instance";
  switch (c.type) {
    case "joined": return `${who} joined`;
    case "active": return `${who} is active`;
    case "draining": return `${who} drains`;
    case "drifted": return `${who} drifted: no heartbeat`;
    case "recovered": return `${who} recovered`;
    case "down": return `${who} was silent for too long and was removed`;
    case "left": return `${who} left`;
    case "held": return `${count(c.count ?? 0, "instance")} fell silent at once: the rest is held`;
    case "elected": return `${who} leads ${roleName(c.role)}`;
    case "ended": return `the term of ${c.instance_id ? `${c.instance_id} for ` : ""}${roleName(c.role)} ended: ${ends[c.reason] ?? c.reason ?? "unknown"}`;
    default: return c.type;
  }
}
export const changeWarns = (c) => ["drifted", "down", "held"].includes(c.type) || (c.type === "ended" && ["expired", "lost", "failed", "lapsed", "forgotten"].includes(c.reason));
