// Reads the cluster: a snapshot now and then, and at once when the stream of events says that
// something changed. Nothing is asked for while nobody looks.

const base = new URL("api/cluster/", document.baseURI);
const pace = 2000; // between two snapshots, in milliseconds
const soonest = 250; // between two, if changes come fast
const patience = 8000; // for one answer
const silence = 40000; // of a stream, which sends a ping each 15 s
const longAgo = 10; // an answer that is older than what is shown by so many seconds is that of a process that Redis does not answer
const listed = 20; // the most terms of a role that a snapshot has
const asides = 20; // answers in a row that are older than what is shown; then Redis has lost the rest

// state is what is known. Times in it are of performance.now().
export const state = {
  snapshot: null,
  received: 0, // the snapshot
  receivedAt: 0, // likewise, by Date.now()
  offset: 0, // of Redis's clock before this one's, in seconds
  ahead: 0, // of the server's clock before that of Redis
  lost: 0, // since when nothing answers; 0: it does
  problem: null, // why there is no answer that can be shown
  challenge: "", // what the server wants to see of who asks
  mayAsk: false, // there is somebody who may do more than look
  signedIn: false, // this tab has credentials
  terms: new Map(), // all that were seen, by role and token
  cost: 0, // script time of the last update, in milliseconds
};

// query is the part of the instances that is shown.
export const query = { offset: 0, limit: 100, q: "" };

let changed = () => {};
let timer = 0;
let flight = null;
let again = false;
let generation = 0; // of the credentials: an answer to others counts no more
let last = 0;
let slow = 0; // how long the last answer took
let aside = 0; // answers that were left aside since the last one that was shown
let credentials = ""; // the header Authorization. They are kept for as long as the tab is open, and stand in no address
const keptAs = `tenure-credentials ${base.pathname}`; // they are for this server alone, and others may be on the same host
try {
  credentials = sessionStorage.getItem(keptAs) ?? "";
} catch { /* storage is off: they are asked for again after a reload */ }
state.signedIn = credentials !== "";

// now is Redis's clock, in seconds: the times of terms, tasks and changes are by it.
export const now = () => Date.now() / 1000 + state.offset;

// serverNow is the clock of the process that answers, by which it says until when it waits.
export const serverNow = () => now() + state.ahead;

// age is how old the snapshot is by now, in seconds. While the machine sleeps one of the clocks
// stands still.
export function age() {
  if (!state.snapshot) return Infinity;
  return state.snapshot.age_seconds + Math.max(performance.now() - state.received, Date.now() - state.receivedAt) / 1000;
}

// lacks says whether a part of the snapshot is empty since it could not be read.
export const lacks = (part) => (state.snapshot.unread ?? []).some((u) => u.part === part);

// ask sends a request to the API.
export function ask(path, options = {}) {
  const headers = { Accept: "application/json", "Tenure-Page": "1", ...options.headers }; // so that the browser does not ask for a password itself
  if (credentials) headers.Authorization ??= credentials;
  return fetch(new URL(path, base), { cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(patience), ...options, headers });
}

// asker stands for the credentials that are sent now: an answer to others counts no more.
export const asker = () => generation;

// get reads a document; it throws what the server says is wrong.
export async function get(path) {
  const answer = await ask(path);
  if (!answer.ok) throw new Error(await problemOf(answer));
  return answer.json();
}

// problemOf is what the server says of an answer that is an error.
export async function problemOf(answer) {
  try {
    return (await answer.json()).detail ?? `HTTP ${answer.status}`;
  } catch {
    return `HTTP ${answer.status}`;
  }
}

// signIn tries credentials, and takes them if the server does and they are still wanted then. It
// returns why it does not, or "".
export async function signIn(tried, wanted) {
  let answer;
  try {
    answer = await ask("snapshot?limit=0", { headers: { Authorization: tried } });
    if (!answer.ok) return `Refused: ${await problemOf(answer)}.`;
    const { caller, actions } = await answer.json();
    if (caller === "" && actions.length === 0) return "Refused: with this you may look, as without it, and do nothing else.";
  } catch (error) {
    return `No answer: ${error.message}.`;
  }
  if (wanted()) keepCredentials(tried);
  return "";
}

