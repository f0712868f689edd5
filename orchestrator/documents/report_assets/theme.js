// Light, dark, or as the system has it. Where nothing may be stored (a file, a mail), the choice lasts as long as the page.
const THEMES = ["auto", "light", "dark"];
let theme = "auto";

function storedTheme() {
  try {
    const stored = localStorage.getItem("specsweep-theme");
    return THEMES.includes(stored) ? stored : "auto";
  } catch {
    return "auto";
  }
}

function applyTheme(chosen) {
  theme = chosen;
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

function themeButton() {
  const button = made("button", { type: "button", className: "theme" });
  const tell = () => {
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    applyTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
    try {
      localStorage.setItem("specsweep-theme", theme);
    } catch {
      // Lasts as long as the page.
    }
    tell();
    recolour();
  });
  tell();
  return button;
}

// Elements that scripts add: a page that was saved with them gets them anew.
function made(tag, properties = {}) {
  const element = Object.assign(document.createElement(tag), properties);
  element.dataset.made = "";
  return element;
}

applyTheme(storedTheme());
