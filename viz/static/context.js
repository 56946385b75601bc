// What a panel gets beside its element and its spec (see ARCHITECTURE.md): one maker for the live page and for an exported file, so
// that a panel finds the same things in both.

import { makePlot } from './figure.js';
import { palette } from './palette.js';

const motion = matchMedia('(prefers-reduced-motion: reduce)');

// page: {t, data, tooltip, colors}. Returns (store, command) => context, for panels over any store: the live one, a recording's or a
// compared room's.
export function contextMaker({ t, data, tooltip, colors }) {
  return (store, command) => ({
    store, t, palette, command, data, tooltip, colors,
    tip: (element, text) => tooltip.attach(element, text),
    plot: (root, figure, onResize) => makePlot(root, figure, colors, onResize),
    reducedMotion: () => motion.matches,
    number: (value, digits = 0) => t.number(value, digits),
  });
}
