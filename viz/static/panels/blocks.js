// Block map: memory that reads like memory. Fixed order; a block fills from the left as its tokens arrive; shared ones show how many
// owners; cached ones carry a dot; the two padding blocks stand apart behind the last one.

import { BlockTable, layoutBlocks } from '../block_layout.js';
import { hatch } from '../patterns.js';

const PADDING_BLOCKS = 2;
const COUNT_MS = 100;
const KINDS = ['owned', 'shared', 'cached', 'free', 'padding'];

export default class Blocks {
  constructor(root, spec, context) {
    Object.assign(this, { root, options: spec.options, context, group: null, countedAt: -Infinity });
    root.classList.add('bs-blocks');
    const slot = document.createElement('div');
    slot.className = 'bs-plot-slot';
    this.legend = document.createElement('dl');
    this.legend.className = 'bs-legend';
    this.legend.innerHTML = KINDS.map((kind) => `<div data-term="block.${kind}" tabindex="0"><dt><i class="bs-swatch" data-kind="block-${kind}"></i><span data-t="block.${kind}"></span></dt><dd data-count="${kind}">0</dd></div>`).join('');
    root.append(slot, this.legend);
    context.t.apply(root);
    this.counts = Object.fromEntries([...this.legend.querySelectorAll('[data-count]')].map((element) => [element.dataset.count, element]));
    this.plot = context.plot(slot, spec.figure, () => context.invalidate('blocks'));
    this.plot.canvas.setAttribute('role', 'img');
    this.plot.canvas.setAttribute('aria-label', context.t('panel.blocks.title'));
    this.plot.canvas.removeAttribute('aria-hidden');
    const target = this.plot.holder;
    target.addEventListener('pointermove', (event) => this.#point(event));
    target.addEventListener('pointerleave', () => { context.hover(null); context.tooltip.hide(); });
    target.addEventListener('click', () => { const id = this.pointed; if (id) context.select(id === context.selected() ? null : id); });
  }

  update(view) {
    const { state } = view;
    this.state = state;
    if (!state.layout || !this.plot.resize()) return;
    const count = state.layout.num_blocks;
    if (this.table?.count !== count) { this.table = new BlockTable(count); this.signature = null; }
    const totals = this.table.read(state, this.group);
    this.totals = totals;
    this.#drawCounts({ ...totals, padding: PADDING_BLOCKS }, state, view.live);
    this.#drawGroups(state.layout.groups);
    this.#drawCells(state);
  }

  // Figures that change sixty times a second cannot be read: while live, ten times is enough.
  #drawCounts(totals, state, live) {
    const now = performance.now();
    if (live && now - this.countedAt < COUNT_MS) {
      this.timer ??= setTimeout(() => { this.timer = null; this.countedAt = -Infinity; this.context.invalidate('blocks'); }, COUNT_MS);
      return;
    }
    this.countedAt = now;
    const { number, t } = this.context;
    for (const kind of KINDS) {
      const text = number(totals[kind]);
      if (this.counts[kind].textContent !== text) this.counts[kind].textContent = text;
    }
    const held = totals.owned * state.layout.block_size;
    this.context.note(t(held ? 'panel.blocks.note' : 'panel.blocks.note_idle', {
      used: number(totals.owned), total: number(this.table.count), size: number(state.layout.block_size),
      filled: held ? Math.round((100 * totals.tokens) / held) : 100,
    }));
  }

