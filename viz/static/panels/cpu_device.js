// What the CPU and the device did and when, from the intervals the engine measured: the overlap that is drawn is the overlap that
// happened. With async batching the CPU prepares step N+1 while the device computes step N.

import { duration } from '../decisions.js';
import { measureTrack, recent } from '../measures.js';
import { Surface, hatch } from '../surface.js';

const STEPS_SHOWN = 10;
const LABELS = 84;           // pixels kept for the names of the lanes
const LANE = 34;

// Seconds during which intervals of `one` and `other` (each in order, without overlap among themselves) run at once.
export function overlap(one, other) {
  let total = 0;
  let from = 0;
  for (const [start, end] of one) {
    while (from < other.length && other[from][1] <= start) from += 1;
    for (let at = from; at < other.length && other[at][0] < end; at += 1) {
      total += Math.max(0, Math.min(end, other[at][1]) - Math.max(start, other[at][0]));
    }
  }
  return total;
}

// The intervals of the newest steps not after `seq`: {cpu: [[start, end, step, what]], device: [[start, end, step]]}.
export function intervals(track, seq, steps = STEPS_SHOWN) {
  const cpu = [];
  const device = [];
  for (const row of recent(track.steps, seq, steps)) {
    const { schedule, prepare } = row.timing ?? {};
    if (schedule) cpu.push([schedule[0], schedule[1], row.step, 'schedule']);
    if (prepare) cpu.push([prepare[1], prepare[2], prepare[0], 'prepare']);
    if (row.device && row.deviceSeq <= seq) device.push([row.device[0], row.device[1], row.step]);
  }
  return { cpu, device };
}

export default class CpuDevice {
  constructor(root, spec, context) {
    this.context = context;
    this.track = measureTrack(context.store);
    this.surface = new Surface(root, context);
  }

  #read(view) {
    const { cpu, device } = intervals(this.track, view.seq);
    const busy = device.reduce((sum, [start, end]) => sum + end - start, 0);
    const shared = overlap(cpu, device);
    const work = cpu.reduce((sum, [start, end]) => sum + end - start, 0);
    return { cpu, device, busy, hidden: work > 0 ? Math.min(1, shared / work) : 0 };
  }

  update(view) {
    const { t, note } = this.context;
    const { cpu, device, busy, hidden } = this.#read(view);
    if (!device.length && !cpu.length) { note?.(''); this.surface.say(t('panel.cpu_device.empty')); return; }
    this.surface.say(null);
    const canvas = this.surface.begin();
    if (!canvas) return;
    const all = [...cpu, ...device];
    const start = Math.min(...all.map((item) => item[0]));
    const end = Math.max(...all.map((item) => item[1]), start + 1e-6);
    note?.(t('cpu_device.note', { hidden: t.number(100 * hidden), busy: t.number((100 * busy) / (end - start)) }));
    this.#draw(canvas, cpu, device, start, end, view);
  }

  #draw({ ctx, width, height, colors }, cpu, device, start, end, view) {
    const { t } = this.context;
    const at = (time) => LABELS + ((time - start) / (end - start)) * (width - LABELS - 4);
    const simulated = view.state.engine?.simulated;
    ctx.textBaseline = 'middle';
    ctx.font = `11px ${colors.font}`;
    const lanes = [[t('cpu_device.cpu'), cpu, 6], [t(simulated ? 'cpu_device.simulated' : 'cpu_device.device'), device, 6 + LANE + 8]];
    for (const [name, items, top] of lanes) {
      ctx.fillStyle = colors.sunken;
      ctx.fillRect(LABELS, top, width - LABELS, LANE);
      ctx.fillStyle = colors.soft;
      ctx.textAlign = 'left';
      ctx.fillText(name, 0, top + LANE / 2, LABELS - 6);
      for (const [from, to, step, what] of items) {
        const x = at(from);
        const length = Math.max(1.5, at(to) - x);
        ctx.fillStyle = this.#shade(step, what, colors);
        ctx.fillRect(x, top + 2, length, LANE - 4);
        if (what === 'schedule') hatch(ctx, x, top + 2, length, LANE - 4, colors.surface, 4);
        if (length > 22) {
          ctx.fillStyle = what ? colors.text : colors.surface;
          ctx.textAlign = 'center';
          ctx.fillText(String(step), x + length / 2, top + LANE / 2);
        }
        this.surface.area(x - 1, top, length + 2, LANE, () => t(`cpu_device.${what ?? 'computes'}`, {
          step, ms: duration(1000 * (to - from), t), device: view.state.engine?.device ?? '' }));
      }
    }
    this.#axis(ctx, width, Math.min(height - 8, 6 + 2 * (LANE + 8) + 6), start, end, colors);
  }

  // Neighbouring steps differ in lightness, so that one can follow a step from the CPU lane to the device lane.
  #shade(step, what, colors) {
    if (!what) return step % 2 ? colors.accent : mix(colors.accent, colors.text);
    return step % 2 ? colors.cached : colors.padding;
  }

  #axis(ctx, width, y, start, end, colors) {
    const { t } = this.context;
    ctx.fillStyle = colors.soft;
    ctx.textAlign = 'left';
    ctx.fillText('0', LABELS, y);
    ctx.textAlign = 'right';
    ctx.fillText(duration(1000 * (end - start), t), width - 4, y);
  }

  restyle() { this.surface.restyle(); }

  resize() { this.surface.resize(); }

  describe(view) {
    const { t } = this.context;
    const { device, hidden } = this.#read(view);
    if (!device.length) return t('panel.cpu_device.empty');
    const [from, to, step] = device.at(-1);
    return t('cpu_device.describe', { step, ms: duration(1000 * (to - from), t), hidden: t.number(100 * hidden) });
  }

  destroy() { this.surface.destroy(); }
}

function mix(one, other) {
  const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  if (!/^#[0-9a-f]{6}$/i.test(one) || !/^#[0-9a-f]{6}$/i.test(other)) return one;
  const [a, b] = [parse(one), parse(other)];
  return `rgb(${a.map((value, index) => Math.round(value * 0.72 + b[index] * 0.28)).join(' ')})`;
}
