// Request timeline: a row a request. Thin dotted: waiting; hatched blocks: prefill slices; solid with ticks: decoding; dashed: its
// blocks are in host memory; arrow back: soft reset; tick, cross: the end.

import { lives } from '../tracks.js';
import { hatch } from '../patterns.js';

const FAST = 20;                     // steps per second

export default class Timeline {
  constructor(root, spec, context) {
    Object.assign(this, { root, options: spec.options, context });
    this.lives = lives(context.store);
    this.plot = context.plot(root, spec.figure, () => context.invalidate('timeline'));
    this.labels = document.createElement('div');
    this.labels.className = 'bs-timeline-labels';
    this.plot.holder.append(this.labels);
    this.empty = Object.assign(document.createElement('p'), { className: 'bs-empty bs-over' });
    this.empty.dataset.t = 'panel.timeline.empty';
    root.append(this.empty);
    context.t.apply(root);
    this.rows = [];
    this.plot.holder.addEventListener('pointermove', (event) => this.#point(event));
    this.plot.holder.addEventListener('pointerleave', () => { context.hover(null); context.tooltip.hide(); });
    this.plot.holder.addEventListener('click', (event) => this.#click(event));
  }

  update(view) {
    if (!this.plot.resize()) return;
    this.view = view;
    // A fast engine gets a longer window, or its rows would rush by; some slack keeps the window from flickering between the two.
    const rate = view.live ? this.context.rate() : 0;
    if (rate > FAST * 1.3) this.fast = true; else if (rate < FAST * 0.8) this.fast = false;
    const advance = this.options.advance * (this.fast ? 6 : 1);
    const reached = Math.ceil((view.step + 2) / advance) * advance;
    // A young run fills its window before the window grows.
    const span = Math.min(Math.max(reached, this.#window()), this.options.window * (this.fast ? 3 : 1));
    this.span = span;
    const right = Math.max(span, reached);
    const left = right - span;
    this.left = left;
    this.#rowsInSight(view, left);
    const nothing = this.rows.length === 0;
    if (this.empty.hidden === nothing) this.empty.hidden = !nothing;
    this.plot.relayout({ 'xaxis.range': [left, right] });
    this.#draw(view);
    this.#drawLabels();
  }

  // A recording shorter than the window gets a shorter one: its end is known.
  #window() {
    const { store } = this.context;
    const { window, window_least: least, advance } = this.options;
    return store.whole ? Math.min(window, Math.max(least, Math.ceil((store.head.step + 2) / advance) * advance)) : window;
  }

  // Requests alive in the window, by arrival; when there are more than fit, those that ended first give way.
  #rowsInSight(view, left) {
    const alive = [];
    for (const life of this.lives.byId.values()) {
      if (life.firstSeq > view.seq || !life.spans.length) continue;
      const end = life.spans.at(-1).to;
      if (end === null || end >= left) alive.push(life);
    }
    const height = this.plot.area.height;
    const capacity = Math.max(1, Math.floor(height / this.options.row_least));
    const total = alive.length;
    if (total > capacity) {
      // Ended first, then the newest of those that still wait give way.
      alive.sort((one, other) => (one.spans.at(-1).to ?? Infinity) - (other.spans.at(-1).to ?? Infinity) || one.ordinal - other.ordinal);
      const ended = alive.filter((life) => life.spans.at(-1).to !== null).length;
      alive.splice(0, Math.min(ended, alive.length - capacity));
      alive.splice(capacity);
    }
    const hidden = total - alive.length;
    this.context.note(hidden > 0 ? this.context.t('panel.timeline.note', { shown: alive.length, total }) : '');
    alive.sort((one, other) => one.ordinal - other.ordinal);
    this.rows = alive;
    this.rowHeight = Math.min(this.options.row_most, height / Math.max(1, alive.length));
  }

  #draw(view) {
    const { plot, rowHeight, left } = this;
    const { pen, area } = plot;
    const colors = this.context.colors();
    const lit = this.context.highlighted();
    const unit = area.width / this.span;
    const now = view.step + 1;
    const x = (step) => Math.max(0, (step - left) * unit);
    plot.clear();
    this.rows.forEach((life, at) => {
      const top = at * rowHeight;
      const bar = Math.max(3, rowHeight - (rowHeight > 9 ? 4 : 2));
      const y = top + (rowHeight - bar) / 2;
      const middle = y + bar / 2;
      const color = this.context.palette.color(life.ordinal);
      pen.globalAlpha = lit && lit !== life.id ? 0.25 : 1;
      if (lit === life.id) { pen.fillStyle = colors.sunken; pen.fillRect(0, top, area.width, rowHeight); }
      for (const span of life.spans) {
        const to = Math.min(span.to ?? now, now);
        if (to <= left || span.from >= now) continue;
        pen.strokeStyle = span.kind === 'queued' ? colors.soft : color;
        pen.lineWidth = span.kind === 'active' ? 1 : 1.5;
        pen.setLineDash(span.kind === 'queued' ? [1.5, 3] : span.kind === 'offloaded' ? [5, 4] : []);
        pen.beginPath();
        pen.moveTo(x(span.from), middle);
        pen.lineTo(x(to), middle);
        pen.stroke();
      }
      pen.setLineDash([]);
      for (const run of life.work) {
        const to = Math.min(run.to, now);
        if (to <= left || run.from >= now) continue;
        const from = x(run.from);
        const width = Math.max(1, x(to) - from);
        if (run.kind === 'prefill') {
          pen.fillStyle = color;
          pen.fillRect(from, y, Math.max(1, width - 0.7), bar);
          pen.fillStyle = hatch(pen, colors.surface, 0.35);
          pen.fillRect(from, y, Math.max(1, width - 0.7), bar);
        } else if (run.kind === 'decode') {
          pen.fillStyle = color;
          pen.fillRect(from, y + bar * 0.2, width, bar * 0.6);
        } else {
          pen.fillStyle = colors.padding;
          pen.fillRect(from, y + bar * 0.3, width, bar * 0.4);
        }
      }
    });
    // One thin line a step through all rows cuts the runs into ticks, at a fraction of the cost of drawing each tick.
    if (unit > 4) {
      pen.globalAlpha = 1;
      pen.fillStyle = colors.surface;
      for (let step = left; step < now; step += 1) pen.fillRect(x(step) - 0.4, 0, 0.8, area.height);
    }
    this.rows.forEach((life, at) => {
      const bar = Math.max(3, rowHeight - (rowHeight > 9 ? 4 : 2));
      const middle = at * rowHeight + rowHeight / 2;
      const color = this.context.palette.color(life.ordinal);
      pen.globalAlpha = lit && lit !== life.id ? 0.25 : 1;
      for (const mark of life.marks) {
        if (mark.seq > view.seq || mark.step < left) continue;
        this.#mark(pen, mark, x(mark.step + (mark.kind === 'offload' || mark.kind === 'soft_reset' || mark.kind === 'restore' ? 0 : 1)), middle, colors, color, bar);
      }
    });
    pen.globalAlpha = 1;
    pen.strokeStyle = view.live ? colors.accent : colors.warn;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x(now), 0);
    pen.lineTo(x(now), area.height);
    pen.stroke();
  }

