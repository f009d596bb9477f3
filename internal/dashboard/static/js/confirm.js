// Actions: each is confirmed in a dialog that says what it does, and its result
// is announced.

import { byId, rememberFocus, setText, show } from "./dom.js";

const dialog = byId("confirm");
const drawer = byId("history");
let hideResult = 0;
let cleared = 0;

/**
 * Announces a result: in the drawer if that is open, because a screen reader
 * hears nothing behind it, and else at the foot of the page.
 */
export function announce(text) {
  if (drawer.open) {
    setText(byId("history-result"), text);
    return;
  }
  show(byId("result"), true);
  setText(byId("result-text"), text);
  clearTimeout(hideResult);
  hideResult = setTimeout(hide, 20_000);
}

function hide() {
  if (byId("result").matches(":hover, :focus-within")) {
    hideResult = setTimeout(hide, 5_000);
    return;
  }
  dismiss();
}

function dismiss() {
  clearTimeout(hideResult);
  show(byId("result"), false);
  setText(byId("result-text"), "");
}

byId("result-close").addEventListener("click", () => {
  byId("content").focus({ preventScroll: true });
  dismiss();
});

/** Closes the dialog and removes all that it and the announcements said. */
export function clear() {
  cleared++;
  dialog.close();
  dismiss();
  for (const id of ["confirm-title", "confirm-effect", "confirm-label", "confirm-error", "confirm-do"]) setText(byId(id), "");
  byId("confirm-number").value = "";
}

/**
 * Asks for an action and does it. action: title; effect, a sentence; button; run,
 * which does it and returns the announcement, if any; and with a number to enter, label
 * and value, which run gets. The dialog stays open while run works and if it
 * fails, with the problem's detail.
 *
 * @returns {Promise<boolean>} whether it was done
 */
export function confirm(action) {
  if (dialog.open) return Promise.resolve(false); // one question at a time
  const input = byId("confirm-number");
  const button = byId("confirm-do");
  const asks = action.label !== undefined;
  setText(byId("confirm-title"), action.title);
  setText(byId("confirm-effect"), action.effect);
  setText(byId("confirm-error"), "");
  setText(byId("confirm-label"), action.label ?? "");
  setText(button, action.button);
  show(byId("confirm-field"), asks);
  input.disabled = !asks;
  input.required = asks;
  input.value = action.value ?? "";
  const restoreFocus = rememberFocus();
  const asking = document.activeElement;
  asking.toggleAttribute("data-asking", true);
  const opened = cleared;
  return new Promise((resolve) => {
    let done = false;
    const submit = async (event) => {
      event.preventDefault();
      if (isBusy(button)) return;
      setBusy(button, true);
      setText(byId("confirm-error"), "");
      try {
        const text = await action.run(asks ? input.valueAsNumber : undefined);
        if (opened !== cleared) return;
        done = true;
        dialog.close();
        if (text) announce(text);
      } catch (problem) {
        if (opened === cleared) setText(byId("confirm-error"), problem.message);
      } finally {
        setBusy(button, false);
      }
    };
    dialog.querySelector("form").addEventListener("submit", submit);
    dialog.addEventListener("close", () => {
      dialog.querySelector("form").removeEventListener("submit", submit);
      restoreFocus();
      asking.removeAttribute("data-asking");
      resolve(done);
    }, { once: true });
    dialog.showModal();
    if (asks) input.select();
  });
}

byId("confirm-cancel").addEventListener("click", () => dialog.close());

// A disabled button would lose the focus.
function setBusy(button, busy) {
  button.setAttribute("aria-disabled", String(busy));
}

function isBusy(button) {
  return button.getAttribute("aria-disabled") === "true";
}
