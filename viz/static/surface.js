// A canvas that fills its panel at the screen's own resolution, with a tooltip, hit areas that take part in hover and selection,
// and a way out as an image. Canvas panels draw in CSS pixels and never care about any of this.

import { themeColors } from './palette.js';

export class Surface {
  // `context` is the panel's. The picture itself is hidden from assistive technology: the panel's describe() says it in a sentence.
  constructor(root, context, { className = '' } = {}) {
    this.context = context;
    this.box = document.createElement('div');
    this.box.className = `bs-surface ${className}`;
    this.canvas = document.createElement('canvas');
    this.canvas.setAttribute('aria-hidden', 'true');
    this.tip = document.createElement('div');
    this.tip.className = 'bs-surface-tip';
    this.tip.hidden = true;
    this.empty = document.createElement('p');
    this.empty.className = 'bs-empty';
    this.empty.hidden = true;
    this.box.append(this.canvas, this.tip, this.empty);
    root.append(this.box);
    this.areas = [];
    this.box.addEventListener('pointermove', (event) => this.#move(event));
    this.box.addEventListener('pointerleave', () => this.#leave());
    this.box.addEventListener('click', (event) => {
      const area = this.#areaAt(event);
      if (area?.id) context.select(area.id === context.selected() ? null : area.id);
    });
    this.restyle();
  }

  restyle() { this.colors = themeColors(); this.width = 0; }

  resize() { this.width = 0; }

  // Clears and returns {ctx, width, height, colors}; null while the panel has no size.
  begin() {
    if (!this.width) this.#fit();
    if (!this.width || !this.height) return null;
    const { ctx } = this;
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ctx.clearRect(0, 0, this.width, this.height);
    this.areas.length = 0;
    return { ctx, width: this.width, height: this.height, colors: this.colors };
  }

  #fit() {
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    this.ratio = Math.min(3, window.devicePixelRatio || 1);
    this.canvas.width = Math.max(1, Math.round(this.width * this.ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * this.ratio));
    this.ctx = this.canvas.getContext('2d');
    this.ctx.font = `11px ${this.colors.font}`;
  }

  // A rectangle with a sentence (text, or a function that makes it) and maybe the request it belongs to.
  area(x, y, width, height, text, id = null) { this.areas.push({ x, y, width, height, text, id }); }

  // Shows the sentence that tells what will appear here; null shows the drawing.
  say(text) {
    this.empty.hidden = text === null;
    this.canvas.hidden = text !== null;
    if (text !== null && this.empty.textContent !== text) this.empty.textContent = text;
  }

  #areaAt(event) {
    const bounds = this.box.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    return this.areas.findLast((area) => x >= area.x && x <= area.x + area.width && y >= area.y && y <= area.y + area.height);
  }

  #move(event) {
    const area = this.#areaAt(event);
    this.context.hover(area?.id ?? null);
    this.box.style.cursor = area?.id ? 'pointer' : '';
    this.tip.hidden = !area;
    if (!area) return;
    const bounds = this.box.getBoundingClientRect();
    this.tip.textContent = typeof area.text === 'function' ? area.text() : area.text;
    const right = event.clientX - bounds.left > this.width / 2;
    this.tip.style.left = right ? '' : `${event.clientX - bounds.left + 12}px`;
    this.tip.style.right = right ? `${bounds.right - event.clientX + 12}px` : '';
    this.tip.style.top = `${Math.min(this.height - 24, event.clientY - bounds.top + 12)}px`;
  }

  #leave() { this.tip.hidden = true; this.context.hover(null); }

  destroy() { this.box.remove(); }
}

// Diagonal stripes, for what must be told apart without colour.
export function hatch(ctx, x, y, width, height, color, gap = 5) {
  if (width <= 0 || height <= 0) return;
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.strokeStyle = color;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let at = x - height; at < x + width; at += gap) { ctx.moveTo(at, y + height); ctx.lineTo(at + height, y); }
  ctx.stroke();
  ctx.restore();
}