  #mark(pen, mark, x, y, colors, color, bar) {
    const glyph = { offload: '⇣', restore: '⇡', soft_reset: '↺', finished: '✓', cancelled: '⊘', failed: '✕' }[mark.kind];
    pen.font = `700 ${Math.max(9, Math.min(13, bar))}px ${colors.font}`;
    pen.textAlign = mark.kind === 'finished' || mark.kind === 'failed' || mark.kind === 'cancelled' ? 'left' : 'center';
    pen.textBaseline = 'middle';
    pen.fillStyle = mark.kind === 'failed' || mark.kind === 'soft_reset' ? colors.bad : mark.kind === 'offload' ? colors.warn : mark.kind === 'restore' ? colors.good : color;
    pen.fillText(glyph, x + (pen.textAlign === 'left' ? 2 : 0), y);
    pen.textAlign = 'left';
    pen.textBaseline = 'alphabetic';
  }

  // Row labels are elements, so that they take part in hover, focus and pin; rebuilt only when the rows change.
  #drawLabels() {
    const step = this.rowHeight >= 11 ? 1 : Math.ceil(11 / this.rowHeight);
    const key = `${this.rows.map((life) => life.id).join()}|${this.rowHeight.toFixed(1)}|${this.plot.area.left}`;
    if (key === this.labelKey) return;
    this.labelKey = key;
    this.labels.replaceChildren(...this.rows.map((life, at) => {
      if (at % step) return '';
      const label = document.createElement('button');
      label.type = 'button';
      label.tabIndex = -1;
      label.dataset.request = life.id;
      const { color, mark, label: name } = this.context.palette.of(life);
      label.append(Object.assign(document.createElement('i'), { textContent: mark }), ` ${name}`);
      label.style.cssText = `top:${this.plot.area.top + at * this.rowHeight}px;height:${this.rowHeight}px;width:${this.plot.area.left - 4}px;--hue:${color}`;
      return label;
    }));
  }

  #at(event) {
    const place = this.plot.locate(event);
    if (!place || !this.rows.length) return null;
    const life = this.rows[Math.floor(place.y / this.rowHeight)];
    return life ? { life, step: Math.floor(this.left + (place.x / this.plot.area.width) * this.span) } : null;
  }

  #point(event) {
    const found = this.#at(event);
    if (!found) { if (!event.target.closest('[data-request]')) { this.context.hover(null); this.context.tooltip.hide(); } return; }
    this.context.hover(found.life.id);
    this.context.tooltip.show(event.clientX, event.clientY, this.#tell(found.life, found.step));
  }

  #tell(life, step) {
    const { t, number } = this.context;
    const work = life.work.find((run) => run.from <= step && step < run.to);
    const span = life.spans.find((item) => item.from <= step && step < (item.to ?? Infinity));
    const what = work ? (work.kind === 'prefill' ? t('timeline.prefill', { count: number(work.count) }) : t(`timeline.${work.kind}`)) : span ? t(`timeline.${span.kind}`) : t('timeline.ended');
    return t('timeline.tip', { id: this.context.palette.label(life), step: number(step), what });
  }

  // A click on a row pins its request; with Shift it also looks at that step.
  #click(event) {
    const found = this.#at(event);
    if (!found) return;
    if (event.shiftKey) this.context.store.seekStep(found.step);
    else this.context.select(found.life.id === this.context.selected() ? null : found.life.id);
  }

  resize() { this.plot.resize(); this.labelKey = null; }
  restyle() { this.plot.retheme(); this.labelKey = null; }
  highlight() { this.context.invalidate('timeline'); }

  describe(view) {
    return this.context.t('panel.timeline.describe', { count: this.rows.length, from: Math.max(0, this.left ?? 0), to: view.step });
  }

  destroy() { this.plot.destroy(); }
}
