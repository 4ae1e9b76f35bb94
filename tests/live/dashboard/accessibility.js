// What axe-core would call serious, in a few lines: names, ids, headings, landmarks and contrast of what can be seen.
() => {
  const found = [];
  const seen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && element.getClientRects().length > 0;
  const say = (what, element) => found.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
  const name = (element) => element.getAttribute("aria-label") || (element.getAttribute("aria-labelledby") && document.getElementById(element.getAttribute("aria-labelledby"))?.textContent)
    || [...(element.labels ?? [])].map((label) => label.textContent).join("") || element.getAttribute("alt") || element.textContent || element.title;

  for (const element of document.querySelectorAll("button, a[href], input, select, textarea, dialog, iframe, [role=img], [role=log], [role=grid]")) {
    if (seen(element) && !name(element)?.trim() && !element.title) say("no name", element);
  }
  for (const image of document.images) if (!image.hasAttribute("alt")) say("no alternative text", image);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of ids.filter((id, i) => ids.indexOf(id) !== i)) found.push(`the id ${id} is used twice`);
  if (!document.documentElement.lang) found.push("the page has no language");
  if (!document.title) found.push("the page has no title");
  for (const [part, least] of [["main", 1], ["nav", 1], ["h1", 1]]) if (document.querySelectorAll(part).length !== least) found.push(`${document.querySelectorAll(part).length} × ${part}`);
  for (const element of document.querySelectorAll("[tabindex]")) if (element.tabIndex > 0) say("changes the order of Tab", element);

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colour = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const paint = colour(getComputedStyle(at).backgroundColor);
      layers.push(paint);
      if (paint[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const checked = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || checked.has(element) || !seen(element) || element.closest("button:disabled, noscript, .skip, [aria-hidden=true]")) continue;
    checked.add(element);
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const ground = behind(element), ink = over(colour(element.namespaceURI.endsWith("svg") ? style.fill : style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < least) say(`contrast ${ratio.toFixed(2)}`, element);
  }
  return { found, texts: checked.size };
}
