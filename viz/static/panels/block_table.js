// The block table of one request: for each layer group, logical block → physical block, how full it is, how many requests share
// it, and whether the prefix cache knows it. Follows the pinned request, else the one that runs longest.

const HEAD = 48;             // cells of a long table that are shown from its start …
const TAIL = 48;             // … and from its end, where the writing happens

export function fillOf(computed, index, blockSize, window) {
  const written = window && computed >= window ? Infinity : computed;         // a sliding group has wrapped around
  return Math.max(0, Math.min(blockSize, written - index * blockSize)) / blockSize;
}

// Owners of each block of these tables, over all requests.
export function countOwners(state, wanted) {
  const owners = new Map();
  for (const request of Object.values(state.requests)) {
    for (const table of request.tables) for (const block of table) if (wanted.has(block)) owners.set(block, (owners.get(block) ?? 0) + 1);
  }
  return owners;
}

export default class BlockTable {
  constructor(root, spec, context) {
    this.context = context;
    this.box = document.createElement('div');
    this.box.className = 'bs-block-table';
    this.empty = document.createElement('p');
    this.empty.className = 'bs-empty';
    root.append(this.box, this.empty);
  }

  #chosen(state) {
    const pinned = this.context.highlighted();
    if (pinned && state.requests[pinned]) return state.requests[pinned];
    return state.requests[state.active.find((id) => state.requests[id].tables.length)] ?? null;
  }

  update({ state }) {
    const { t, note } = this.context;
    const request = this.#chosen(state);
    const tables = request?.tables ?? [];
    const held = tables.some((table) => table.length);
    const slots = request?.slots ?? [];
    const wanted = new Set(tables.flat());
    const owners = held ? countOwners(state, wanted) : new Map();
    let sign = `${request?.id}|${request?.computed}|${t.language()}|${slots.join()}`;
    for (const block of wanted) sign += `,${block}:${owners.get(block)}${state.hashes[block] ? 'h' : ''}`;
    if (sign === this.sign) return;
    this.sign = sign;
    note?.(request ? request.id : '');
    this.empty.hidden = held || slots.length > 0;
    this.empty.textContent = t(request ? 'panel.block_table.none' : 'panel.block_table.empty', { id: request?.id ?? '' });
    this.box.replaceChildren(...(held ? this.#groups(state, request, owners) : slots.length ? [this.#slots(request)] : []));
  }

  #groups(state, request, owners) {
    const { t, palette } = this.context;
    const { block_size: size, groups } = state.layout;
    return request.tables.map((table, group) => {
      const { kind, window, layers } = groups[group];
      const row = document.createElement('div');
      row.className = 'bs-block-group';
      row.style.setProperty('--request', palette.color(request.ordinal));
      const label = document.createElement('div');
      label.className = 'bs-block-group-label';
      label.textContent = t(window ? 'block_table.group_sliding' : 'block_table.group', {
        index: group, layers: layers.length, blocks: table.length, window, kind });
      const cells = document.createElement('div');
      cells.className = 'bs-block-cells';
      const hidden = table.length - HEAD - TAIL;
      table.forEach((block, index) => {
        if (hidden > 0 && index === HEAD) cells.append(more(t('block_table.more', { count: hidden })));
        if (hidden > 0 && index >= HEAD && index < HEAD + hidden) return;
        cells.append(this.#cell(index, block, fillOf(request.computed, index, size, window), owners.get(block), state.hashes[block], size));
      });
      row.append(label, cells);
      return row;
    });
  }

  #cell(index, block, fill, owners, known, size) {
    const { t } = this.context;
    const cell = document.createElement('span');
    cell.className = 'bs-block-cell';
    cell.style.setProperty('--fill', `${Math.round(100 * fill)}%`);
    if (known) cell.classList.add('bs-known');
    const logical = document.createElement('i');
    logical.textContent = index;
    const physical = document.createElement('b');
    physical.textContent = block;
    cell.append(logical, physical);
    if (owners > 1) {
      const badge = document.createElement('em');
      badge.textContent = `×${owners}`;
      cell.append(badge);
    }
    cell.title = [t('block_table.cell', { index, block, used: Math.round(fill * size), size }), owners > 1 ? t('block_table.shared', { owners }) : '',
      known ? t('block_table.known') : ''].filter(Boolean).join(' ');
    return cell;
  }

  #slots(request) {
    const element = document.createElement('p');
    element.className = 'bs-block-slots';
    element.textContent = this.context.t('block_table.slots', { id: request.id, slots: request.slots.flat().join(', ') });
    return element;
  }

  highlight() { this.context.invalidate('block_table'); }

  restyle() { this.sign = null; }

  describe({ state }) {
    const request = this.#chosen(state);
    const { t } = this.context;
    if (!request) return t('panel.block_table.empty');
    return t('block_table.describe', { id: request.id, blocks: request.tables.reduce((sum, table) => sum + table.length, 0),
      groups: request.tables.length, tokens: request.computed });
  }
}

function more(text) {
  const element = document.createElement('span');
  element.className = 'bs-block-more';
  element.textContent = text;
  return element;
}
