// The legend of a plot: buttons that hide and show. A double click leaves one alone, the next one brings all back.
const SVG = "http://www.w3.org/2000/svg";
const SHAPES = {
  circle: "M11 2.5a4.5 4.5 0 1 0 .01 0z",
  square: "M7 3h8v8H7z",
  diamond: "M11 2l5 5-5 5-5-5z",
  "triangle-up": "M11 2l5 9H6z",
  "triangle-down": "M11 12l5-9H6z",
  cross: "M9.5 2h3v3.5H16v3h-3.5V12h-3V8.500H6v-3h3.500z",
  x: "M7 2l4 3 4-3 2 2-4 3 4 3-2 2-4-3-4 3-2-2 4-3-4-3z",
  star: "M11 1.500l1.600 3.800 4 .3-3 2.700.9 4-3.500-2.100-3.500 2.100.9-4-3-2.700 4-.3z",
  pentagon: "M11 2l5 3.600-2 6H8l-2-6z",
};
const DASHES = { dot: "2 2", dash: "5 3", dashdot: "6 2 2 2", longdash: "8 3" };

function addLegend(figure, spec) {
  const { title, keys } = spec.legend;
  if (keys.length < 2) return;
  const list = made("ul", { className: "keys" });
  list.setAttribute("aria-label", "Series: press to hide or show");
  if (title) list.append(Object.assign(document.createElement("li"), { className: "keyed", textContent: `${title}:` }));
  keys.forEach((entry, i) => {
    const item = document.createElement("li");
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.setAttribute("aria-pressed", "true");
    if (entry.whole) button.setAttribute("aria-label", (button.title = entry.whole));
    button.append(icon(spec.data[entry.traces[0]]), Object.assign(document.createElement("span"), { textContent: entry.name }));
    button.addEventListener("click", () => showKeys(figure, (shown, k) => (k === i ? !shown : shown)));
    button.addEventListener("dblclick", () => {
      const others = keysOf(figure).some((shown, k) => shown && k !== i);
      showKeys(figure, (_, k) => k === i || !others);
    });
    item.append(button);
    list.append(item);
  });
  figure.querySelector(".drawing").before(list);
}

function keysOf(figure) {
  return [...figure.querySelectorAll(".keys button")].map((button) => button.getAttribute("aria-pressed") === "true");
}

function showKeys(figure, rule) {
  const spec = specs.get(figure);
  const drawing = figure.querySelector(".drawing");
  const next = keysOf(figure).map(rule);
  [...figure.querySelectorAll(".keys button")].forEach((button, i) => button.setAttribute("aria-pressed", String(next[i])));
  next.forEach((shown, i) => {
    for (const trace of spec.legend.keys[i].traces) spec.data[trace].visible = shown;
  });
  if (drawn.has(drawing)) redraw(figure);
}

// Names of colours are CSS variables, so that a key follows the theme by itself.
function icon(trace) {
  const svg = document.createElementNS(SVG, "svg");
  const set = (element, values) => Object.entries(values).forEach(([name, value]) => element.setAttribute(name, value));
  set(svg, { width: 22, height: 14, "aria-hidden": "true" });
  const add = (tag, values) => {
    const part = document.createElementNS(SVG, tag);
    set(part, values);
    svg.append(part);
    return part;
  };
  const colour = `var(${trace.marker.color})`;
  if (trace.type === "bar") {
    add("rect", { x: 5, y: 1, width: 12, height: 12 }).style.fill = colour;
    return svg;
  }
  if (trace.mode.includes("lines")) {
    add("line", { x1: 0, x2: 22, y1: 7, y2: 7, "stroke-width": 2, "stroke-dasharray": DASHES[trace.line.dash] ?? "none" }).style.stroke = colour;
  }
  if (trace.mode.includes("markers")) {
    const shape = trace.marker.symbol.replace("-open", "");
    const path = add("path", { d: SHAPES[shape] ?? SHAPES.circle, "stroke-width": 1.5 });
    path.style.stroke = colour;
    path.style.fill = trace.marker.symbol.endsWith("-open") ? "none" : colour;
  }
  return svg;
}
