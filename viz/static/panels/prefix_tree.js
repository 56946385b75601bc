// The prefixes that the cache knows, drawn from left (start of a prompt) to right: shared starts are one bar, branches are rows.

import { blockOwners } from '../reduce.js';
import { buildTree, hitTrack } from '../prefix_tree.js';
import { Surface, hatch } from '../surface.js';

const ROW = 22;
const GAP = 3;

export default class PrefixTree {
  constructor(root, spec, context) {
    this.context = context;
    this.track = hitTrack(context.store);
    this.surface = new Surface(root, context);
  }

  // A forgotten or added hash always changes the number or the blocks; owners and hits change with the event.
  update(view) {
    const { t, note } = this.context;
    const { state } = view;
    const cache = state.engine?.prefix_cache;
    const known = Object.keys(state.hashes).length;
    if (cache && !cache.on) { note?.(t('prefix_tree.off')); this.surface.say(cache.why || t('prefix_tree.off')); return; }
    if (!known) { note?.(''); this.surface.say(t('panel.prefix_tree.empty')); return; }
    const sign = `${view.seq}|${this.track.version}|${t.language()}|${this.context.highlighted()}`;
    if (sign === this.sign && this.surface.width) return;
    const now = performance.now();
    if (view.live && known > 500 && now - (this.drawnAt ?? 0) < 250) { this.#later(); return; }        // a large tree is drawn four times a second
    this.sign = sign;
    this.drawnAt = now;
    this.surface.say(null);
    const canvas = this.surface.begin();
    if (!canvas) return;
    const { prefix_hit_tokens: hits, prefix_query_tokens: asked } = state.counters;
    note?.(t('prefix_tree.note', { known, rate: asked ? t.number((100 * hits) / asked) : 0, hits: t.number(hits) }));
    this.#draw(canvas, state, buildTree(state.hashes), this.track.countUpTo(view.seq));
  }

  #later() { this.timer ??= setTimeout(() => { this.timer = null; this.context.invalidate('prefix_tree'); }, 250); }

  #draw({ ctx, width, height, colors }, state, tree, counts) {
    const { t, palette } = this.context;
    const owners = blockOwners(state);
    const lit = this.context.highlighted();
    const unit = Math.min(26, (width - 4) / Math.max(1, tree.depth));
    const shownRows = Math.max(1, Math.floor((height - 16) / ROW));
    ctx.font = `11px ${colors.font}`;
    ctx.textBaseline = 'middle';
    for (const bar of tree.bars) {
      if (bar.row >= shownRows) continue;
      const x = bar.depth * unit;
      const y = bar.row * ROW;
      if (bar.parent && bar.parent.row < shownRows && bar.row !== bar.parent.row) {
        ctx.strokeStyle = colors.soft;
        ctx.beginPath();
        ctx.moveTo(x + 0.5, bar.parent.row * ROW + ROW - GAP);
        ctx.lineTo(x + 0.5, y + (ROW - GAP) / 2);
        ctx.lineTo(x + 3, y + (ROW - GAP) / 2);
        ctx.stroke();
      }
      const holders = new Map();
      for (const block of bar.blocks) for (const id of owners.get(block) ?? []) holders.set(id, (holders.get(id) ?? 0) + 1);
      this.#bar(ctx, bar, x, y, unit, holders, owners, lit, colors, state, palette);
      const found = Math.max(0, ...bar.hashes.map((hash) => counts.get(hash) ?? 0));
      const text = found ? t('prefix_tree.bar_hits', { blocks: bar.blocks.length, hits: found }) : t('prefix_tree.bar', { blocks: bar.blocks.length });
      const space = bar.blocks.length * unit - 6;
      if (ctx.measureText(text).width < space) {
        ctx.fillStyle = colors.text;
        ctx.textAlign = 'left';
        ctx.fillText(text, x + 4, y + (ROW - GAP) / 2);
      }
      const ids = [...holders.keys()];
      this.surface.area(x, y, Math.max(3, bar.blocks.length * unit), ROW, () => [text,
        ids.length ? t('prefix_tree.held', { ids: ids.slice(0, 8).join(', ') + (ids.length > 8 ? '…' : '') }) : t('prefix_tree.cached'),
        bar.orphan ? t('prefix_tree.orphan') : ''].filter(Boolean).join(' '), ids.length === 1 ? ids[0] : null);
    }
    if (tree.rows > shownRows) {
      ctx.fillStyle = colors.soft;
      ctx.textAlign = 'left';
      ctx.fillText(t('prefix_tree.more', { count: tree.rows - shownRows }), 0, height - 8);
    }
  }

  // One cell a block: owned in its owner's colour, shared hatched, cached faint.
  #bar(ctx, bar, x, y, unit, holders, owners, lit, colors, state, palette) {
    bar.blocks.forEach((block, index) => {
      const ids = owners.get(block) ?? [];
      const left = x + index * unit;
      ctx.globalAlpha = lit && ids.length && !ids.includes(lit) ? 0.3 : 1;
      ctx.fillStyle = ids.length ? palette.color(state.requests[lit && ids.includes(lit) ? lit : ids[0]].ordinal) : colors.cached;
      ctx.globalAlpha *= ids.length ? 0.55 : 1;
      ctx.fillRect(left, y, Math.max(1, unit - (unit > 4 ? 1 : 0)), ROW - GAP);
      if (ids.length > 1) hatch(ctx, left, y, unit - 1, ROW - GAP, colors.surface, 5);
    });
    ctx.globalAlpha = 1;
  }

  highlight() { this.context.invalidate('prefix_tree'); }

  restyle() { this.surface.restyle(); this.sign = null; }

  resize() { this.surface.resize(); this.sign = null; }

  describe({ state }) {
    const { t } = this.context;
    const cache = state.engine?.prefix_cache;
    if (cache && !cache.on) return cache.why || t('prefix_tree.off');
    const known = Object.keys(state.hashes).length;
    if (!known) return t('panel.prefix_tree.empty');
    return t('prefix_tree.describe', { known, tokens: t.number(state.counters.prefix_hit_tokens) });
  }

  destroy() { clearTimeout(this.timer); this.surface.destroy(); }
}
