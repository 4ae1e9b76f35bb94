// Which ink can be read on a colour: black or white, whichever has more contrast (WCAG 2).

const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function luminance(rgb) {
  const [r, g, b] = rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** The ink for text on a fill, both as #rrggbb; a fill that lets a part of its background through is named with it. */
export function inkOn(fill, opacity = 1, back = fill) {
  const [top, under] = [parts(fill), parts(back)];
  const light = luminance(top.map((value, i) => opacity * value + (1 - opacity) * under[i]));
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#ffffff" : "#000000";
}