// signOut forgets the credentials, and all that only they let see: the page begins anew.
export function signOut() {
  try {
    sessionStorage.removeItem(keptAs);
  } catch { /* they were never kept */ }
  location.reload();
}

function keepCredentials(given) {
  credentials = given;
  state.signedIn = true;
  state.mayAsk = false;
  generation++;
  try {
    sessionStorage.setItem(keptAs, given);
  } catch { /* kept in memory only */ }
  soon();
  allTerms();
  stream.stop();
  stream.start();
}

// challenge is what the server wants to see of who asks, without what keeps the browser from asking.
export const challenge = (answer) => (answer.headers.get("WWW-Authenticate") ?? "").replace(/^tenure-/i, "");

// start begins to read. heard is called when something is known anew.
export function start(heard) {
  changed = heard;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(timer);
      stream.stop();
      changed();
    } else {
      soon();
      stream.start();
    }
  });
  soon(); // once, also if nobody looks yet: for the title
  allTerms();
  if (!document.hidden) stream.start();
}

// soon reads a snapshot as soon as it may.
export function soon() {
  if (flight) {
    again = true;
    return;
  }
  clearTimeout(timer);
  timer = setTimeout(load, Math.max(0, last + soonest - performance.now()));
}

async function load() {
  if (flight) return;
  again = false;
  const began = (last = performance.now());
  flight = read();
  await flight;
  flight = null;
  slow = state.lost ? 0 : performance.now() - began; // for as long as nothing answers it says nothing of the server
  clearTimeout(timer);
  if (again) soon();
  else if (!document.hidden) timer = setTimeout(load, Math.max(pace, 10 * slow));
}

async function read() {
  const asked = new URLSearchParams({ limit: query.limit, offset: query.offset });
  if (query.q) asked.set("q", query.q);
  const mine = generation;
  try {
    const answer = await ask(`snapshot?${asked}`);
    if (answer.ok && !isJSON(answer)) {
      if (mine === generation) answeredByAnother();
    } else if (answer.ok) {
      const snapshot = await answer.json();
      if (mine === generation) take(snapshot);
    } else {
      const text = await problemOf(answer);
      if (mine === generation) {
        state.lost = 0;
        state.challenge = answer.status === 401 ? challenge(answer) : "";
        state.problem = { status: answer.status, text };
      }
    }
  } catch (error) {
    if (error.name === "TypeError" && await isSentAway()) answeredByAnother();
    else state.lost ||= performance.now();
  }
  changed();
}

const isJSON = (answer) => /^application\/json\b/i.test(answer.headers.get("Content-Type") ?? "");

// isSentAway says that the server redirects to another one, where this page must not follow: a fetch
// that would fails as if there were no connection.
async function isSentAway() {
  try {
    return (await ask("snapshot?limit=0", { redirect: "manual" })).type === "opaqueredirect";
  } catch {
    return false;
  }
}

// answeredByAnother notes that what stands before the server answers in its place.
function answeredByAnother() {
  state.lost = 0;
  state.challenge = "";
  state.problem = { status: 0, text: "something else answers in its place" };
}

// place is where a change stands in the log; NaN: it is none that can be compared.
function place(change) {
  const [, ms, nth] = /^([0-9]+)-([0-9]+)$/.exec(change?.id ?? "") ?? [];
  return { ms: Number(ms), nth: Number(nth) };
}

// isOlder says that a snapshot lacks a change that is shown, or is from long before: behind a load
// balancer it may be that of another process, which has not read so far yet, or cannot.
function isOlder(snapshot) {
  if (!state.snapshot) return false;
  const [got, shown] = [place(snapshot.log[0]), place(state.snapshot.log[0])];
  return got.ms < shown.ms || (got.ms === shown.ms && got.nth < shown.nth) || readAt(snapshot) < readAt(state.snapshot) - longAgo;
}

// readAt is when a snapshot was read, by Redis's clock; NaN: it is not known.
const readAt = (snapshot) => redisClock(snapshot) - snapshot.age_seconds;

