// What the page does once it is there. Without it everything but the plots is there all the same.
function prepare(root) {
  prepareTables(root);
  preparePlots(root);
  for (const code of root.querySelectorAll("figure.code")) code.querySelector("pre").before(copyButton(code));
}

function copyButton(code) {
  const button = made("button", { type: "button", className: "copy", textContent: "Copy" });
  button.setAttribute("aria-label", `Copy ${code.querySelector("figcaption")?.textContent ?? "this text"}`);
  button.addEventListener("click", async () => {
    const text = code.querySelector("code").textContent;
    button.textContent = (await copied(text)) ? "Copied" : "Not copied";
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  });
  return button;
}

// A page from a disk may have no clipboard: then the text is selected and copied the old way.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function openAround(hash, behavior = "auto") {
  let target = null;
  try {
    target = document.getElementById(decodeURIComponent(hash.slice(1)));
  } catch {
    return;
  }
  for (let inner = target; inner; inner = inner.parentElement) if (inner.tagName === "DETAILS") inner.open = true;
  target?.scrollIntoView({ behavior });
}

function markPlace() {
  const links = [...document.querySelectorAll(".places a")];
  const parts = links.map((link) => document.getElementById(link.hash.slice(1)));
  const line = Math.min(innerHeight / 3, 240);
  let current = 0;
  parts.forEach((part, i) => {
    if (part && part.getBoundingClientRect().top <= line) current = i;
  });
  if (innerHeight + scrollY >= document.documentElement.scrollHeight - 4) current = links.length - 1;
  links.forEach((link, i) => (i === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
}

const openedToPrint = [];
function beforePrint() {
  document.documentElement.dataset.theme = "light";
  for (const fold of document.querySelectorAll(".card details.fold:not([open])")) {
    fold.open = true;
    openedToPrint.push(fold);
  }
  drawAllForPrint();
}

function afterPrint() {
  applyTheme(theme);
  for (const fold of openedToPrint.splice(0)) fold.open = false;
  drawForScreen();
}

function start() {
  for (const element of document.querySelectorAll("[data-made]")) element.remove();
  document.querySelector(".bar").append(themeButton());
  if (document.body.dataset.events) startLive(document.body.dataset.events);
  prepare(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", afterPrint);
  addEventListener("keydown", showRowsToSearch);
  addEventListener("hashchange", () => openAround(location.hash));
  if (location.hash) openAround(location.hash, "instant"); // what would be scrolled past is not drawn
  let waiting = false;
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      markPlace();
    });
  };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon, { passive: true });
  markPlace();
  if (document.querySelector("figure.plot")) (window.requestIdleCallback ?? setTimeout)(() => loadLibrary().catch(() => {}));
}

document.addEventListener("DOMContentLoaded", start);
