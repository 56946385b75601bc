// Each recent step as a dot under the roof of the machine it ran on: FLOP per byte across, achieved FLOP/s upwards.

import { Chart } from '../chart.js';
import { measureTrack, recent } from '../measures.js';
import { roofAt, workOf } from '../step_work.js';

const STEPS_SHOWN = 160;

// {step, tokens, intensity, rate, share, mixed} of each measured step not after `seq`, oldest first. `share` of the roof, 0 to 1.
export function dots(track, state, seq, limit = STEPS_SHOWN) {
  const { spec, machine } = state.engine;
  const found = [];
  for (const row of recent(track.steps, seq, limit)) {
    if (!row.device || row.deviceSeq > seq || row.device[1] <= row.device[0] || !row.load.tokens) continue;
    const { bytes, flops } = workOf(row.load, spec, state.layout.groups, row.padding);
    const rate = flops / (row.device[1] - row.device[0]);
    const intensity = flops / bytes;
    found.push({ step: row.step, tokens: row.load.tokens + row.padding, intensity, rate, mixed: row.prefill > 0,
      share: rate / roofAt(machine, intensity) });
  }
  return found;
}

export default class RooflinePanel {
  constructor(root, spec, context) {
    this.context = context;
    this.track = measureTrack(context.store);
    this.chart = new Chart(root, spec, context, this.track, (...parts) => this.#fill(...parts));
  }

  update(view) { this.chart.update(view); }

  #source(state) { return this.context.t(state.engine.machine.source === 'measured' ? 'roofline.measured' : 'roofline.simulated'); }

  #fill(data, layout, colors, view) {
    const { t, note } = this.context;
    const { state } = view;
    note?.('');
    if (!state.engine?.spec || !state.layout) return t('panel.roofline.empty');
    if (!state.engine.machine) return t('panel.roofline.unknown');
    const found = dots(this.track, state, view.seq);
    if (!found.length) return t('panel.roofline.empty');
    const { machine } = state.engine;
    const ridge = machine.peak_flops / machine.bandwidth;
    const low = Math.min(ridge / 100, ...found.map((dot) => dot.intensity)) / 2;
    const high = Math.max(ridge * 10, ...found.map((dot) => dot.intensity)) * 2;
    Object.assign(data[0], { x: [low, ridge, high], y: [low, ridge, high].map((x) => roofAt(machine, x)), name: t('roofline.roof') });
    data[0].line.color = colors.text;
    [found.filter((dot) => !dot.mixed), found.filter((dot) => dot.mixed)].forEach((group, index) => {
      Object.assign(data[index + 1], { x: group.map((dot) => dot.intensity), y: group.map((dot) => dot.rate),
        text: group.map((dot) => this.#hover(dot)), name: t(index ? 'roofline.mixed' : 'roofline.decode') });
      data[index + 1].marker.color = index ? colors.warn : colors.accent;
    });
    layout.xaxis.title.text = t('roofline.x');
    layout.yaxis.title.text = t('roofline.y');
    note?.(t('roofline.note', { source: this.#source(state), share: t.number(100 * found.at(-1).share) }));
    return null;
  }

  #hover(dot) {
    const { t } = this.context;
    return t('roofline.hover', { step: dot.step, tokens: dot.tokens, intensity: t.number(dot.intensity, 1), rate: t.number(dot.rate / 1e9, 1),
      share: t.number(100 * dot.share) });
  }

  restyle() { this.chart.restyle(); }

  resize() { this.chart.resize(); }

  describe(view) {
    const { t } = this.context;
    const { state } = view;
    if (!state.engine?.machine || !state.layout) return t(state.engine?.spec ? 'panel.roofline.unknown' : 'panel.roofline.empty');
    const newest = dots(this.track, state, view.seq, 8).at(-1);
    if (!newest) return t('panel.roofline.empty');
    return t('roofline.describe', { step: newest.step, intensity: t.number(newest.intensity, 1), share: t.number(100 * newest.share), source: this.#source(state) });
  }

  destroy() { this.chart.destroy(); }
}
