// A Plotly figure whose plot area carries a canvas of ours. Plotly draws what it is good at and what changes rarely (axes, ticks,
// lines, annotations); cells and bars that change with every step are painted on the canvas below it, at a hundredth of the cost.

const BASE_LAYOUT = {
  paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', showlegend: false, margin: { l: 8, r: 8, t: 4, b: 4 }, autosize: false,
  dragmode: false,
};
const BASE_CONFIG = { displayModeBar: false, staticPlot: true, responsive: false };

// figure: {data, layout, config} from the panel's spec; colors: () => theme tokens; onResize: called when there is another size to
// draw for. The spec itself is never changed.
export function makePlot(root, figure, colors, onResize = null) {
  const holder = document.createElement('div');
  holder.className = 'bs-plot';
  const canvas = document.createElement('canvas');
  canvas.className = 'bs-plot-canvas';
  canvas.setAttribute('aria-hidden', 'true');
  const div = document.createElement('div');
  div.className = 'bs-plot-figure';
  holder.append(canvas, div);
  root.append(holder);
  const pen = canvas.getContext('2d');
  const plot = {
    div, canvas, pen, holder, given: { width: 0, height: 0 }, area: { left: 0, top: 0, width: 0, height: 0 },

    // Fits figure and canvas to the holder. Returns whether there is anything to draw on. The size is told by the browser when it
    // changes: asking for it in every frame would make the browser lay out the page in the middle of it.
    resize() {
      const { width, height } = plot.given;
      if (width < 20 || height < 20) return false;
      if (width !== plot.width || height !== plot.height) {
        plot.width = width;
        plot.height = height;
        Plotly.relayout(div, { width, height });
        plot.measure();
      }
      return true;
    },

    // Reads where the plot area lies and puts the canvas exactly there.
    measure() {
      const size = div._fullLayout._size;
      plot.area = { left: size.l, top: size.t, width: Math.floor(size.w), height: Math.floor(size.h) };
      const ratio = Math.min(2, window.devicePixelRatio || 1);
      canvas.style.cssText = `left:${size.l}px;top:${size.t}px;width:${plot.area.width}px;height:${plot.area.height}px`;
      const pixelWidth = Math.max(1, Math.round(plot.area.width * ratio));
      const pixelHeight = Math.max(1, Math.round(plot.area.height * ratio));
      if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) { canvas.width = pixelWidth; canvas.height = pixelHeight; }
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    },

    // Relayouts only when the values differ from the last ones: ticks are what costs.
    relayout(update) {
      const key = JSON.stringify(update);
      if (key === plot.lastUpdate) return;
      plot.lastUpdate = key;
      Plotly.relayout(div, update);
      plot.measure();
    },

    clear() { pen.clearRect(0, 0, plot.area.width, plot.area.height); },

    // Position of a pointer event inside the plot area, or null outside of it.
    locate(event) {
      const box = canvas.getBoundingClientRect();
      const x = event.clientX - box.left;
      const y = event.clientY - box.top;
      return x < 0 || y < 0 || x >= box.width || y >= box.height ? null : { x, y };
    },

    // Colours and font of the theme, again after a change.
    retheme() {
      const theme = themed(colors());
      plot.lastUpdate = null;
      Plotly.relayout(div, theme);
      plot.measure();
    },

    destroy() { watcher.disconnect(); Plotly.purge(div); holder.remove(); },
  };
  const watcher = new ResizeObserver(([record]) => {
    plot.given = { width: Math.floor(record.contentRect.width), height: Math.floor(record.contentRect.height) };
    if (plot.given.width !== plot.width || plot.given.height !== plot.height) onResize?.();
  });
  watcher.observe(holder);
  plot.given = { width: Math.floor(holder.clientWidth), height: Math.floor(holder.clientHeight) };
  const template = structuredClone(figure ?? {});
  const layout = { ...BASE_LAYOUT, width: Math.max(40, root.clientWidth), height: Math.max(40, root.clientHeight), ...template.layout };
  for (const axis of Object.keys(layout).filter((name) => /^[xy]axis/.test(name))) layout[axis] = { ...axisColors(colors()), ...layout[axis] };
  layout.font = { family: colors().font, color: colors().soft, size: 11, ...template.layout?.font };
  Plotly.newPlot(div, template.data ?? [], layout, { ...BASE_CONFIG, ...template.config });
  plot.resize();
  plot.measure();
  return plot;

  function themed(theme) {
    const update = { 'font.color': theme.soft, 'font.family': theme.font };
    for (const axis of Object.keys(div.layout).filter((name) => /^[xy]axis/.test(name))) {
      for (const [key, value] of Object.entries(axisColors(theme))) update[`${axis}.${key}`] = value;
    }
    return update;
  }
}

function axisColors(theme) {
  return { gridcolor: theme.line, linecolor: theme.line, tickcolor: theme.line, zerolinecolor: theme.line };
}
