// Where each block of the pool stands on a map of a given size, pure arithmetic: one cell a block while the cells stay large enough
// to see, else one cell for several neighbours.

// Returns {cell, columns, rows, perCell, cells}: the edge of a cell in pixels, the grid, and how many blocks one cell stands for.
export function layoutBlocks(count, width, height, { largest, aggregate }) {
  let cell = largest;
  while (cell > aggregate && Math.floor(width / cell) * Math.floor(height / cell) < count) cell -= cell > 12 ? 1 : 0.5;
  let perCell = 1;
  let columns = Math.max(1, Math.floor(width / cell));
  if (columns * Math.floor(height / cell) < count) {
    cell = aggregate + 1;
    columns = Math.max(1, Math.floor(width / cell));
    const capacity = Math.max(1, columns * Math.floor(height / cell));
    perCell = Math.ceil(count / capacity);
  }
  const cells = Math.ceil(count / perCell);
  return { cell, columns, rows: Math.ceil(cells / columns), perCell, cells };
}

// What each block is, from the state document: owner's ordinal (-1: none), number of owners, filled tokens, group and whether hashed.
export class BlockTable {
  constructor(count) {
    this.count = count;
    this.owner = new Int32Array(count);
    this.sharers = new Uint16Array(count);
    this.filled = new Uint16Array(count);
    this.group = new Int8Array(count);
    this.hashed = new Uint8Array(count);
  }

  // Invariant mirrored from ARCHITECTURE.md: fill of block i of a table is clamp(computed - i * block_size, 0, block_size); a sliding
  // group is full once `computed` reaches its window.
  read(state, onlyGroup = null) {
    const { owner, sharers, filled, group, hashed } = this;
    owner.fill(-1);
    sharers.fill(0);
    filled.fill(0);
    hashed.fill(0);
    const { block_size: size, groups } = state.layout;
    const counts = { owned: 0, cached: 0, free: 0, shared: 0, tokens: 0 };
    for (const ids of [state.active, state.queue, state.ended]) {
      for (const id of ids) {
        const request = state.requests[id];
        for (let at = 0; at < request.tables.length; at += 1) {
          const table = request.tables[at];
          const wrapped = groups[at]?.window && request.computed >= groups[at].window;
          for (let index = 0; index < table.length; index += 1) {
            const block = table[index];
            const fill = wrapped ? size : Math.max(0, Math.min(size, request.computed - index * size));
            if (sharers[block] === 0) {
              counts.owned += 1;
              owner[block] = request.ordinal;
              group[block] = at;
            } else if (sharers[block] === 1) counts.shared += 1;
            sharers[block] += 1;
            if (fill > filled[block]) { counts.tokens += fill - filled[block]; filled[block] = fill; }
          }
        }
      }
    }
    for (const key in state.hashes) {
      const block = Number(key);
      hashed[block] = 1;
      if (sharers[block] === 0) counts.cached += 1;
    }
    counts.free = this.count - counts.owned - counts.cached;
    if (onlyGroup !== null) for (let block = 0; block < this.count; block += 1) if (sharers[block] && group[block] !== onlyGroup) { owner[block] = -2; }
    return counts;
  }
}
