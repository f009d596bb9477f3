// The cards of the lanes.

import { h, reconcile, setText, show } from "./dom.js";
import { count, duration, laneName, laneNote, laneState, rate } from "./words.js";

/** Draws the lanes into the list, and keeps them up to date. */
export function drawLanes(container, lanes, actions) {
  reconcile(container, lanes, (lane) => lane.lane, (lane) => laneCard(lane, actions));
}

function laneCard(first, actions) {
  let lane = first;
  const state = h("span", { class: "tag" });
  const note = h("p", { class: "note" });
  const figures = {
    depth: figure("Queued", "requests"),
    oldest: figure("Oldest waits"),
  };
  const arrivals = pace("Arrive", "in");
  const decided = pace("Decided", "out");
  const button = (text, act) => h("button", { type: "button", click: act }, text);
  const pause = button("", () => (lane.paused ? actions.resume(lane) : actions.pause(lane)));
  const cap = button("", () => actions.cap(lane));
  const uncap = button("Remove the cap", () => actions.uncap(lane));
  const id = `lane-${lane.lane}`;
  const node = h("li", { class: "card lane", "aria-labelledby": id },
    h("header", {}, h("h3", { id }, laneName(lane.lane)), state),
    note,
    h("dl", { class: "figures" }, figures.depth.node, figures.oldest.node, arrivals.node, decided.node),
    h("div", { class: "buttons", role: "group", "aria-labelledby": id }, pause, cap, uncap));

  const update = (next) => {
    lane = next;
    const { kind, label } = laneState(lane);
    setText(state, label);
    state.className = `tag ${kind}`;
    node.classList.toggle("trouble", kind === "trouble");
    setText(note, laneNote(lane));
    figures.depth.set(count(lane.depth));
    figures.oldest.set(lane.depth === 0 ? "–" : duration(lane.oldest_seconds));
    const most = Math.max(lane.arrivals_per_second, lane.decided_per_second, 1);
    arrivals.set(lane.arrivals_per_second, most);
    decided.set(lane.decided_per_second, most);
    setText(pause, lane.paused ? "Resume" : "Pause");
    setText(cap, lane.rate_cap == null ? "Cap" : "Change the cap");
    show(uncap, lane.rate_cap != null);
  };
  return { node, update };
}

function figure(name, unit = "") {
  const value = h("dd");
  const text = h("b");
  value.append(text, unit && h("span", { class: "unit" }, ` ${unit}`));
  return { node: h("div", {}, h("dt", {}, name), value), set: (t) => setText(text, t) };
}

/** A rate, with a bar that shows it in proportion to the larger one. */
function pace(name, direction) {
  const text = h("b");
  const bar = h("i");
  const node = h("div", { class: `pace ${direction}` }, h("dt", {}, name),
    h("dd", {}, h("span", { class: "track", "aria-hidden": "true" }, bar), text, h("span", { class: "unit" }, " per second")));
  const set = (perSecond, most) => {
    setText(text, rate(perSecond));
    bar.style.width = `${(perSecond / most) * 100}%`;
  };
  return { node, set };
}
