// A Plotly figure whose template comes from Python (`spec.figure`) and whose data come from the store. Plotly's axes cost several
// milliseconds a draw, so all charts of a page take turns: one draw a turn, a turn every TURN_MS, and only where something changed.

import { themeColors } from './palette.js';

const TURN_MS = 120;
const OWN_PAUSE_MS = 400;              // one chart draws at most this often while events stream in

const queue = new Set();
let timer = null;

function takeTurn() {
  timer = null;
  const [chart] = queue;
  if (!chart) return;
  queue.delete(chart);
  chart.drawNow();
  if (queue.size) timer = setTimeout(takeTurn, TURN_MS);
}

export class Chart {
  // track: what the data come from; its `version` grows with its rows.
  // fill(traces, layout, colors, view): writes data into copies of the template's traces; returns the sentence to show instead
  // of the figure when there is nothing to draw, else null.
  constructor(root, spec, context, track, fill) {
    this.spec = spec;
    this.context = context;
    this.track = track;
    this.fill = fill;
    this.box = document.createElement('div');
    this.box.className = 'bs-chart';
    this.plot = document.createElement('div');
    this.plot.className = 'bs-chart-plot';
    this.empty = document.createElement('p');
    this.empty.className = 'bs-empty';
    this.box.append(this.plot, this.empty);
    root.append(this.box);
    this.plot.hidden = true;
    this.drawnAt = 0;
    this.drawMs = 0;
    this.restyle();
  }

  restyle() { this.colors = themeColors(); this.sign = null; }

  resize() { this.sign = null; }

  // Asks for a draw. While events stream in, a chart that was drawn a moment ago waits; a seek is drawn at the next turn.
  update(view) {
    const sign = `${view.seq}|${this.track.version}|${this.context.t.language()}`;
    if (sign === this.sign) return;
    this.sign = sign;
    this.view = view;
    const pause = view.live ? OWN_PAUSE_MS - (performance.now() - this.drawnAt) : 0;
    if (pause > 0) { this.later ??= setTimeout(() => { this.later = null; this.#enqueue(); }, pause); return; }
    this.#enqueue();
  }

  #enqueue() {
    queue.add(this);
    timer ??= setTimeout(takeTurn, 0);
  }

  drawNow() {
    if (!this.box.isConnected || !window.Plotly || !this.box.clientWidth) return;
    const started = performance.now();
    const { data, layout } = structuredClone(this.spec.figure);        // Plotly writes into what it is given
    themed(layout, this.colors);
    const sentence = this.fill(data, layout, this.colors, this.view);
    this.empty.hidden = sentence === null;
    this.plot.hidden = sentence !== null;
    if (sentence !== null) this.empty.textContent = sentence;
    else {
      layout.width = this.box.clientWidth;
      layout.height = this.box.clientHeight;
      window.Plotly.react(this.plot, data, layout, { displayModeBar: false, responsive: false, ...this.spec.figure.config });
    }
    this.drawnAt = performance.now();
    this.drawMs = this.drawnAt - started;
  }

  destroy() {
    queue.delete(this);
    clearTimeout(this.later);
    window.Plotly?.purge(this.plot);
    this.box.remove();
  }
}

function themed(layout, colors) {
  layout.paper_bgcolor = 'rgba(0,0,0,0)';
  layout.plot_bgcolor = 'rgba(0,0,0,0)';
  layout.font = { family: colors.font, size: 11, color: colors.soft, ...layout.font };
  for (const [name, axis] of Object.entries(layout)) {
    if (/^[xy]axis\d*$/.test(name)) Object.assign(axis, { gridcolor: colors.line, linecolor: colors.line, zerolinecolor: colors.line });
  }
}
