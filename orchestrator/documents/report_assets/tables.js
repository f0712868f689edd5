// Tables: sorted by their heads, filtered by a word. How a table is sorted and filtered is kept at its element
// (`data-sorted`, `data-word`), so that a live page can give it to the next version of the table.
//
// Of a table of hundreds of rows the first are laid out, and all where the reader asks for them or filters them
// (`data-whole`: printed whole, too), or searches the page. Without this script all are there from the beginning.
const FIRST_ROWS = 40;
const originals = new WeakMap();
document.documentElement.dataset.rows = "first";

function prepareTables(root) {
  for (const table of root.querySelectorAll("table.data")) prepareTable(table);
}

function prepareTable(table) {
  const body = table.tBodies[0];
  originals.set(table, [...body.rows]);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = head.querySelector("button") ?? document.createElement("button");
    button.type = "button";
    if (!button.isConnected) {
      button.append(...head.childNodes);
      head.append(button);
    }
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sortBy(table, column, nextDirection(table, column)));
  });
  if (table.classList.contains("long")) addFilter(table);
  if (body.rows.length > FIRST_ROWS) addWhole(table);
}

function addWhole(table) {
  const button = made("button", { type: "button", className: "whole", textContent: `Show all ${table.tBodies[0].rows.length} rows` });
  button.addEventListener("click", () => {
    const next = table.tBodies[0].rows[FIRST_ROWS];
    showWhole(table);
    next.scrollIntoView({ block: "nearest" });
    table.closest(".wide").focus({ preventScroll: true });
  });
  table.closest(".wide").after(button);
}

function showWhole(table) {
  table.dataset.whole = "";
}

// The browser's own search finds only what is laid out.
function showRowsToSearch(event) {
  const isSearch = event.key === "F3" || ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "f");
  if (isSearch) document.documentElement.dataset.rows = "all";
}

// Numbers begin with the highest, words with the first; the third time the order is the report's again.
function nextDirection(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const order = isNumeric(table, column) ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
  return order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % order.length];
}

function isNumeric(table, column) {
  return table.tHead.rows[0].cells[column].classList.contains("n");
}

function sortBy(table, column, direction) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, i) => head.setAttribute("aria-sort", i === column ? direction : "none"));
  table.dataset.sorted = `${column} ${direction}`;
  const rows = originals.get(table);
  const sorted = direction === "none" ? rows : inOrder(rows, column, isNumeric(table, column), direction === "ascending" ? 1 : -1);
  table.tBodies[0].append(...sorted);
}

// What is unknown comes last in either direction; equals stay in the report's order.
function inOrder(rows, column, numeric, sign) {
  const keyed = rows.map((row) => [row, keyOf(row.cells[column], numeric)]);
  const collator = new Intl.Collator("en", { numeric: true });
  keyed.sort(([, a], [, b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (numeric ? a - b || 0 : collator.compare(a, b));
  });
  return keyed.map(([row]) => row);
}

function keyOf(cell, numeric) {
  if (!cell) return null;
  const text = [...(cell.querySelector("a") ?? cell).childNodes].filter((node) => node.nodeName !== "SMALL");
  const shown = text.map((node) => node.textContent).join("").trim();
  const told = cell.dataset.s ?? shown;
  if (!numeric) return ["", "-", "\u2013", "\u2014"].includes(told) ? null : told;
  if (told === "") return null;
  const value = cell.dataset.s === undefined ? Number.parseFloat(told.replaceAll(/[,\u00a0\u202f ](?=\d{3})/g, "")) : Number(told);
  return Number.isNaN(value) ? null : value;
}

function addFilter(table) {
  const box = made("div", { className: "filter" });
  const label = document.createElement("label");
  const input = Object.assign(document.createElement("input"), { type: "search", autocomplete: "off", spellcheck: false });
  const found = document.createElement("output");
  label.append("Filter ", input);
  box.append(label, found);
  table.closest("figure").querySelector(".wide").before(box);
  input.addEventListener("input", () => filterBy(table, input.value));
  filterBy(table, "");
}

function filterBy(table, word) {
  const box = table.closest("figure").querySelector(".filter");
  const rows = originals.get(table);
  const words = word.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length) showWhole(table);
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((w) => text.includes(w));
    count += row.hidden ? 0 : 1;
  }
  table.dataset.word = word;
  box.querySelector("input").value = word;
  box.querySelector("output").textContent = words.length ? `${count} of ${rows.length} rows` : `${rows.length} rows`;
}

function restoreTable(table, earlier) {
  if (earlier.dataset.whole !== undefined) showWhole(table);
  if (earlier.dataset.word && table.classList.contains("long")) filterBy(table, earlier.dataset.word);
  if (earlier.dataset.sorted) {
    const [column, direction] = earlier.dataset.sorted.split(" ");
    if (Number(column) < table.tHead.rows[0].cells.length) sortBy(table, Number(column), direction);
  }
}
