// Distributions of time to first token and of the gaps between tokens, with their running percentiles.

import { Chart } from '../chart.js';
import { duration } from '../decisions.js';
import { WINDOW, measureTrack, summary } from '../measures.js';

const BINS_PER_DECADE = 8;

// Counts per logarithmic bin: {x: bin centres in ms, y: share of the samples in percent, width: bin ratios}.
export function histogram(ordered) {
  const counts = new Map();
  for (const value of ordered) {
    const bin = Math.floor(Math.log10(Math.max(value, 0.01)) * BINS_PER_DECADE);
    counts.set(bin, (counts.get(bin) ?? 0) + 1);
  }
  const bins = [...counts.keys()].sort((one, other) => one - other);
  const edge = (bin) => 10 ** (bin / BINS_PER_DECADE);
  return {
    x: bins.map((bin) => Math.sqrt(edge(bin) * edge(bin + 1))),
    y: bins.map((bin) => (100 * counts.get(bin)) / ordered.length),
    width: bins.map((bin) => 0.92 * (edge(bin + 1) - edge(bin))),
  };
}

export default class Latency {
  constructor(root, spec, context) {
    this.context = context;
    this.track = measureTrack(context.store);
    this.table = document.createElement('table');
    this.table.className = 'bs-figures';
    root.append(this.table);
    this.chart = new Chart(root, spec, context, this.track, (...parts) => this.#fill(...parts));
  }

  update(view) { this.chart.update(view); }

  #fill(data, layout, colors, view) {
    const { t } = this.context;
    const parts = [summary(this.track.ttft, view.seq), summary(this.track.itl, view.seq)];
    this.#drawTable(parts);
    if (!parts[0].count) return t('panel.latency.empty');
    layout.shapes = [];
    layout.annotations ??= [];
    parts.forEach((part, index) => {
      const axis = index ? '2' : '';
      Object.assign(data[index], histogram(part.ordered));
      data[index].marker.color = index ? colors.good : colors.accent;
      data[index].hovertemplate = t('latency.hover');
      layout[`xaxis${axis}`].title.text = t(index ? 'latency.itl_axis' : 'latency.ttft_axis');
      for (const [name, dash] of [['p50', 'solid'], ['p90', 'dash'], ['p99', 'dot']]) {
        if (part[name] === null) continue;
        const x = Math.max(part[name], 0.01);
        layout.shapes.push({ type: 'line', xref: `x${axis}`, yref: `y${axis} domain`, x0: x, x1: x, y0: 0, y1: 1,
          line: { color: colors.text, width: 1.5, dash } });
      }
    });
    return null;
  }

  #drawTable(parts) {
    const { t } = this.context;
    this.table.hidden = !parts[0].count;
    const head = row('th', ['', 'p50', 'p90', 'p99', t('latency.samples')]);
    const body = parts.map((part, index) => row('td', [index ? 'ITL' : 'TTFT',
      ...[part.p50, part.p90, part.p99].map((value) => (value === null ? '–' : duration(value, t))), t.number(part.count)]));
    this.table.replaceChildren(head, ...body);
  }

  restyle() { this.chart.restyle(); }

  resize() { this.chart.resize(); }

  describe(view) {
    const { t } = this.context;
    const [ttft, itl] = [summary(this.track.ttft, view.seq), summary(this.track.itl, view.seq)];
    if (!ttft.count) return t('panel.latency.empty');
    return t('latency.describe', { ttft50: duration(ttft.p50, t), ttft99: duration(ttft.p99, t),
      itl50: itl.count ? duration(itl.p50, t) : '–', itl99: itl.count ? duration(itl.p99, t) : '–', window: t.number(WINDOW) });
  }

  destroy() { this.chart.destroy(); }
}

function row(kind, texts) {
  const line = document.createElement('tr');
  texts.forEach((text, index) => {
    const cell = document.createElement(index === 0 ? 'th' : kind);
    cell.textContent = text;
    line.append(cell);
  });
  return line;
}
