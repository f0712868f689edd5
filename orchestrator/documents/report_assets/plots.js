// Plots: plotly.js is unpacked once, when the page has time; a plot is drawn when one comes near it, or before printing.
// They are drawn one at a time, what is in view first, so that the reader sees each as soon as it is there.
const specs = new WeakMap();
const drawn = new Set();
const PRINT_WIDTH = 690;
let library = null;
let printWidth = 0;

const waiting = new Set();
let isDrawing = false;
const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      near.unobserve(entry.target);
      waiting.add(entry.target);
    }
    drawWaiting();
  },
  { rootMargin: "400px" },
);

async function drawWaiting() {
  if (isDrawing) return;
  isDrawing = true;
  while (waiting.size) {
    const failed = await loadLibrary().then(() => null, (error) => error);
    const figure = closest([...waiting]);
    waiting.delete(figure);
    drawOrTell(figure, failed);
    await new Promise((done) => setTimeout(done));
  }
  isDrawing = false;
}

function drawOrTell(figure, failed) {
  try {
    if (failed) throw failed;
    draw(figure);
  } catch (error) {
    tellUndrawn(figure, error);
  }
}

// Closest to the middle of the window.
function closest(figures) {
  const away = figures.map((figure) => {
    const { top, bottom } = figure.getBoundingClientRect();
    return Math.abs((top + bottom - innerHeight) / 2);
  });
  return figures[away.indexOf(Math.min(...away))];
}

function preparePlots(root) {
  for (const figure of root.querySelectorAll("figure.plot")) {
    const spec = JSON.parse(figure.querySelector("script.figure").textContent);
    specs.set(figure, spec);
    const drawing = figure.querySelector(".drawing");
    drawing.replaceChildren();
    drawing.style.height = `${spec.layout.height}px`;
    drawing.classList.add("waiting");
    addLegend(figure, spec);
    near.observe(figure);
  }
}

function loadLibrary() {
  library ??= unpackLibrary();
  return library;
}

async function unpackLibrary() {
  if (!window.DecompressionStream) throw new Error("this browser is too old to unpack the library that draws plots");
  const packed = document.getElementById("library").textContent;
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(packed) : Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  script.remove();
  if (!window.Plotly) throw new Error("the browser did not run the library that draws plots");
}

function tellUndrawn(figure, error) {
  const drawing = figure.querySelector(".drawing");
  drawing.style.height = "auto";
  drawing.classList.remove("waiting");
  drawing.replaceChildren(Object.assign(document.createElement("p"), { className: "note", textContent: `Not drawn: ${error.message}. The values are below.` }));
  figure.querySelector(".values").open = true;
}

function draw(figure) {
  const drawing = figure.querySelector(".drawing");
  if (!figure.isConnected || drawn.has(drawing)) return;
  near.unobserve(figure);
  drawing.classList.remove("waiting");
  const { data, layout, config } = dressed(figure);
  window.Plotly.newPlot(drawing, data, layout, config);
  drawn.add(drawing);
  // Its words are the title and the caption; what is in it would be read as a heap of numbers.
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-labelledby", `${figure.id}-name ${figure.id}-says`);
  addTools(figure);
}

function redraw(figure) {
  const { data, layout, config } = dressed(figure);
  window.Plotly.react(figure.querySelector(".drawing"), data, layout, config);
}

function recolour() {
  for (const drawing of drawn) {
    if (drawing.isConnected) redraw(drawing.closest("figure"));
    else drawn.delete(drawing);
  }
}

function addTools(figure) {
  if (figure.querySelector(".tools")) return;
  const tools = made("div", { className: "tools" });
  const title = figure.querySelector("h3").textContent;
  const add = (text, label, act) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    button.setAttribute("aria-label", `${label}: ${title}`);
    button.addEventListener("click", act);
    tools.append(button);
  };
  const drawing = figure.querySelector(".drawing");
  add("Whole", "Show the whole plot", () => wholeView(drawing));
  add("PNG", "Save as a picture", () => {
    const { layout } = dressed(figure);
    const copy = { data: drawing.data, layout: { ...layout, paper_bgcolor: colourOf("--paper") } };
    window.Plotly.downloadImage(copy, { format: "png", width: 1200, height: 700, scale: 2, filename: figure.id });
  });
  figure.querySelector("figcaption").before(tools);
}

