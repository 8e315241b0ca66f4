// Reads what is really visible of an element before the control that approves: by rectangles, computed looks and text.
// Returns null if there is no such control. A fragment is visible text of one box and one face, in document order.
(within) => {
  const control = [...document.querySelectorAll("button")].find(
    (each) => /^Approve/.test(each.innerText.trim()) && each.checkVisibility() && !each.disabled);
  if (!control) return null;
  const root = document.querySelector(within), width = document.documentElement.clientWidth;
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const cached = (make, found = new Map()) => (key) => found.has(key) ? found.get(key) : found.set(key, make(key)).get(key);
  const color = cached((text) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = text; pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  });
  const over = ([r, g, b, a], under) => [r, g, b].map((each, n) => each * a + under[n] * (1 - a));
  const light = (rgb) => rgb.map((each) => each / 255).map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, n) => sum + each * [0.2126, 0.7152, 0.0722][n], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const isMono = cached((font) => { pen.font = font; return pen.measureText("iiii").width === pen.measureText("MMMM").width; });

  // What an element inherits: whether anything hides it, the ground behind it, and the rectangle that clips it.
  const look = cached((element) => {
    if (!element) return { shown: true, ground: [255, 255, 255], clip: [0, -Infinity, width, Infinity], box: null };
    const above = look(element.parentElement), style = getComputedStyle(element);
    const isRoot = element === document.body || element === document.documentElement;
    const shown = above.shown && style.opacity === "1" && style.clipPath === "none" && style.clip === "auto"
      && style.filter === "none" && style.maskImage === "none" && style.transform === "none"
      && element.ariaHidden !== "true" && !element.inert;
    let clip = above.clip;
    if (!isRoot && (style.overflowX !== "visible" || style.overflowY !== "visible")) {
      const { left, top, right, bottom } = element.getBoundingClientRect();
      clip = [Math.max(clip[0], left), Math.max(clip[1], top), Math.min(clip[2], right), Math.min(clip[3], bottom)];
    }
    const ground = over(color(style.backgroundColor), above.ground);
    const isBox = !["inline", "contents"].includes(style.display);
    const readable = style.visibility === "visible" && parseFloat(style.fontSize) >= 12 && element.checkVisibility()
      && contrast(over(color(style.color), ground), ground) >= 4.5;
    return { shown, clip, ground, readable, box: isBox ? element : above.box, size: parseFloat(style.fontSize), font: `13px ${style.fontFamily}` };
  });
  const isInside = (rect, clip) => rect.left >= clip[0] - 0.5 && rect.right <= clip[2] + 0.5 && rect.top >= clip[1] - 0.5 && rect.bottom <= clip[3] + 0.5;
  const split = new Intl.Segmenter("en", { granularity: "grapheme" }), range = document.createRange(), found = [];
  const add = (text, rects, box, mono) => {
    let last = found.at(-1);
    if (!last || last.box !== box || last.mono !== mono) found.push(last = { box, mono, text: "", left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity });
    last.text += text;
    for (const rect of rects) {
      last.left = Math.min(last.left, rect.left); last.right = Math.max(last.right, rect.right);
      last.top = Math.min(last.top, rect.top); last.bottom = Math.max(last.bottom, rect.bottom);
    }
  };
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, text = node.data, from = look(node.parentElement);
    if (!(node.compareDocumentPosition(control) & Node.DOCUMENT_POSITION_FOLLOWING)) break;
    if (!from.shown || !from.readable) continue;
    const mono = isMono(from.font);
    range.selectNodeContents(node);
    const all = [...range.getClientRects()];
    if (/^[ -~\u27e6\u27e7\u00d7]*\n?$/.test(text) && all.every((rect) => isInside(rect, from.clip))
      && all.reduce((sum, rect) => sum + rect.width, 0) > 0.3 * from.size * text.trimEnd().length && text.trim()) {
      add(text, all, from.box, mono);
      continue;
    }
    for (const { segment, index } of split.segment(text)) {
      range.setStart(node, index); range.setEnd(node, index + segment.length);
      const rects = [...range.getClientRects()].filter((rect) => rect.width > 1 && rect.height > 4 && isInside(rect, from.clip));
      const isWrap = !mono && segment === " " && found.at(-1)?.box === from.box; // of a label, in another face than the input
      if (rects.length || isWrap) add(segment, rects, from.box, mono);
    }
  }
  const top = scrollY, isCovered = ({ box, left, top: y }) => {
    scrollTo(0, y + top - innerHeight / 2);
    const hit = document.elementFromPoint(left + 2, y + top - scrollY + 6);
    return hit && !box.contains(hit) && !hit.contains(box);
  };
  const seen = found.length > 400 ? found : found.filter((each) => !isCovered(each));
  scrollTo(0, top);
  return seen.map(({ box, ...rest }) => rest);
}
