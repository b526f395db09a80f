// Keys of the teacher's view: they press the buttons that are on the page anyway.
const BUTTONS = { ArrowLeft: "learn_back", ArrowRight: "learn_next", r: "learn_redraw", R: "learn_redraw" };
const OWN_KEYS = "input:not([type=checkbox]), textarea, [role=slider], [role=radio], [role=combobox]";
const RUNNING = "[data-testid=stApp]:not([data-test-script-state=notRunning])";
const PATIENCE = 2000; // ms after the last rerun
let waiting;

// A step has its heading before its buttons are enabled: the key waits for its button.
function pressButton(name, until) {
  const button = document.querySelector(`.st-key-${name} button:not([disabled])`);
  const now = performance.now();
  if (button) button.click();
  else if (document.querySelector(RUNNING)) waiting = setTimeout(pressButton, 50, name, now + PATIENCE);
  else if (now < until) waiting = setTimeout(pressButton, 50, name, until);
}

function forget() {
  clearTimeout(waiting);
}

function press(event) {
  if (!document.querySelector(".st-key-projector input:checked")) return;
  if (event.key === "Escape") document.activeElement?.blur();
  const name = BUTTONS[event.key];
  if (!name || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(OWN_KEYS)) return;
  event.stopImmediatePropagation(); // R would rerun the page
  event.preventDefault();
  forget(); // the last key counts
  pressButton(name, performance.now() + PATIENCE);
}

// Called when the step changes. A step that is shown for the first time is shown from its top.
export default function ({ data: step }) {
  if (step !== window.learnStep) document.querySelector("[data-testid=stMain]")?.scrollTo(0, 0);
  window.learnStep = step;
  if (window.learnKeys) return;
  window.learnKeys = true;
  window.addEventListener("keydown", press, true);
  window.addEventListener("pointerdown", forget, true);
}
