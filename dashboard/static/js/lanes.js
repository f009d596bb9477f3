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
    arrivals: figure("Arrive", "per second"),
    decided: figure("Decided", "per second"),
  };
  const arrivals = h("i");
  const decided = h("i");
  const pace = h("div", { class: "pace", "aria-hidden": "true" }, h("span", { class: "in" }, arrivals), h("span", { class: "out" }, decided));
  const button = (text, act) => h("button", { type: "button", click: act }, text);
  const pause = button("", () => (lane.paused ? actions.resume(lane) : actions.pause(lane)));
  const cap = button("", () => actions.cap(lane));
  const uncap = button("Remove the cap", () => actions.uncap(lane));
  const id = `lane-${lane.lane}`;
  const node = h("li", { class: "card lane", "aria-labelledby": id },
    h("header", {}, h("h3", { id }, laneName(lane.lane)), state),
    note,
    h("dl", { class: "figures" }, ...Object.values(figures).map((f) => f.node)),
    pace,
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
    figures.arrivals.set(rate(lane.arrivals_per_second));
    figures.decided.set(rate(lane.decided_per_second));
    const most = Math.max(lane.arrivals_per_second, lane.decided_per_second, 1);
    arrivals.style.width = `${(lane.arrivals_per_second / most) * 100}%`;
    decided.style.width = `${(lane.decided_per_second / most) * 100}%`;
    setText(pause, lane.paused ? "Resume" : "Pause");
    setText(cap, lane.rate_cap == null ? "Cap" : "Change the cap");
    show(uncap, lane.rate_cap != null);
  };
  return { node, update };
}

function figure(name, unit = "") {
  const value = h("dd");
  const text = h("b");
  value.append(text, unit && h("span", {}, ` ${unit}`));
  return { node: h("div", {}, h("dt", {}, name), value), set: (t) => setText(text, t) };
}
