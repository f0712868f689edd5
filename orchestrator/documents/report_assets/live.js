// A live page: what changed comes by events, and takes the place of what was there without moving the reader.
const pending = new Map();
let wanted = null;

function startLive(url) {
  rememberParts();
  const state = document.getElementById("state");
  const source = new EventSource(url);
  source.addEventListener("open", () => tellState("Live"));
  source.addEventListener("head", (event) => {
    const { html, sections } = JSON.parse(event.data);
    wanted = sections;
    replaceHead(html);
    arrange();
    tellState(`Live, last change ${new Date().toLocaleTimeString()}`);
  });
  source.addEventListener("section", (event) => {
    const { id, html } = JSON.parse(event.data);
    replaceSection(id, html);
    tellState(`Live, last change ${new Date().toLocaleTimeString()}`);
  });
  source.addEventListener("done", () => {
    source.close();
    tellState("The run has ended: this is its report");
  });
  source.addEventListener("error", () => tellState("No connection: what is shown is the last that came"));
  document.addEventListener("selectionchange", () => {
    for (const [id, html] of [...pending]) if (!isSelectedIn(document.getElementById(id))) replaceSection(id, html);
  });
  function tellState(text) {
    if (state.textContent !== text) state.textContent = text;
  }
}

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// What each part was before scripts added to it, by its element: what comes again as it was changes nothing.
const arrived = new WeakMap();

function rememberParts() {
  const head = document.getElementById("head");
  arrived.set(head, head.innerHTML.trim());
  for (const part of document.querySelectorAll("#parts > section")) arrived.set(part, part.outerHTML);
}

function replaceHead(html) {
  const head = document.getElementById("head");
  const fresh = Object.assign(document.createElement("div"), { id: "head" });
  fresh.append(parsed(html));
  const plain = fresh.innerHTML.trim();
  if (arrived.get(head) === plain) return;
  arrived.set(fresh, plain);
  const scrolled = head.querySelector(".places")?.scrollLeft ?? 0;
  replaceInPlace(head, fresh);
  const places = fresh.querySelector(".places");
  if (places) places.scrollLeft = scrolled;
  document.title = fresh.querySelector("h1")?.textContent ?? document.title;
  markPlace();
}

function replaceSection(id, html) {
  const fresh = parsed(html).querySelector("section");
  const old = document.getElementById(id);
  if (!fresh) return;
  const plain = fresh.outerHTML;
  if (old && arrived.get(old) === plain) {
    pending.delete(id);
    return;
  }
  if (isSelectedIn(old)) {
    pending.set(id, html);
    return;
  }
  pending.delete(id);
  arrived.set(fresh, plain);
  if (old) {
    replaceInPlace(old, fresh);
    return;
  }
  document.getElementById("parts").append(fresh);
  prepare(fresh);
  arrange();
}

// The reader's place is what is at the top of the window: it stays where it is on the screen.
function replaceInPlace(old, fresh) {
  const held = placeHeld(old);
  const focus = focusIn(old);
  prepareFrom(old, fresh, () => old.replaceWith(fresh));
  const kept = held && (held.element.isConnected ? held.element : held.key && document.getElementById(held.key));
  if (kept) scrollBy({ top: kept.getBoundingClientRect().top - held.top, behavior: "instant" });
  if (focus) focusAgain(fresh, focus);
}

function placeHeld(old) {
  if (scrollY === 0) return null;
  const blocks = document.querySelectorAll("#head .card, #parts h2, #parts figure, #parts details, #parts .remark, #parts .facts");
  for (const element of blocks) {
    const { top, bottom } = element.getBoundingClientRect();
    if (bottom < 60) continue;
    const key = old.contains(element) ? (element.id || element.closest("[id]").id) : "";
    return { element, key, top: key && !element.id ? document.getElementById(key).getBoundingClientRect().top : top };
  }
  return null;
}

function prepareFrom(old, fresh, put) {
  const folds = new Map([...old.querySelectorAll("details[data-key]")].map((fold) => [fold.dataset.key, fold.open]));
  for (const fold of fresh.querySelectorAll("details[data-key]")) fold.open = folds.get(fold.dataset.key) ?? fold.open;
  const boxes = [...old.querySelectorAll(".wide, pre, .keys")].map((box) => [box.scrollLeft, box.scrollTop]);
  const earlier = new Map([...old.querySelectorAll("figure[id]")].map((figure) => [figure.id, figure]));
  put();
  prepare(fresh);
  for (const figure of fresh.querySelectorAll("figure[id]")) {
    const before = earlier.get(figure.id);
    if (!before) continue;
    const [table, tableBefore] = [figure.querySelector("table.data"), before.querySelector("table.data")];
    if (table && tableBefore) restoreTable(table, tableBefore);
    if (figure.classList.contains("plot") && before.classList.contains("plot")) restorePlot(figure, before);
  }
  const after = [...fresh.querySelectorAll(".wide, pre, .keys")];
  if (after.length === boxes.length) after.forEach((box, i) => box.scrollTo({ left: boxes[i][0], top: boxes[i][1], behavior: "instant" }));
}

// The drawing itself is moved, so that zoom stays and nothing flickers; what was hidden stays hidden, by its name.
function restorePlot(figure, before) {
  const drawing = before.querySelector(".drawing");
  const names = [...before.querySelectorAll(".keys button[aria-pressed='false']")].map((button) => button.textContent);
  if (drawn.has(drawing)) {
    near.unobserve(figure);
    figure.querySelector(".drawing").replaceWith(drawing);
    drawing.style.height = `${specs.get(figure).layout.height}px`;
    redraw(figure);
    addTools(figure);
  }
  const buttons = [...figure.querySelectorAll(".keys button")];
  if (names.length) showKeys(figure, (_, i) => !names.includes(buttons[i].textContent));
}

function focusIn(old) {
  const active = document.activeElement;
  if (!active || !old.contains(active)) return null;
  const all = [...old.querySelectorAll("a, button, input, summary, [tabindex]")];
  const input = active.tagName === "INPUT" ? [active.selectionStart, active.selectionEnd] : null;
  return { index: all.indexOf(active), tag: active.tagName, text: active.textContent, input };
}

function focusAgain(fresh, { index, tag, text, input }) {
  const all = [...fresh.querySelectorAll("a, button, input, summary, [tabindex]")];
  const same = all[index]?.tagName === tag && all[index].textContent === text ? all[index] : all.find((e) => e.tagName === tag && e.textContent === text);
  (same ?? all[index])?.focus({ preventScroll: true });
  if (input && same?.setSelectionRange) same.setSelectionRange(...input);
}

function isSelectedIn(element) {
  const selection = getSelection();
  return Boolean(element && selection && !selection.isCollapsed && element.contains(selection.anchorNode));
}

// In the order of the last head; what it does not name goes.
function arrange() {
  if (!wanted) return;
  const parts = document.getElementById("parts");
  for (const part of [...parts.children]) if (!wanted.includes(part.id)) part.remove();
  const ordered = wanted.map((id) => document.getElementById(id)).filter((part) => part?.parentElement === parts);
  if (ordered.some((part, i) => parts.children[i] !== part)) parts.append(...ordered);
  markPlace();
}