function wholeView(drawing) {
  window.Plotly.relayout(drawing, { "xaxis.autorange": true, "yaxis.autorange": drawing.layout.yaxis.autorange === "reversed" ? "reversed" : true });
  redraw(drawing.closest("figure"));
}

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A copy with the colours of the theme, the sizes of the screen, and what is shown of an interval.
function dressed(figure) {
  const spec = specs.get(figure);
  const width = printWidth || figure.clientWidth;
  const small = width < 560;
  const font = { family: getComputedStyle(document.body).fontFamily, size: small ? 11 : 13, color: colourOf("--ink") };
  const axis = { gridcolor: colourOf("--grid"), linecolor: colourOf("--line"), zerolinecolor: colourOf("--line"), automargin: true, tickcolor: colourOf("--line"), showline: true };
  const layout = {
    ...spec.layout,
    font,
    autosize: !printWidth,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: small ? { l: 44, r: 8, t: 10, b: 40 } : { l: 64, r: 16, t: 10, b: 48 },
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: colourOf("--raised"), bordercolor: colourOf("--line"), font: { ...font, size: 12 }, align: "left", namelength: -1 },
    dragmode: printWidth || matchMedia("(pointer: coarse)").matches ? false : "zoom",
    uirevision: "kept",
    bargap: 0.25,
    xaxis: { ...axis, ...spec.layout.xaxis, title: { ...spec.layout.xaxis.title, standoff: 8 } },
    yaxis: { ...axis, ...spec.layout.yaxis, title: { ...spec.layout.yaxis.title, standoff: 8 } },
  };
  if (printWidth) layout.width = printWidth;
  const isGantt = spec.data.some((trace) => trace.orientation === "h");
  if (small) for (const name of ["xaxis", "yaxis"]) shortenTicks(spec, layout, name);
  if (small && layout.xaxis.type === "date") Object.assign(layout.xaxis, { nticks: 4, tickangle: 0 });
  if (isGantt && small) layout.yaxis.title = { text: "" };
  for (const [name, room] of [["xaxis", width - 80], ["yaxis", spec.layout.height - 80]]) {
    layout[name].title.text = wrapped(layout[name].title.text, Math.max(12, Math.floor(room / 7)));
  }
  if (spec.spans) addSpans(spec.spans, layout, spec.data, width);
  const data = spec.data.map((trace) => dressedTrace(trace, layout));
  return {
    data: [...data, ...bandsOf(data)],
    layout,
    config: { displayModeBar: false, displaylogo: false, responsive: true, showLink: false, plotlyServerURL: "", doubleClick: "reset+autosize" },
  };
}

// Shaded stretches, each with its name where that has room.
function addSpans(spans, layout, data, width) {
  const xs = [...data.flatMap((trace) => trace.x), ...spans.flatMap(([from, to]) => [from, to])].filter((x) => typeof x === "number");
  const scale = (width - 80) / (Math.max(...xs) - Math.min(...xs) || 1);
  const place = { xref: "x", yref: "paper" };
  layout.shapes = spans.map(([x0, x1]) => ({ ...place, type: "rect", x0, x1, y0: 0, y1: 1, fillcolor: colourOf("--good"), opacity: 0.12, line: { width: 0 }, layer: "below" }));
  layout.annotations = spans
    .filter(([from, to, name]) => (to - from) * scale > plainText(name).length * 6.5)
    .map(([from, to, text]) => ({ ...place, x: (from + to) / 2, y: 1, yanchor: "bottom", text, showarrow: false, font: { size: 11, color: colourOf("--soft") } }));
  layout.margin = { ...layout.margin, t: 24 };
}

function dressedTrace(trace, layout) {
  const copy = coloured(trace);
  const reach = trace.error_y ?? trace.band;
  if (trace.orientation === "h") {
    copy.customdata = trace.x.map((length) => (layout.xaxis.type === "date" ? `${short(length / 1000)} s` : short(length)));
  } else if (reach) {
    const { array, arrayminus } = reach;
    copy.customdata = trace.y.map((y, i) => (y === null || (!array[i] && !arrayminus[i]) ? "" : `interval ${short(y - arrayminus[i])} to ${short(y + array[i])}`));
  }
  if (trace.band) {
    // A point between gaps has no band: it keeps its bar.
    const alone = (i) => (trace.y[i - 1] ?? null) === null && (trace.y[i + 1] ?? null) === null;
    const kept = (values) => values.map((value, i) => (alone(i) ? value : 0));
    copy.error_y = { ...copy.band, array: kept(reach.array), arrayminus: kept(reach.arrayminus) };
    if (!copy.error_y.array.some(Boolean) && !copy.error_y.arrayminus.some(Boolean)) delete copy.error_y;
  }
  return copy;
}

