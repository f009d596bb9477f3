// Building and updating elements. All text goes in as text nodes, never as HTML.

/** The element with this id of the page. */
export function byId(id) {
  return document.getElementById(id);
}

/** The parts of a text as children: each id that words.isolated() marks is a <bdi>. */
function parts(text) {
  return text.split(/\u2068(.*?)\u2069/).map((part, i) => (i % 2 === 1 ? bdi(part) : part)).filter((part) => part !== "");
}

function bdi(text) {
  const element = document.createElement("bdi");
  element.textContent = text;
  return element;
}

/**
 * Makes an element. A function among the attributes listens to the event that
 * its name gives; true sets an empty attribute; false, null and undefined set
 * none. Children are nodes or text.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  const shown = children.filter((child) => child != null && child !== false);
  element.append(...shown.flatMap((child) => (child instanceof Node ? child : parts(String(child)))));
  return element;
}

const svgNamespace = "http://www.w3.org/2000/svg";

/** Makes an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Sets an element's text. It leaves the element alone if the text is the same. */
export function setText(element, text) {
  const wanted = parts(String(text));
  if (element.textContent !== wanted.map((part) => part.textContent ?? part).join("")) element.replaceChildren(...wanted);
}

/** Shows or hides an element. */
export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

const rowsOf = new WeakMap();

/**
 * Makes the children of a list or a table body those of the items, in their
 * order. A child stays the same element while its item has the same key, so it
 * keeps the focus. create(item) returns {node, update}; update(item) is called
 * each time.
 */
export function reconcile(container, items, keyOf, create) {
  const before = rowsOf.get(container) ?? new Map();
  const after = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (after.has(key)) continue;
    const row = before.get(key) ?? create(item);
    row.update(item);
    after.set(key, row);
  }
  const focused = document.activeElement;
  for (const [key, row] of before) {
    if (!after.has(key)) row.node.remove();
  }
  let place = container.firstChild;
  for (const row of after.values()) {
    if (row.node === place) place = place.nextSibling;
    else container.insertBefore(row.node, place);
  }
  if (focused !== document.activeElement && container.contains(focused)) focused.focus({ preventScroll: true });
  rowsOf.set(container, after);
}

/**
 * Whether the reader's pointer, or the focus of the keyboard, is in the element,
 * or a control in it asked the question of the dialog that is open.
 */
export function isInUse(element) {
  return element.querySelector(":focus-visible, [data-asking]") !== null || (matchMedia("(hover: hover)").matches && element.matches(":hover"));
}

/**
 * Makes a change. If it hides, disables or removes the element that has the
 * focus, the focus moves to the nearest control or heading that is left, because
 * else the reader starts again at the top of the page.
 */
export function keepFocus(change) {
  const restore = rememberFocus();
  change();
  restore();
}

/** Returns a function that does so for changes between the two calls. */
export function rememberFocus() {
  const focused = document.activeElement ?? document.body;
  const around = [];
  for (let element = focused.parentElement; element; element = element.parentElement) around.push(element);
  return () => {
    const present = document.activeElement ?? document.body;
    if (isFocusable(focused) || (present !== document.body && isFocusable(present))) return;
    for (const element of around) {
      const next = placeIn(element);
      if (next) {
        next.focus({ preventScroll: true });
        return;
      }
    }
  };
}

/** The first control of an element, the heading of a section, or nothing. */
function placeIn(element) {
  if (element.matches("table, tbody, ul, ol")) return null; // the heading says more than another row
  if (!element.matches("section, figure, dialog, main")) return [...element.querySelectorAll("a[href], button")].find(isFocusable);
  const heading = [...element.querySelectorAll("h2")].find(isFocusable);
  if (heading) heading.tabIndex = -1;
  return heading;
}

function isFocusable(element) {
  return element.isConnected && !element.matches(":disabled") && element.getClientRects().length > 0;
}
