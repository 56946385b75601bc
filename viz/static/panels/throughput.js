// Tokens per second and the number of requests, over the room's clock.

import { Chart } from '../chart.js';
import { measureTrack, recent, throughput } from '../measures.js';

const STEPS_SHOWN = 900;
const POINTS = 240;          // more would only cost time: the panel is not wider

export default class Throughput {
  constructor(root, spec, context) {
    this.context = context;
    this.track = measureTrack(context.store);
    this.chart = new Chart(root, spec, context, this.track, (...parts) => this.#fill(...parts));
  }

  update(view) { this.chart.update(view); }

  #fill(data, layout, colors, view) {
    const { t, note } = this.context;
    const rows = recent(this.track.steps, view.seq, STEPS_SHOWN);
    if (rows.length < 2) { note?.(''); return t('panel.throughput.empty'); }
    const points = throughput(rows);
    const stride = Math.ceil(rows.length / POINTS);
    const pick = (list) => list.filter((_, index) => index % stride === (list.length - 1) % stride);
    const steps = pick(rows);
    const rates = pick(points);
    const x = steps.map((row) => row.time);
    const text = steps.map((row) => t('log.step', { step: row.step }));
    const series = [rates.map((point) => point.output), rates.map((point) => point.prompt), steps.map((row) => row.active), steps.map((row) => row.waiting)];
    const looks = [[colors.accent, 'solid'], [colors.good, 'dot'], [colors.accent, 'solid'], [colors.warn, 'dot']];
    series.forEach((y, index) => {
      Object.assign(data[index], { x, y, text, name: t(`throughput.series${index}`) });
      Object.assign(data[index].line, { color: looks[index][0], dash: looks[index][1] });
    });
    layout.yaxis.title.text = t('throughput.rate_axis');
    layout.yaxis2.title.text = t('throughput.requests_axis');
    layout.xaxis.title.text = t(view.state.engine?.simulated ? 'throughput.simulated_axis' : 'throughput.time_axis');
    note?.(t('throughput.note', { rate: t.number(points.at(-1).output ?? 0), active: rows.at(-1).active, waiting: rows.at(-1).waiting }));
    return null;
  }

  restyle() { this.chart.restyle(); }

  resize() { this.chart.resize(); }

  describe(view) {
    const { t } = this.context;
    const rows = recent(this.track.steps, view.seq, STEPS_SHOWN);
    if (rows.length < 2) return t('panel.throughput.empty');
    return t('throughput.note', { rate: t.number(throughput(rows).at(-1).output ?? 0), active: rows.at(-1).active, waiting: rows.at(-1).waiting });
  }

  destroy() { this.chart.destroy(); }
}
