// The tree of prefixes that the cache knows, from `state.hashes` (block → [hash, parent]): chains of blocks with one child are
// drawn as one bar. And a track that counts how often each block was found again.

const MAX_HITS = 20000;

// Nodes {hash, block, depth, children, bar…}; a *bar* is a run of nodes without a branch. Returns {bars, roots, depth}. Blocks
// whose parent was forgotten hang from the root, marked `orphan`: their content can no longer be reached by a new prompt.
export function buildTree(hashes) {
  const nodes = new Map();
  for (const [block, [hash, parent]] of Object.entries(hashes)) nodes.set(hash, { hash, parent, block: Number(block), children: [] });
  const roots = [];
  for (const node of nodes.values()) {
    const parent = node.parent === null ? null : nodes.get(node.parent);
    if (parent) parent.children.push(node);
    else { node.orphan = node.parent !== null; roots.push(node); }
  }
  const bars = [];
  let row = 0;
  let deepest = 0;
  const byBlock = (one, other) => one.block - other.block;
  // An explicit stack, for a chain may be thousands of blocks long.
  const stack = roots.sort(byBlock).reverse().map((node) => ({ node, depth: 0, parent: null }));
  while (stack.length) {
    const { node, depth, parent } = stack.pop();
    const bar = { blocks: [], hashes: [], depth, row: 0, parent, leaf: false, orphan: node.orphan ?? false };
    let at = node;
    for (;;) {
      bar.blocks.push(at.block);
      bar.hashes.push(at.hash);
      if (at.children.length !== 1) break;
      [at] = at.children;
    }
    // Depth first, children pushed last are visited next: the first child goes on in its parent's row, the others open new ones.
    if (parent === null || parent.hasChild) { bar.row = row; row += 1; } else { bar.row = parent.row; parent.hasChild = true; }
    if (parent) parent.hasChild = true;
    deepest = Math.max(deepest, depth + bar.blocks.length);
    bars.push(bar);
    bar.leaf = at.children.length === 0;
    for (const child of at.children.sort(byBlock).reverse()) stack.push({ node: child, depth: depth + bar.blocks.length, parent: bar });
  }
  return { bars, rows: row, depth: deepest };
}

// Remembers which known blocks were found by which request: one row a hit.
export class HitTrack {
  constructor() { this.reset(); }

  reset() { this.hits = []; this.version = 0; }

  // Events were lost: what was seen before stays true, unless the numbering began anew.
  heal(state) { if (this.hits.length && this.hits.at(-1).seq > state.seq) this.reset(); }

  forget(oldestSeq) {
    const first = this.hits.findIndex((hit) => hit.seq >= oldestSeq);
    this.hits.splice(0, first < 0 ? this.hits.length : first);
  }

  push(event, state) {
    for (const operation of event.blocks ?? []) {
      if (operation[0] !== 'share' || operation[4] !== 'prefix') continue;
      const hashes = operation[3].map((block) => state.hashes[block]?.[0]).filter(Boolean);
      this.hits.push({ seq: event.seq, step: event.step, id: operation[1], hashes });
      this.version += 1;
    }
    if (this.hits.length > MAX_HITS) this.hits.splice(0, MAX_HITS >> 2);
  }

  // Hash → how often it was found, up to `seq`.
  countUpTo(seq) {
    if (this.counted?.seq === seq && this.counted.version === this.version) return this.counted.counts;
    const counts = new Map();
    for (const hit of this.hits) {
      if (hit.seq > seq) break;
      for (const hash of hit.hashes) counts.set(hash, (counts.get(hash) ?? 0) + 1);
    }
    this.counted = { seq, version: this.version, counts };
    return counts;
  }
}

export const hitTrack = (store) => store.track('prefix-hits', () => new HitTrack());