// Many bands over each other are a fog: each is the thinner.
function bandsOf(data) {
  const banded = data.filter((trace) => trace.band);
  return banded.map((trace) => bandOf(trace, banded.length > 3 ? 0.1 : 0.2));
}

// The interval along a line, beneath all that is read: forth along its upper bounds, back along its lower ones.
function bandOf(trace, opacity) {
  const x = [];
  const y = [];
  let from = 0;
  const close = (to) => {
    if (to - from > 1) {
      const places = [...Array(to - from).keys()].map((k) => k + from);
      if (x.length) x.push(trace.x[from]), y.push(null);
      x.push(...places.map((i) => trace.x[i]), ...places.toReversed().map((i) => trace.x[i]));
      y.push(...places.map((i) => trace.y[i] + trace.band.array[i]), ...places.toReversed().map((i) => trace.y[i] - trace.band.arrayminus[i]));
    }
    from = to + 1;
  };
  trace.y.forEach((value, i) => value === null && close(i));
  close(trace.y.length);
  const looks = { type: "scatter", mode: "none", fill: "toself", fillcolor: trace.marker.color, opacity, hoverinfo: "skip", showlegend: false };
  return { ...looks, x, y, name: "", visible: trace.visible ?? true };
}

function short(value) {
  return String(Number(value.toPrecision(4)));
}

function coloured(value) {
  if (Array.isArray(value) || value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, key === "color" && typeof inner === "string" && inner.startsWith("--") ? colourOf(inner) : coloured(inner)]),
  );
}

// Names of categories leave a phone no room for the plot: what they begin with in common goes, then their middles.
const TICK_CHARACTERS = 14;
function shortenTicks(spec, layout, name) {
  if (layout[name].type !== "category") return;
  const values = [...new Set([...(layout[name].categoryarray ?? []), ...spec.data.flatMap((trace) => trace[name[0]])])];
  const plain = values.map((value) => plainText(String(value)));
  if (!plain.some((text) => text.length > TICK_CHARACTERS)) return;
  const common = commonStart(plain.filter((text) => text.length > TICK_CHARACTERS));
  layout[name] = { ...layout[name], tickmode: "array", tickvals: values, ticktext: plain.map((text) => plotText(shortTick(text, common))) };
}

function commonStart(texts) {
  if (texts.length < 2) return "";
  let size = 0;
  while (size < texts[0].length - 1 && texts.every((text) => text[size] === texts[0][size])) size += 1;
  const word = texts[0].slice(0, size).match(/^.*[^A-Za-z0-9]/);
  return word ? word[0] : "";
}

function shortTick(text, common) {
  if (text.length <= TICK_CHARACTERS) return text;
  const rest = common.length > 2 && text.startsWith(common) ? `\u2026${text.slice(common.length)}` : text;
  return rest.length <= TICK_CHARACTERS + 1 ? rest : `${rest.slice(0, 5)}\u2026${rest.slice(5 - TICK_CHARACTERS)}`;
}

// To and from what plotly reads (escaped in report_plots.py).
const ENTITIES = { "&lt;": "<", "&gt;": ">", "&#37;": "%", "&#36;": "$", "&amp;": "&" };
function plainText(text) {
  return text.replaceAll(/&(?:lt|gt|amp|#3[67]);/g, (entity) => ENTITIES[entity]);
}

function plotText(plain) {
  return plain.replaceAll(/[&<>%$]/g, (sign) => Object.keys(ENTITIES).find((entity) => ENTITIES[entity] === sign));
}

// A title longer than the plot is wide, on lines of its own.
function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = lines.at(-1);
    if (line && plainText(`${line} ${word}`).length > most) lines.push(word);
    else lines[lines.length - 1] = line ? `${line} ${word}` : word;
  }
  return lines.join("<br>");
}

function drawAllForPrint() {
  printWidth = PRINT_WIDTH;
  if (!window.Plotly) return;
  for (const figure of document.querySelectorAll("figure.plot")) {
    if (drawn.has(figure.querySelector(".drawing"))) redraw(figure);
    else draw(figure);
  }
}

function drawForScreen() {
  printWidth = 0;
  recolour();
}
