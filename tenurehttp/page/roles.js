// One band a role: who leads, since when, with which token, how much of the lease is left; or why
// nobody does, and until when.
import { attribute, el, keyed, mark, put, show } from "./dom.js";
import { age, now, serverNow, state } from "./source.js";
import { clock, ownWaits, roleName, seconds, span, waits } from "./words.js";
import { termLink } from "./links.js";

const many = 6; // roles of which one that nobody leads is seen where it stands
const shortLease = 6; // it is renewed more often than this page looks, in seconds
const endlessFrom = 10 * 365 * 86400; // a lease of so many seconds is that of a process that stands alone, without Redis
const ttls = new Map(); // the longest lease that was seen, of each role
const said = new Map(); // who led each role when it was last announced

export function drawRoles(section, announce) {
  const { roles, unread } = state.snapshot; // what is unread is said above all
  const bands = section.querySelector(".bands");
  bands.classList.toggle("many", roles.length > many);
  keyed(bands, roles.length > many ? roles.toSorted((a, b) => Boolean(a.leader) - Boolean(b.leader)) : roles, (r) => r.role, make, update);
  const empty = section.querySelector(".empty");
  show(empty, roles.length === 0 && !unread);
  if (roles.length === 0 && !empty.firstChild) {
    empty.append(el("p", {}, "No role is known yet. A coordinator leads the default role as soon as it runs:"),
      el("pre", {}, "c, err := tenure.New(rdb, tenure.Options{Namespace: \"shop\"})\n…\nerr = c.Run(ctx)"));
  }
  tell(roles, announce);
}

// tell announces a change of the leader, and nothing else.
function tell(roles, announce) {
  const news = [];
  for (const r of roles) {
    const is = r.leader ? `${r.leader.instance_id}/${r.leader.token}` : "";
    const was = said.get(r.role);
    said.set(r.role, is);
    if (was === undefined || was === is) continue;
    news.push(r.leader ? `${r.leader.instance_id || "another program"} leads ${roleName(r.role)} now` : `Nobody leads ${roleName(r.role)}`);
  }
  if (news.length > 0) announce(`${news.slice(0, 3).join(". ")}${news.length > 3 ? `. And ${news.length - 3} more changes` : ""}.`);
}

function make() {
  const parts = {
    icon: el("span", { class: "mark" }), title: el("a", { class: "title" }),
    role: el("span", { class: "role" }), since: el("span", {}), token: el("span", { class: "token" }),
    why: el("p", { class: "why" }),
    bar: el("span", { class: "bar", "aria-hidden": "true" }, el("span")), lease: el("span", { class: "lease" }),
  };
  parts.facts = el("p", { class: "facts quiet" }, parts.role, parts.since, parts.token);
  parts.left = el("p", { class: "left" }, parts.bar, parts.lease);
  const band = el("article", { class: "role-band card" }, el("h3", {}, parts.icon, parts.title), parts.facts, parts.why, parts.left);
  band.parts = parts;
  return band;
}

function update(band, r, fresh) {
  const p = band.parts;
  band.classList.toggle("vacant", !r.leader);
  put(p.role, roleName(r.role));
  mark(p.icon, r.leader ? "full" : "triangle");
  if (r.leader) led(p, r, !fresh);
  else vacant(p, r, !fresh);
}

function led(p, r, fade) {
  const { leader } = r;
  put(p.title, leader.instance_id ? `${leader.instance_id} leads` : "Another program leads", fade);
  attribute(p.title, "href", leader.token ? termLink(r.role, leader.token) : null);
  const since = seconds(leader.since);
  put(p.since, Number.isFinite(since) ? `for ${span(now() - since)}, since ${clock(since, now(), true)}` : "since when is not known");
  put(p.token, leader.token ? `token ${leader.token}` : "not a tenure client");
  p.token.classList.toggle("token", Boolean(leader.token));
  show(p.why, false);
  show(p.left, true);
  const ttl = ttlOf(r, leader);
  const live = !state.lost && !state.problem && !state.snapshot.stale;
  const left = live && ttl < shortLease ? leader.remaining_seconds : leftOf(leader);
  const endless = leader.remaining_seconds < 0 || leader.remaining_seconds > endlessFrom;
  const share = endless ? 1 : Math.min(1, left / ttl);
  p.bar.firstChild.style.width = `${(share * 100).toFixed(1)}%`;
  p.bar.classList.toggle("low", share < 0.2);
  put(p.lease, endless ? "lease without an end" : left <= 0 ? "lease run out, as far as is known" : `lease ${span(left)} of ${span(ttl)}`);
}

// leftOf is what is left of a lease if it was not renewed since the snapshot.
export const leftOf = (leader) => Math.max(0, leader.remaining_seconds - (age() - state.snapshot.age_seconds));

// ttlOf is the whole of a lease. How long that of another program is nobody knows: it is the most that was left of it.
function ttlOf(r, leader) {
  const known = r.guarantees?.lease_ttl_seconds ?? r.status?.lease_ttl_seconds;
  if (known && leader.token) return known;
  const ttl = Math.max(ttls.get(r.role) ?? 0, Math.ceil(leader.remaining_seconds));
  ttls.set(r.role, ttl);
  return ttl || 1;
}

function vacant(p, r, fade) {
  put(p.title, `Nobody leads ${roleName(r.role)}`, fade);
  let ended = r.terms.length > 0 ? seconds(r.terms[0].ended) : NaN;
  if (!Number.isFinite(ended) && r.status?.for_seconds > 0) ended = now() - r.status.for_seconds - passed();
  attribute(p.title, "href", r.terms.length > 0 ? termLink(r.role, r.terms[0].token) : null);
  put(p.since, Number.isFinite(ended) ? `for ${span(now() - ended)}, since ${clock(ended, now(), true)}` : "");
  p.token.classList.add("token");
  put(p.token, r.terms.length > 0 ? `last led by ${r.terms[0].instance_id || "an unknown instance"}` : "has never been led");
  show(p.why, true);
  show(p.left, false);
  put(p.why, `${reason(r)} ${until(r)}`.trim());
}

// passed is how long ago the snapshot came.
const passed = () => age() - state.snapshot.age_seconds;

// reason is why nobody leads, as far as the process that answers knows: as a candidate, or else by
// what Redis says.
function reason(r) {
  const e = r.election;
  const me = state.snapshot.this?.instance_id ?? "";
  if (!e) {
    if (waits[r.status?.waiting]) return `${capital(waits[r.status.waiting])}.`;
    return `Redis would grant the lease now, so no candidate asks for it: none runs, or each drains, stands back or fails its health check. ${me ? `${me}, which answers here, is no candidate` : "The process of this page takes no part"}: the page of a candidate says more.`;
  }
  if (waits[e.waiting]) return `${capital(waits[e.waiting])}${e.waiting === "silence" && e.error ? `: ${e.error}` : ""}.`; // Redis may have said no to each
  if (ownWaits[e.waiting]) return `${me}, which answers here, ${ownWaits[e.waiting]}${e.error ? `: ${e.error}` : ""}.`;
  return e.error ? `${me}, which answers here, reports: ${e.error}.` : "Candidates ask for the lease.";
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function until(r) {
  if (r.election?.waiting === "silence") return ""; // until it asks again, which says nothing of an election
  const at = seconds(r.election?.waiting_until);
  const left = r.election ? at - serverNow() : r.status?.waiting ? r.status.wait_seconds - passed() : NaN;
  if (!Number.isFinite(left)) return "";
  return left > 0 ? `Election possible in ${span(Math.ceil(left))}.` : "Election possible now.";
}
