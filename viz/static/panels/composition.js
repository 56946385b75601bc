// Step composition. Above, this step as one bar as long as the token budget: decodes, prefill slices by request, padding, unused.
// Below, the same for the steps before it, stacked on the canvas under Plotly's axes.

import { stepRows } from '../tracks.js';
import { hatch } from '../patterns.js';

const BAR_HEIGHT = 30;

export default class Composition {
  constructor(root, spec, context) {
    Object.assign(this, { root, options: spec.options, context });
    root.innerHTML = `<div class="bs-step-bar"><canvas height="${BAR_HEIGHT}" role="img"></canvas></div>
      <dl class="bs-step-figures">${['decode', 'prefill', 'padding', 'unused'].map((kind) => `<div data-term="${kind}" tabindex="0"><dt><i class="bs-swatch" data-kind="${kind}"></i><span data-t="work.${kind}"></span></dt><dd data-figure="${kind}">0</dd></div>`).join('')}
        <div data-term="request_cap" tabindex="0"><dt data-t="work.requests"></dt><dd data-figure="requests">0</dd></div></dl>
      <div class="bs-plot-slot"></div>`;
    context.t.apply(root);
    this.bar = root.querySelector('canvas');
    this.bar.setAttribute('aria-label', context.t('panel.composition.title'));
    this.pen = this.bar.getContext('2d');
    this.figures = Object.fromEntries([...root.querySelectorAll('[data-figure]')].map((element) => [element.dataset.figure, element]));
    this.shown = {};
    this.rows = stepRows(context.store);
    this.plot = context.plot(root.querySelector('.bs-plot-slot'), spec.figure, () => context.invalidate('composition'));
    this.segments = [];
    this.barWatcher = new ResizeObserver(([record]) => { this.barWidth = Math.floor(record.contentRect.width); context.invalidate('composition'); });
    this.barWatcher.observe(this.bar);
    this.barWidth = this.bar.clientWidth;
    this.bar.addEventListener('pointermove', (event) => this.#pointBar(event));
    this.plot.canvas.parentElement.addEventListener('pointermove', (event) => this.#pointHistory(event));
    for (const element of [this.bar, this.plot.canvas.parentElement]) {
      element.addEventListener('pointerleave', () => { context.hover(null); context.tooltip.hide(); });
      element.addEventListener('click', () => { const id = context.highlighted(); if (id) context.select(id === context.selected() ? null : id); });
    }
  }

  update(view) {
    const { state } = view;
    this.state = state;
    const parts = this.#partsOf(state.last.slices, state.last.budget, state.config);
    this.#drawFigures(parts, state);
    this.#drawBar(parts, state);
    this.#drawHistory(view);
    this.context.note(this.#graphText(state.last.graph));
  }

  #partsOf(slices, budget, config) {
    let decode = 0;
    let prefill = 0;
    let idle = 0;
    for (const [, , count, kind] of slices) {
      if (kind === 'decode') decode += count; else if (kind === 'prefill') prefill += count; else idle += count;
    }
    const padding = (budget?.padding ?? 0) + idle;
    const most = config?.max_batch_tokens ?? budget?.tokens?.[1] ?? 0;
    return { decode, prefill, padding, most, unused: Math.max(0, most - decode - prefill - idle) };
  }

  #graphText(graph) {
    if (!graph) return '';
    const { t } = this.context;
    const shape = graph.key ? ` ${Array.isArray(graph.key) ? graph.key.join('×') : graph.key}` : '';
    return `${t(`graph.${graph.action}`)}${graph.action === 'eager' ? '' : shape}${graph.backend === 'cpu' && graph.action !== 'eager' ? ` (${t('graph.cpu')})` : ''}`;
  }

  #drawFigures(parts, state) {
    const requests = state.last.budget?.requests;
    const values = {
      decode: parts.decode, prefill: parts.prefill, padding: parts.padding, unused: parts.unused,
      requests: `${requests?.[0] ?? state.active.length} / ${state.config?.max_requests_per_batch ?? requests?.[1] ?? 0}`,
    };
    this.#reserve(parts.most, state.config?.max_requests_per_batch ?? requests?.[1] ?? 0);
    for (const [name, value] of Object.entries(values)) {
      if (this.shown[name] === value) continue;
      this.shown[name] = value;
      if (name === 'padding') this.#keepPadding(value);
      this.figures[name].textContent = typeof value === 'number' ? this.context.number(value) : value;
    }
  }

