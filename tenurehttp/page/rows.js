// A list of which only the rows that can be seen are in the document, so that ten thousand cost what
// twenty do. It is one stop of the tab key; the arrow keys walk its rows.
import { attribute } from "./dom.js";

const longFrom = 20;
const spare = 6; // rows above and below what can be seen

export class Rows {
  // box scrolls, and has a list. make returns an item with a link in it, update fills it.
  constructor(box, { make, update, keyOf }) {
    Object.assign(this, { box, list: box.firstElementChild, make, update, keyOf, total: 0, at: () => undefined, current: 0, items: new Map(), seen: () => {} });
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.list.addEventListener("keydown", (event) => this.walk(event));
    this.list.addEventListener("focusin", (event) => { this.current = Number(event.target.closest("li")?.dataset.index ?? this.current); });
    new ResizeObserver(() => this.draw()).observe(box);
  }

  // set says what there is: at returns the item of an index, or undefined if it is not there yet.
  set(total, at) {
    this.total = total;
    this.at = at;
    this.box.classList.toggle("long", total > longFrom); // a long list scrolls by itself on a phone too
    this.current = Math.min(this.current, Math.max(0, total - 1));
    this.draw();
  }

  height() {
    return parseFloat(getComputedStyle(this.list).getPropertyValue("--row")) * parseFloat(getComputedStyle(document.documentElement).fontSize) || 40;
  }

  range() {
    const height = this.height();
    const first = Math.max(0, Math.floor(this.box.scrollTop / height) - spare);
    return { height, first, end: Math.min(this.total, Math.ceil((this.box.scrollTop + this.box.clientHeight) / height) + spare) };
  }

  draw() {
    const { height, first, end } = this.range();
    this.list.style.height = `${this.total * height}px`;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.closest("li") : null;
    const kept = new Map();
    let place = this.list.firstElementChild;
    for (let i = first; i < end; i++) {
      const item = this.at(i);
      const key = item === undefined ? ` ${i}` : this.keyOf(item);
      let row = this.items.get(key);
      const fresh = !row;
      if (fresh) row = this.make();
      this.items.delete(key);
      kept.set(key, row);
      if (row === place) place = place.nextElementSibling;
      else this.list.insertBefore(row, place);
      row.style.transform = `translateY(${i * height}px)`;
      row.dataset.index = i;
      attribute(row, "aria-posinset", i + 1);
      attribute(row, "aria-setsize", this.total);
      this.update(row, item, fresh);
    }
    for (const row of this.items.values()) row.remove();
    this.items = kept;
    this.tab(first, end);
    if (focused?.isConnected && !this.list.contains(document.activeElement)) focused.querySelector("a")?.focus({ preventScroll: true });
    this.seen(first, end);
  }

  // tab has one row reachable by the tab key.
  tab(first, end) {
    const stop = this.current >= first && this.current < end ? this.current : first;
    for (const row of this.items.values()) {
      const link = row.querySelector("a");
      const index = Number(row.dataset.index) === stop ? 0 : -1;
      if (link.tabIndex !== index) link.tabIndex = index;
    }
  }

  walk(event) {
    const { height } = this.range();
    const page = Math.max(1, Math.floor(this.box.clientHeight / height) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.total, End: this.total }[event.key];
    if (!step) return;
    event.preventDefault();
    this.current = Math.max(0, Math.min(this.total - 1, this.current + step));
    const top = this.current * height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + height - this.box.clientHeight;
    this.draw();
    for (const row of this.items.values()) {
      if (Number(row.dataset.index) === this.current) row.querySelector("a").focus({ preventScroll: true });
    }
  }
}
