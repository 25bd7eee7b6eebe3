// Makes elements. Every text is set as text: there is no way here to set markup, and a test looks
// for the others.

const svgSpace = "http://www.w3.org/2000/svg";

// el makes an element. Children are elements or texts. A property that begins with "on" is a
// listener, any other one an attribute. null, undefined and false leave a child or a property out.
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

// svg makes an element of a drawing.
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(svgSpace, tag), properties, children);
}

function fill(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else attribute(made, name, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined && c !== false && c !== ""));
  return made;
}

// attribute sets an attribute if it is another one than before.
export function attribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

// put sets the text of a node. A node whose text was another one fades, if it should.
export function put(node, text, fade = false) {
  if (node.textContent === text) return;
  const before = node.textContent;
  node.textContent = text;
  if (fade && before !== "") flash(node);
}

// flash has a changed cell fade from the accent to what it was.
export function flash(node) {
  node.classList.remove("changed");
  void node.offsetWidth; // so that the animation begins anew
  node.classList.add("changed");
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

// keyed makes the children of a parent those of the items, in their order. What is there for a key
// stays, so that nothing flickers and the focus is kept.
export function keyed(parent, items, keyOf, make, update) {
  const keys = items.map((item) => String(keyOf(item)));
  const wanted = new Set(keys);
  const before = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  for (const child of [...parent.children]) {
    if (wanted.has(child.dataset.key) && !before.has(child.dataset.key)) before.set(child.dataset.key, child);
    else child.remove(); // first: else all that follow would move
  }
  let at = parent.firstElementChild;
  items.forEach((item, i) => {
    let child = before.get(keys[i]);
    const fresh = !child;
    if (fresh) {
      child = make(item);
      child.dataset.key = keys[i];
    } else {
      before.delete(keys[i]);
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update?.(child, item, fresh);
  });
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true }); // what moves loses it
}

// The shapes of states: what a state is shows in its form, not in its colour alone.
const shapes = {
  full: () => [svg("circle", { cx: 8, cy: 8, r: 5.5, fill: "currentColor" })],
  ring: () => [svg("circle", { cx: 8, cy: 8, r: 5, fill: "none", stroke: "currentColor", "stroke-width": 2 })],
  half: () => [svg("circle", { cx: 8, cy: 8, r: 5, fill: "none", stroke: "currentColor", "stroke-width": 2 }), svg("path", { d: "M8 3a5 5 0 0 1 0 10z", fill: "currentColor" })],
  dashed: () => [svg("circle", { cx: 8, cy: 8, r: 5, fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": "2.6 2.6" })],
  cross: () => [svg("path", { d: "M4 4l8 8M12 4l-8 8", stroke: "currentColor", "stroke-width": 2.2, "stroke-linecap": "round" })],
  check: () => [svg("path", { d: "M3 8.5l3.5 3.5L13 4.5", fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round" })],
  pause: () => [svg("path", { d: "M5.5 3.5v9M10.5 3.5v9", stroke: "currentColor", "stroke-width": 2.4, "stroke-linecap": "round" })],
  play: () => [svg("path", { d: "M5 3.2v9.6l7.5-4.8z", fill: "currentColor" })],
  triangle: () => [svg("path", { d: "M8 2.2l6.3 11.3H1.7z", fill: "none", stroke: "currentColor", "stroke-width": 1.8, "stroke-linejoin": "round" }), svg("path", { d: "M8 6.5v3M8 11.4v.2", stroke: "currentColor", "stroke-width": 1.8, "stroke-linecap": "round" })],
  dot: () => [svg("circle", { cx: 8, cy: 8, r: 2.5, fill: "currentColor" })],
};

// icon draws a shape. The word beside it says the same, so readers of the screen do not hear it.
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", "data-shape": name }, ...(shapes[name] ?? shapes.dot)());
}

// mark has a node hold one icon.
export function mark(node, name) {
  if (node.firstElementChild?.dataset.shape !== name) node.replaceChildren(icon(name));
}
