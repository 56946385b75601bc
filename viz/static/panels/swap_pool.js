// The host memory that blocks of preempted requests wait in: one cell a slot, in the colour of the request that owns it.

import { Surface } from '../surface.js';

const CELL = 14;
const MIN_CELL = 4;

// Slot → request, from the requests' own lists.
export function slotOwners(state) {
  const owners = new Map();
  for (const request of Object.values(state.requests)) {
    for (const slots of request.slots) for (const slot of slots) owners.set(slot, request);
  }
  return owners;
}

export default class SwapPool {
  constructor(root, spec, context) {
    this.context = context;
    this.surface = new Surface(root, context);
  }

  update({ state }) {
    const { t, note } = this.context;
    const total = state.layout?.swap_slots ?? 0;
    if (!total) { note?.(''); this.surface.say(t('panel.swap_pool.empty')); return; }
    this.surface.say(null);
    const canvas = this.surface.begin();
    if (!canvas) return;
    const owners = slotOwners(state);
    const bytes = state.layout.block_bytes;
    note?.(t('swap_pool.note', { used: owners.size, total, mib: t.number((owners.size * bytes) / 2 ** 20, 1) }));
    this.#draw(canvas, owners, total);
  }

  #draw({ ctx, width, height, colors }, owners, total) {
    const { t, palette } = this.context;
    const lit = this.context.highlighted();
    // As large as fits; below the smallest cell several slots share one, and its shade says how many are taken.
    let cell = CELL;
    while (cell > MIN_CELL && Math.floor(width / cell) * Math.floor(height / cell) < total) cell -= 1;
    const columns = Math.max(1, Math.floor(width / cell));
    const rows = Math.max(1, Math.floor(height / cell));
    const merged = Math.ceil(total / (columns * rows));
    const cells = Math.ceil(total / merged);
    for (let index = 0; index < cells; index += 1) {
      const x = (index % columns) * cell;
      const y = Math.floor(index / columns) * cell;
      const first = index * merged;
      let taken = 0; let owner = null;
      for (let slot = first; slot < Math.min(total, first + merged); slot += 1) {
        const request = owners.get(slot);
        if (request) { taken += 1; owner = request; }
      }
      ctx.globalAlpha = 1;
      ctx.fillStyle = colors.free;
      ctx.fillRect(x, y, cell - 1, cell - 1);
      if (taken) {
        ctx.globalAlpha = (lit && owner.id !== lit ? 0.3 : 1) * Math.max(0.35, taken / merged);
        ctx.fillStyle = palette.color(owner.ordinal);
        ctx.fillRect(x, y, cell - 1, cell - 1);
      }
      const label = merged > 1 ? `${first}–${Math.min(total, first + merged) - 1}` : String(first);
      this.surface.area(x, y, cell, cell, () => (taken ? t('swap_pool.taken', { slot: label, id: owner.id, taken }) : t('swap_pool.free', { slot: label })),
        owner?.id ?? null);
    }
    ctx.globalAlpha = 1;
  }

  highlight() { this.context.invalidate('swap_pool'); }

  restyle() { this.surface.restyle(); }

  resize() { this.surface.resize(); }

  describe({ state }) {
    const { t } = this.context;
    const total = state.layout?.swap_slots ?? 0;
    if (!total) return t('panel.swap_pool.empty');
    const ids = new Set([...slotOwners(state).values()].map((request) => request.id));
    return t('swap_pool.describe', { used: slotOwners(state).size, total, ids: [...ids].join(', ') || t('swap_pool.nobody') });
  }

  destroy() { this.surface.destroy(); }
}
