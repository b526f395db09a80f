// The closeness C as a band of related tasks beside the target's star. It is dragged, or moved by keys.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240, LEFT = 8, AXIS = 30; // of the drawing, in its own units

function draw(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
}

// The drawing is made once and then only changed, so that a rerun of the page ends neither a drag nor the focus.
function mount(parent) {
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} 52`, class: "band" }, parent);
  draw("line", { x1: LEFT, x2: WIDTH - LEFT, y1: AXIS, y2: AXIS, class: "axis" }, picture);
  const ends = ["start", "end"].map((anchor) => draw("text", { y: 50, "text-anchor": anchor }, picture));
  const band = draw("rect", { y: AXIS - 11, height: 22, rx: 4, class: "tasks", tabindex: 0, role: "slider" }, picture);
  band.setAttribute("aria-label", "Closeness C of the related tasks; 0 is the target itself");
  const words = draw("text", { y: 12, "text-anchor": "middle" }, picture);
  words.textContent = "related tasks";
  const star = draw("text", { y: AXIS + 8, "text-anchor": "middle", class: "target" }, picture);
  star.textContent = "★";
  let data, tell, closeness, grip = null;

  const at = (strength) =>
    LEFT + ((Math.min(Math.max(strength, data.low), data.high) - data.low) / (data.high - data.low)) * (WIDTH - 2 * LEFT);
  const round = (value) => Math.min(data.most, Math.max(0, Math.round(value / data.step) * data.step));
  const strengthAt = (event) => {
    const box = picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    return data.low + ((x - LEFT) / (WIDTH - 2 * LEFT)) * (data.high - data.low);
  };
  function place() {
    const [start, end] = [at(data.target - data.width - closeness), at(data.target - closeness)];
    band.setAttribute("x", start - 2);
    band.setAttribute("width", end - start + 4);
    for (const [name, value] of [["valuemin", 0], ["valuemax", data.most], ["valuenow", closeness.toFixed(1)]])
      band.setAttribute(`aria-${name}`, value);
    band.setAttribute("aria-valuetext", `C = ${closeness.toFixed(1)}`);
    words.setAttribute("x", Math.min(Math.max((start + end) / 2, 50), WIDTH - 60));
    star.setAttribute("x", at(data.target));
    ends.forEach((text, index) => {
      const value = index ? data.high : data.low;
      text.setAttribute("x", at(value));
      text.textContent = `${data.symbol} ${value}`;
    });
  }
  function move(value) {
    if (round(value) === closeness) return;
    closeness = round(value);
    place();
    tell("moved", Number(closeness.toFixed(3)));
  }
  band.onpointerdown = (event) => {
    grip = strengthAt(event) + closeness;
    band.setPointerCapture(event.pointerId);
  };
  band.onpointermove = (event) => grip !== null && move(grip - strengthAt(event));
  band.onpointerup = band.onpointercancel = () => (grip = null);
  band.onkeydown = (event) => {
    const { step, most } = data;
    const moves = { ArrowLeft: step, ArrowDown: step, ArrowRight: -step, ArrowUp: -step, Home: most, End: -most };
    if (!(event.key in moves)) return;
    event.preventDefault();
    move(closeness + moves[event.key]);
  };
  return (now, setTriggerValue) => {
    const late = data && document.activeElement && band.matches(":focus, :active") && now.closeness !== closeness;
    [data, tell] = [now, setTriggerValue];
    if (grip === null && !late) closeness = now.closeness; // while it is moved, the hand is ahead of the page
    place();
  };
}

export default function ({ parentElement, data, setTriggerValue }) {
  parentElement.showBand ??= mount(parentElement);
  parentElement.showBand(data, setTriggerValue);
}
