// Keys of the teacher's view: they press the buttons that are on the page anyway.
const BUTTONS = { ArrowLeft: "learn_back", ArrowRight: "learn_next", r: "learn_redraw", R: "learn_redraw" };
const OWN_KEYS = "input:not([type=checkbox]), textarea, [role=slider], [role=radio], [role=combobox]";

function press(event) {
  if (!document.querySelector(".st-key-projector input:checked")) return;
  if (event.key === "Escape") document.activeElement?.blur();
  const name = BUTTONS[event.key];
  if (!name || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(OWN_KEYS)) return;
  event.stopImmediatePropagation(); // R would rerun the page
  event.preventDefault();
  document.querySelector(`.st-key-${name} button:not([disabled])`)?.click();
}

// Every rerun calls this. The first call is enough: the switch decides whether keys count.
export default function () {
  if (window.learnKeys) return;
  window.learnKeys = true;
  window.addEventListener("keydown", press, true);
}