// redisClock is what Redis's clock shows, by since when and for how long somebody has led a role.
// Nobody leads: it is not known.
function redisClock(snapshot) {
  const role = snapshot.roles.find((r) => r.leader?.token && r.leader.since && r.status?.for_seconds > 0);
  return role && Date.parse(role.leader.since) / 1000 + role.status.for_seconds;
}

function take(snapshot) {
  state.lost = 0;
  state.problem = null;
  state.challenge = "";
  if (isOlder(snapshot) && aside < asides) {
    aside++;
    again = true;
    return;
  }
  aside = 0;
  const first = !state.snapshot;
  state.snapshot = snapshot;
  state.received = performance.now();
  state.receivedAt = Date.now();
  const server = Date.parse(snapshot.at) / 1000 + snapshot.age_seconds;
  const redis = redisClock(snapshot) ?? server;
  state.offset = redis - Date.now() / 1000;
  state.ahead = server - redis;
  const unseen = dropUnseen(snapshot.roles);
  keep(snapshot.roles.flatMap((role) => role.terms));
  if (unseen) allTerms();
  if (first && snapshot.actions.length === 0) {
    const mine = generation;
    ask("drain", { method: "OPTIONS" }).then((answer) => {
      if (mine !== generation) return;
      state.mayAsk = answer.ok;
      changed();
    }, () => {});
  }
}

const keyOf = (term) => `${term.role}/${term.token}`;

// keep notes terms; those of more than two days are dropped, unless the snapshot has them: they are
// the last ones of their role.
function keep(terms) {
  for (const term of terms) state.terms.set(keyOf(term), term);
  const last = new Set((state.snapshot?.roles ?? []).flatMap((role) => role.terms.map(keyOf)));
  const before = now() - 2 * 86400;
  for (const [key, term] of state.terms) {
    if (term.ended && Date.parse(term.ended) / 1000 < before && !last.has(key)) state.terms.delete(key);
  }
}

// dropUnseen drops the terms of roles of which terms may have passed unseen, since nobody has looked
// for long: what follows on those that are known is not known then. It says whether there are any.
function dropUnseen(roles) {
  const known = new Set([...state.terms.values()].map((term) => term.role));
  const unseen = new Set(roles.filter((r) => known.has(r.role) && r.terms.length >= listed && !r.terms.some((term) => state.terms.has(keyOf(term)))).map((r) => r.role));
  for (const [key, term] of state.terms) {
    if (unseen.has(term.role)) state.terms.delete(key);
  }
  return unseen.size > 0;
}

// allTerms reads more of them than the snapshot has.
async function allTerms() {
  const mine = generation;
  try {
    const answer = await get("terms?limit=100");
    if (mine !== generation) return;
    const newer = new Map(state.terms);
    keep(answer.terms);
    for (const [key, term] of newer) state.terms.set(key, term);
    changed();
  } catch { /* the snapshot has the last ones */ }
}

// stream reads the events. It is read as any answer is, so that a token can be sent, and pings are
// seen.
const stream = {
  ended: null,
  id: "",
  start() {
    if (!this.ended) this.follow((this.ended = new AbortController()));
  },
  stop() {
    this.ended?.abort();
    this.ended = null;
  },
  async follow(ended) {
    while (!ended.signal.aborted) {
      let wait = 2000;
      try {
        const answer = await ask("events", { headers: { Accept: "text/event-stream", ...(this.id && { "Last-Event-ID": this.id }) }, signal: ended.signal });
        if (answer.ok) await this.read(answer.body, ended);
        else wait = 30000;
      } catch { /* lost: it is tried again */ }
      if (!ended.signal.aborted) await new Promise((resolve) => setTimeout(resolve, wait));
    }
  },
  async read(body, ended) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      let late = 0;
      const { done, value } = await Promise.race([
        reader.read(),
        new Promise((resolve) => { late = setTimeout(() => resolve({ done: true }), silence); }),
      ]);
      clearTimeout(late);
      if (done || ended.signal.aborted) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("id: ")) this.id = line.slice(4);
        if (line.startsWith("event: ")) soon();
      }
    }
    await reader.cancel().catch(() => {});
  },
};
