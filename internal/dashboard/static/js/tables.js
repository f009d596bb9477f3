// The tables of the board. Their rows keep their place while the reader's pointer
// or focus is in them.

import { h, isInUse, reconcile, setText, show } from "./dom.js";
import { isolated, visible } from "./words.js";

/**
 * A section with a table. options: id; title; empty, what it says without rows;
 * columns, each {name}, with number for figures, and with action for buttons,
 * whose heading only a screen reader needs, and with time for times; key(item); row(item), which returns
 * {cells, update}; order(items), if they are not in order; most, the number of
 * rows that it shows before the reader asks for all.
 */
export class Table {
  #options;
  #body = h("tbody", { role: "rowgroup" });
  #table;
  #empty;
  #note = h("p", { class: "note held" });
  #more = h("button", { type: "button", class: "more", click: () => this.#toggle() });
  #all = false;
  #items = [];

  constructor(section, options) {
    this.#options = options;
    const { id, title, columns, empty } = options;
    this.#table = h("table", { role: "table", "aria-labelledby": `${id}-title` },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...columns.map((column) =>
        h("th", { scope: "col", role: "columnheader", class: className(column) },
          column.action ? h("span", { class: "sr" }, column.name) : column.name)))),
      this.#body);
    this.#empty = h("p", { class: "empty" }, empty);
    section.replaceChildren(
      h("header", {}, h("h2", { id: `${id}-title` }, title), this.#note),
      this.#empty, this.#table, this.#more);
    show(this.#more, false);
  }

  /** Shows the items. */
  show(items) {
    const held = this.#items.length > 0 && isInUse(this.#body);
    const shown = held ? this.#hold(items) : this.#options.order?.(items) ?? items;
    if (!held) setText(this.#note, "");
    this.#items = shown;
    this.#draw();
  }

  #draw() {
    const { key, most = Infinity } = this.#options;
    const items = this.#items;
    reconcile(this.#body, this.#all ? items : items.slice(0, most), key, (item) => this.#row(item));
    show(this.#empty, items.length === 0);
    show(this.#table, items.length > 0);
    show(this.#more, items.length > most);
    setText(this.#more, this.#all ? `Show the first ${most}` : `Show all ${items.length}`);
  }

  #toggle() {
    this.#all = !this.#all;
    this.#draw();
  }

  /**
   * The rows that are there, in their order. Those whose item is no longer among
   * the items stay, with gone set, and new ones wait, so that nothing moves under
   * the reader's hand.
   */
  #hold(items) {
    const { key } = this.#options;
    const newest = new Map(items.map((item) => [key(item), item]));
    const shown = this.#items.map((item) => newest.get(key(item)) ?? { ...item, gone: true });
    const known = new Set(shown.map(key));
    const fresh = items.filter((item) => !known.has(key(item))).length;
    setText(this.#note, fresh === 0 ? "" : `${fresh} new; shown when you leave the table`);
    return shown;
  }

  #row(item) {
    const { columns, row } = this.#options;
    const { cells, update } = row(item);
    const node = h("tr", { role: "row" }, ...cells.map((content, i) =>
      h("td", { role: "cell", class: className(columns[i]), "data-name": columns[i].action ? null : columns[i].name }, content)));
    return { node, update: (next) => update(next, node) };
  }
}

function className(column) {
  if (column.action) return "act";
  if (column.time) return "time";
  return column.number ? "number" : null;
}

/** A link to the history of something. */
export function historyLink(kind, id, text = id) {
  return h("a", { href: `#/${kind}/${encodeURIComponent(id)}`, class: "id", title: text === id ? null : visible(id) }, isolated(text));
}

/** A cell's text that changes. */
export function changing(tag = "span", attributes = {}) {
  const node = h(tag, attributes);
  return { node, set: (text) => setText(node, text) };
}