  // Padding that was there once keeps its place on a narrow screen.
  #keepPadding(value) {
    this.shown.padded ||= value > 0;
    this.figures.padding.parentElement.dataset.zero = String(!this.shown.padded);
  }

  // Widths follow the limits, which rarely change, and not the values, which change with every step.
  #reserve(tokens, requests) {
    const key = `${tokens}|${requests}`;
    if (key === this.reserved) return;
    this.reserved = key;
    for (const [name, element] of Object.entries(this.figures)) {
      element.style.setProperty('--digits', name === 'requests' ? 2 * String(requests).length + 2 : this.context.number(tokens).length);
    }
  }

  #drawBar(parts, state) {
    const width = this.barWidth;
    if (!width) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    if (this.bar.width !== Math.round(width * ratio)) { this.bar.width = Math.round(width * ratio); this.bar.height = BAR_HEIGHT * ratio; }
    const { pen } = this;
    const colors = this.context.colors();
    const lit = this.context.highlighted();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, BAR_HEIGHT);
    pen.fillStyle = colors.sunken;
    pen.beginPath();
    pen.roundRect(0, 0, width, BAR_HEIGHT, 5);
    pen.fill();
    const total = Math.max(parts.most, parts.decode + parts.prefill + parts.padding, 1);
    const scale = width / total;
    let x = 0;
    this.segments = [];
    pen.save();
    pen.beginPath();
    pen.roundRect(0, 0, width, BAR_HEIGHT, 5);
    pen.clip();
    for (const [id, start, count, kind] of state.last.slices) {
      const request = state.requests[id];
      const size = count * scale;
      const color = request ? this.context.palette.color(request.ordinal) : colors.padding;
      pen.globalAlpha = lit && lit !== id ? 0.25 : 1;
      pen.fillStyle = kind === 'padding' ? colors.padding : color;
      pen.fillRect(x, 0, Math.max(size - (size > 3 ? 1 : 0), 0.5), BAR_HEIGHT);
      if (kind === 'prefill') { pen.fillStyle = hatch(pen, colors.surface, 0.28); pen.fillRect(x, 0, Math.max(size - 1, 0.5), BAR_HEIGHT); }
      if (request && size > 46) {
        const label = this.context.palette.label(request);
        pen.fillStyle = colors.surface;
        pen.font = `600 12px ${colors.font}`;
        const text = size > 86 ? `${label} · ${count}` : label;
        const textWidth = pen.measureText(text).width;
        pen.fillStyle = colors.surface;
        pen.beginPath();
        pen.roundRect(x + 5, 7, textWidth + 10, 16, 4);
        pen.fill();
        pen.fillStyle = colors.text;
        pen.fillText(text, x + 10, 19);
      }
      this.segments.push({ x, end: x + size, id, start, count, kind });
      x += size;
    }
    pen.globalAlpha = 1;
    const padding = state.last.budget?.padding ?? 0;
    if (padding > 0) {
      pen.fillStyle = colors.padding;
      pen.fillRect(x, 0, padding * scale, BAR_HEIGHT);
      this.segments.push({ x, end: x + padding * scale, id: null, count: padding, kind: 'padding' });
    }
    pen.restore();
  }

  #drawHistory(view) {
    if (!this.plot.resize()) return;
    const rows = this.rows.rows;
    const end = this.rows.upTo(view.seq);
    const begin = Math.max(0, end - this.options.steps);
    let most = 8;
    for (let at = begin; at < end; at += 1) most = Math.max(most, usedOf(rows[at]));
    const budget = view.state.config?.max_batch_tokens ?? 0;
    // The scale follows what was used, in round steps so that the ticks stay put; the budget line shows when it is in reach.
    const top = niceTop(budget && budget < most * 2.2 ? Math.max(most, budget) : most);
    const lastStep = view.step;
    const first = lastStep - this.options.steps + 1;
    this.first = first;
    this.#axes(top, budget);
    this.#bars(rows, begin, end, first, top);
  }

  // Ticks cost most: Plotly's axis is redrawn when the scale or the budget changes, not with every step.
  #axes(top, budget) {
    const key = `${top}|${budget}|${this.context.palette.dark}`;
    if (key !== this.axisKey) {
      this.axisKey = key;
      const colors = this.context.colors();
      this.plot.relayout({
        'yaxis.range': [0, top], 'shapes[0].y0': Math.min(budget, top * 2), 'shapes[0].y1': Math.min(budget, top * 2),
        'shapes[0].visible': budget > 0 && budget <= top, 'shapes[0].line.color': colors.accent,
        'annotations[0].y': Math.min(budget, top), 'annotations[0].visible': budget > 0, 'annotations[0].font.color': colors.soft,
        'annotations[0].text': `max_batch_tokens ${budget}${budget > top ? ' ↑' : ''}`,
      });
    }
  }

  // The picture moves left by whole pixels and only the new columns are drawn; everything is drawn again when scale, width, theme or
  // highlight change, or when one looks elsewhere.
  #bars(rows, begin, end, first, top) {
    const { plot, drawn } = this;
    const { pen, area, canvas } = plot;
    const ratio = canvas.width / area.width;
    const column = Math.max(1, Math.floor((area.width * ratio) / this.options.steps)) / ratio;
    const right = area.width - column * this.options.steps;
    const lit = this.context.highlighted();
    const key = `${top}|${lit}|${area.width}x${area.height}|${this.context.palette.dark}`;
    const last = first + this.options.steps - 1;
    const moved = drawn && drawn.key === key ? last - drawn.last : -1;
    let from = begin;
    if (moved >= 0 && moved < this.options.steps / 2) {
      if (moved > 0) {
        pen.save();
        pen.setTransform(1, 0, 0, 1, 0, 0);
        pen.globalCompositeOperation = 'copy';
        pen.drawImage(canvas, -Math.round(moved * column * ratio), 0);
        pen.restore();
      }
      while (from < end && rows[from].step <= drawn.last) from += 1;
    } else plot.clear();
    this.drawn = { key, last };
    this.column = column;
    this.right = right;
    for (let at = from; at < end; at += 1) this.#column(rows[at], right + (rows[at].step - first) * column, column, top, lit);
    pen.globalAlpha = 1;
  }

  #column(row, x, column, top, lit) {
    const { pen, area } = this.plot;
    const colors = this.context.colors();
    const { requests } = this.state;
    const scale = area.height / top;
    const width = Math.max(0.5, column - (column > 3 ? 1 : 0));
    let y = area.height;
    for (const [id, , count, kind] of row.slices) {
      const height = count * scale;
      const request = requests[id];
      pen.globalAlpha = lit && lit !== id ? 0.25 : 1;
      pen.fillStyle = kind === 'padding' || !request ? colors.padding : this.context.palette.color(request.ordinal);
      pen.fillRect(x, y - height, width, height);
      if (kind === 'prefill' && height > 3) { pen.fillStyle = hatch(pen, colors.surface, 0.28); pen.fillRect(x, y - height, width, height); }
      y -= height;
    }
    const padding = row.budget?.padding ?? 0;
    if (padding > 0) { pen.globalAlpha = lit ? 0.25 : 1; pen.fillStyle = colors.padding; pen.fillRect(x, y - padding * scale, width, padding * scale); }
  }

  #pointBar(event) {
    const x = event.offsetX;
    const segment = this.segments.find((item) => x >= item.x && x < item.end);
    const { t, tooltip } = this.context;
    if (!segment) { this.context.hover(null); tooltip.show(event.clientX, event.clientY, t('term.unused')); return; }
    this.context.hover(segment.id);
    tooltip.show(event.clientX, event.clientY, this.#sliceText(segment));
  }

  #sliceText({ id, start, count, kind }) {
    const { t } = this.context;
    const request = this.state.requests[id];
    const name = request ? this.context.palette.label(request) : id ?? '';
    return kind === 'prefill' ? t('slice.prefill', { id: name, from: start, to: start + count - 1, count })
      : kind === 'decode' ? t('slice.decode', { id: name, at: start }) : t('slice.padding', { id: name, count });
  }

  #pointHistory(event) {
    const place = this.plot.locate(event);
    if (!place || !this.state) return;
    const step = Math.floor(this.first + (place.x - this.right) / this.column);
    const row = this.rows.rows.findLast((item) => item.step === step);
    if (!row) { this.context.tooltip.hide(); return; }
    const parts = this.#partsOf(row.slices, row.budget, { max_batch_tokens: row.budget?.tokens?.[1] });
    this.context.tooltip.show(event.clientX, event.clientY, this.context.t('composition.tip', { step, ...parts }));
  }

  resize() { this.plot.resize(); this.axisKey = null; this.drawn = null; }
  restyle() { this.plot.retheme(); this.axisKey = null; this.drawn = null; this.shown = {}; }
  highlight() { this.context.invalidate('composition'); }

  describe(view) {
    const parts = this.#partsOf(view.state.last.slices, view.state.last.budget, view.state.config);
    const sentence = this.context.t('panel.composition.describe', { step: view.state.step, ...parts });
    this.bar.setAttribute('aria-label', sentence);
    return sentence;
  }

  destroy() { this.barWatcher.disconnect(); this.plot.destroy(); }
}

const usedOf = (row) => row.slices.reduce((sum, slice) => sum + slice[2], 0) + (row.budget?.padding ?? 0);

// The next of 1, 2, 5 × 10^n (and halves between) at or above a value.
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  for (const factor of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (factor * power >= value) return factor * power;
  return 10 * power;
}