  // Small buttons to look at one layer group, when the model has several.
  #drawGroups(groups) {
    const key = `${groups.map((item) => item.kind).join()}|${this.context.t.language()}`;
    if (key === this.groupKey) return;
    this.groupKey = key;
    this.context.tools.replaceChildren();
    if (groups.length < 2) { this.group = null; return; }
    for (const value of [null, ...groups.map((item) => item.index)]) {
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'bs-icon';
      button.textContent = value === null ? this.context.t('block.all_groups') : `${value} ${groups[value].kind}`;
      button.setAttribute('aria-pressed', String(value === this.group));
      button.addEventListener('click', () => { this.group = value; this.groupKey = null; this.context.invalidate('blocks'); });
      this.context.tools.append(button);
    }
  }

  #drawCells(state) {
    const { plot, table, options } = this;
    const { pen, area } = plot;
    const count = table.count;
    const grid = layoutBlocks(count + PADDING_BLOCKS + 1, area.width, area.height, options);
    this.grid = grid;
    const { requests } = state;
    if (grid.cell >= options.label_from) this.byOrdinal = new Map(Object.values(requests).map((request) => [request.ordinal, request]));
    const lit = this.context.highlighted();
    const litOrdinal = lit && requests[lit] ? requests[lit].ordinal : null;
    const litBlocks = litOrdinal === null ? null : new Set(requests[lit].tables.flat());
    const frame = `${grid.cell}|${grid.columns}|${area.width}x${area.height}|${lit}|${this.context.palette.dark}|${this.group}|${this.frameKey ?? 0}|${state.layout.block_size}`;
    // Only cells whose look changed since the last frame are painted again; a change of the frame repaints all.
    if (frame !== this.frame || !this.signature || this.signature.length !== grid.cells) {
      this.frame = frame;
      this.signature = new Int32Array(grid.cells).fill(-7);
      plot.clear();
      this.#drawPadding(grid, count);
    }
    if (grid.perCell === 1) this.#drawSingles(grid, state.layout.block_size, litBlocks);
    else this.#drawAggregates(grid, state.layout.block_size, litOrdinal);
  }

  #drawSingles(grid, blockSize, litBlocks) {
    const { table, signature, plot } = this;
    const { pen } = plot;
    const colors = this.context.colors();
    const { cell, columns } = grid;
    const gap = cell >= 12 ? 2 : cell >= 4 ? 1 : 0.5;
    const inner = cell - gap;
    const levels = cell >= this.options.fill_from ? Math.min(255, Math.round(inner)) : 1;
    for (let block = 0; block < table.count; block += 1) {
      const owner = table.owner[block];
      const level = table.sharers[block] ? Math.ceil((table.filled[block] / blockSize) * levels) : 0;
      const look = ((owner + 3) << 13) ^ (Math.min(15, table.sharers[block]) << 9) ^ (table.hashed[block] << 8) ^ level;
      if (signature[block] === look) continue;
      signature[block] = look;
      const x = (block % columns) * cell;
      const y = Math.floor(block / columns) * cell;
      pen.globalAlpha = 1;
      pen.clearRect(x, y, cell, cell);
      const dim = litBlocks && !litBlocks.has(block);
      pen.globalAlpha = dim ? 0.3 : 1;
      if (table.sharers[block] === 0) {
        pen.fillStyle = table.hashed[block] ? colors.cached : colors.free;
        box(pen, x, y, inner, cell);
        if (table.hashed[block] && cell >= 8) { pen.fillStyle = colors.soft; const dot = Math.max(2, inner / 5); pen.beginPath(); pen.arc(x + inner / 2, y + inner / 2, dot / 2, 0, 7); pen.fill(); }
        continue;
      }
      const color = owner === -2 ? colors.padding : this.context.palette.color(owner);
      pen.fillStyle = color;
      pen.globalAlpha = dim ? 0.1 : 0.26;
      box(pen, x, y, inner, cell);
      pen.globalAlpha = dim ? 0.3 : 1;
      const filled = levels === 1 ? inner : (inner * level) / levels;
      if (filled > 0) box(pen, x, y, inner, cell, filled);
      if (cell >= this.options.label_from) this.#label(pen, x, y, inner, owner, table.sharers[block], level / levels, colors);
      else if (table.sharers[block] > 1 && cell >= 6) { pen.fillStyle = colors.surface; pen.fillRect(x + inner / 2 - 1, y + 1, 2, inner - 2); }
    }
    pen.globalAlpha = 1;
  }

  // The number stands dark on the pale rest of a block, light on the filled part, whichever is under its middle.
  #label(pen, x, y, inner, owner, sharers, filled, colors) {
    const request = this.byOrdinal.get(owner);
    if (!request) return;
    pen.textAlign = 'center';
    pen.textBaseline = 'middle';
    const text = sharers > 1 ? `×${sharers}` : inner >= 18 ? this.context.palette.label(request).replace(/^\D+/, '') : this.context.palette.mark(owner);
    pen.font = `700 ${Math.min(12, Math.max(9, inner * 0.46))}px ${colors.font}`;
    pen.fillStyle = filled >= 0.62 ? colors.surface : colors.text;
    if (filled > 0.3 && filled < 0.8) { pen.lineWidth = 2.5; pen.strokeStyle = filled >= 0.62 ? this.context.palette.color(owner) : colors.surface; pen.strokeText(text, x + inner / 2, y + inner / 2 + 0.5); }
    pen.fillText(text, x + inner / 2, y + inner / 2 + 0.5);
    pen.textAlign = 'left';
    pen.textBaseline = 'alphabetic';
  }

  // One cell for several blocks: stacked from below, owned by its most frequent owner's colour, then cached, then free.
  #drawAggregates(grid, blockSize, litOrdinal) {
    const { table, signature, plot } = this;
    const { pen } = plot;
    const colors = this.context.colors();
    const { cell, columns, perCell } = grid;
    const inner = cell - 1;
    for (let at = 0; at < grid.cells - 1; at += 1) {
      const begin = at * perCell;
      const end = Math.min(table.count, begin + perCell);
      if (begin >= end) break;
      let owned = 0;
      let cached = 0;
      let best = -1;
      let bestRun = 0;
      let run = 0;
      for (let block = begin; block < end; block += 1) {
        if (table.sharers[block]) {
          owned += 1;
          run = block > begin && table.owner[block] === table.owner[block - 1] ? run + 1 : 1;
          if (run > bestRun) { bestRun = run; best = table.owner[block]; }
        } else if (table.hashed[block]) cached += 1;
      }
      const size = end - begin;
      const ownedHeight = Math.round((owned / size) * inner);
      const cachedHeight = Math.round((cached / size) * inner);
      const look = ((best + 3) << 12) ^ (ownedHeight << 6) ^ cachedHeight;
      if (signature[at] === look) continue;
      signature[at] = look;
      const x = (at % columns) * cell;
      const y = Math.floor(at / columns) * cell;
      pen.globalAlpha = 1;
      pen.clearRect(x, y, cell, cell);
      pen.fillStyle = colors.free;
      pen.fillRect(x, y, inner, inner);
      pen.fillStyle = colors.cached;
      pen.fillRect(x, y + inner - ownedHeight - cachedHeight, inner, cachedHeight);
      pen.globalAlpha = litOrdinal !== null && best !== litOrdinal ? 0.25 : 1;
      pen.fillStyle = best === -2 ? colors.padding : this.context.palette.color(best);
      pen.fillRect(x, y + inner - ownedHeight, inner, ownedHeight);
    }
    pen.globalAlpha = 1;
  }

  // The reserved blocks behind the pool, after one empty cell: padding rows read and write here and nowhere else.
  #drawPadding(grid, count) {
    const { pen } = this.plot;
    const colors = this.context.colors();
    const first = Math.ceil(count / grid.perCell) + 1;
    const inner = grid.cell - (grid.cell >= 12 ? 2 : 1);
    for (let at = first; at < first + PADDING_BLOCKS; at += 1) {
      const x = (at % grid.columns) * grid.cell;
      const y = Math.floor(at / grid.columns) * grid.cell;
      pen.fillStyle = colors.padding;
      box(pen, x, y, inner, grid.cell);
      if (grid.cell >= 8) { pen.fillStyle = hatch(pen, colors.surface, 0.7, 6); box(pen, x, y, inner, grid.cell); }
    }
  }

  #blockAt(event) {
    const place = this.plot.locate(event);
    if (!place || !this.grid || !this.table) return null;
    const column = Math.floor(place.x / this.grid.cell);
    if (column >= this.grid.columns) return null;
    const block = (Math.floor(place.y / this.grid.cell) * this.grid.columns + column) * this.grid.perCell;
    return block < this.table.count ? block : null;
  }

  #point(event) {
    const block = this.#blockAt(event);
    const { tooltip } = this.context;
    if (block === null) { this.pointed = null; this.context.hover(null); tooltip.hide(); return; }
    const owners = this.grid.perCell === 1 ? this.#owners(block) : [];
    this.pointed = owners[0]?.id ?? null;
    this.context.hover(this.pointed);
    tooltip.show(event.clientX, event.clientY, this.#tell(block, owners));
  }

  #owners(block) {
    return [...this.state.active, ...this.state.queue, ...this.state.ended].map((id) => this.state.requests[id]).filter((request) => request.tables.some((table) => table.includes(block)));
  }

  #tell(block, owners) {
    const { t, number, palette } = this.context;
    const { table, grid } = this;
    if (grid.perCell > 1) return t('block.tip_many', { from: number(block), to: number(Math.min(table.count, block + grid.perCell) - 1) });
    const size = this.state.layout.block_size;
    if (!owners.length) return t(table.hashed[block] ? 'block.tip_cached' : 'block.tip_free', { block: number(block), hash: this.state.hashes[block]?.[0] ?? '' });
    const names = owners.slice(0, 6).map((request) => palette.label(request)).join(', ') + (owners.length > 6 ? '…' : '');
    const index = owners[0].tables[table.group[block]]?.indexOf(block) ?? 0;
    return t(owners.length > 1 ? 'block.tip_shared' : 'block.tip_owned', { block: number(block), names, count: owners.length, filled: number(table.filled[block]), size: number(size), index: number(index) });
  }

  resize() { this.plot.resize(); this.frame = null; }
  restyle() { this.plot.retheme(); this.frame = null; this.groupKey = null; }
  highlight() { this.context.invalidate('blocks'); }

  describe(view) {
    if (!view.state.layout || !this.totals) return this.context.t('panel.blocks.empty');
    const { owned, cached, free, shared } = this.totals;
    const sentence = this.context.t('panel.blocks.describe', { owned, cached, free, shared, total: this.table.count });
    this.plot.canvas.setAttribute('aria-label', sentence);
    return sentence;
  }

  destroy() { clearTimeout(this.timer); this.plot.destroy(); }
}

// A cell, or its left part; rounded where there is room for a corner.
function box(pen, x, y, size, cell, width = size) {
  if (cell < 12) { pen.fillRect(x, y, width, size); return; }
  pen.beginPath();
  pen.roundRect(x, y, width, size, width === size ? 3 : [3, 0, 0, 3]);
  pen.fill();
}
