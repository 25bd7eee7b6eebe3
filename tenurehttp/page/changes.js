// What changed lately, newest first.
import { el, icon, keyed, put, show } from "./dom.js";
import { lacks, now, state } from "./source.js";
import { changeText, changeWarns, clock, seconds } from "./words.js";
import { instanceLink, termLink } from "./links.js";

const shown = 12;

export function drawChanges(section) {
  const seen = new Map(); // an entry may be about several instances
  const log = state.snapshot.log.slice(0, shown).map((c) => {
    const nth = seen.get(c.id) ?? 0;
    seen.set(c.id, nth + 1);
    return { ...c, key: `${c.id}/${nth}` };
  });
  keyed(section.querySelector("ol"), log, (c) => c.key, make, (item, c) => put(item.firstElementChild, clock(seconds(c.time), now())));
  const empty = section.querySelector(".empty");
  show(empty, log.length === 0 && !lacks("log"));
  if (log.length === 0 && !empty.firstChild) empty.append(el("p", {}, "Nothing has changed yet. Elections, ends of terms, and instances that come and go are listed here."));
}

function make(c) {
  const warn = changeWarns(c);
  const link = c.token ? termLink(c.role ?? "", c.token) : c.instance_id ? instanceLink(c.instance_id) : null;
  const text = link ? el("a", { href: link }, changeText(c)) : el("span", {}, changeText(c));
  return el("li", { class: warn ? "warn" : "" }, el("time", { class: "num quiet", datetime: c.time ?? null }), icon(warn ? "triangle" : "dot"), text);
}
