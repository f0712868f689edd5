// Texts whose contrast with what is behind them is below 4.5 to 1 (3 to 1 where they are large), as WCAG counts it.
() => {
  const parsed = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const found = parsed(getComputedStyle(e).backgroundColor);
      if (found.a === 1) return found;
    }
    return { r: 255, g: 255, b: 255 };
  };
  const weak = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest("script, style, noscript, .skip")) continue;
    const style = getComputedStyle(element);
    const colour = parsed(element.closest("svg") ? style.fill : style.color);
    if (colour.a === 0) continue;
    const [high, low] = [light(colour), light(behind(element))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) weak.push(`${ratio.toFixed(2)} ${texts.currentNode.data.trim().slice(0, 40)}`);
  }
  return weak;
}
