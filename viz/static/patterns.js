// Fill patterns for canvases: the diagonal hatch that says "prefill" wherever it appears.

const cache = new Map();

export function hatch(pen, color, alpha = 0.3, gap = 5) {
  const key = `${color}|${alpha}|${gap}`;
  if (!cache.has(key)) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = gap;
    const draw = tile.getContext('2d');
    draw.strokeStyle = color;
    draw.globalAlpha = alpha;
    draw.lineWidth = 1.4;
    draw.beginPath();
    for (const shift of [-gap, 0, gap]) { draw.moveTo(shift - 1, gap + 1); draw.lineTo(shift + gap + 1, -1); }
    draw.stroke();
    if (cache.size > 40) cache.clear();
    cache.set(key, pen.createPattern(tile, 'repeat'));
  }
  return cache.get(key);
}
