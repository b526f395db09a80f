// Play and Pause as real buttons. They press those inside the chart, which a keyboard cannot reach.
const MENU = ".st-key-learn_picture .updatemenu-button";

// An animation that is interrupted rejects a promise of its own, without a reason. That is no error.
const forgive = (event) => event.reason === undefined && event.preventDefault();

export default function ({ parentElement }) {
  window.addEventListener("unhandledrejection", forgive);
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  parentElement.querySelector("p").hidden = !still;
  parentElement.querySelectorAll("button").forEach((button, index) => {
    button.hidden = still;
    button.onclick = () => document.querySelectorAll(MENU)[index]?.dispatchEvent(new MouseEvent("click"));
  });
}
