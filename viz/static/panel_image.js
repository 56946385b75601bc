// Any panel as a picture: SVG (a chart of Plotly's as pure SVG, anything else as SVG around the panel's own markup and canvases) or
// PNG made from it. Everything is inside the picture; nothing is fetched.

import { download } from './recording.js';
import { themeColors } from './palette.js';

const XHTML = 'http://www.w3.org/1999/xhtml';
const PNG_SCALE = 2;
const LEAVE_OUT = '.bs-panel-hide, .bs-panel-tools, .bs-sr, .bs-surface-tip, [hidden]';

// The style rules of this page's own sheets, and the values of its tokens as they are now (the theme stands on <body>).
function ownStyles() {
  let text = '';
  const tokens = new Set();
  for (const sheet of document.styleSheets) {
    let rules;
    try { rules = [...sheet.cssRules]; } catch { continue; }                   // a sheet of another origin; not ours
    if (!rules.some((rule) => rule.cssText.includes('--bs-') || rule.selectorText?.includes('.bs-'))) continue;
    for (const rule of rules) {
      if (rule.cssText.includes('.bs-')) text += `${rule.cssText}\n`;
      for (const name of rule.style ?? []) if (name.startsWith('--bs-')) tokens.add(name);
    }
  }
  const style = getComputedStyle(document.body);
  const values = [...tokens].map((name) => `${name}:${style.getPropertyValue(name).trim()}`).join(';');
  return { text, values };
}

function withoutControls(text) { return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, ''); }

// A copy of the panel in which canvases have become images and controls are gone.
function copyOf(card) {
  const copy = card.cloneNode(true);
  const canvases = card.querySelectorAll('canvas');
  copy.querySelectorAll('canvas').forEach((canvas, index) => {
    const original = canvases[index];
    if (!original.width || !original.height) { canvas.remove(); return; }
    const image = document.createElementNS(XHTML, 'img');
    image.setAttribute('src', original.toDataURL('image/png'));
    image.setAttribute('class', original.className);
    image.setAttribute('style', `${original.getAttribute('style') ?? ''};width:${original.clientWidth}px;height:${original.clientHeight}px`);
    canvas.replaceWith(image);
  });
  for (const element of copy.querySelectorAll(LEAVE_OUT)) element.remove();
  return copy;
}

// The SVG text of a mounted, visible panel card.
export async function panelSvg(card) {
  const chart = card.querySelector('.bs-chart-plot:not([hidden])');
  if (chart?.data && !card.querySelector('canvas, table:not([hidden])')) {
    const address = await window.Plotly.toImage(chart, { format: 'svg', width: chart.clientWidth, height: chart.clientHeight });
    return decodeURIComponent(address.slice(address.indexOf(',') + 1));
  }
  const { width, height } = card.getBoundingClientRect();
  const { text, values } = ownStyles();
  const holder = document.createElementNS(XHTML, 'div');
  holder.setAttribute('class', 'bs-root');
  holder.setAttribute('style', `${values};width:${Math.ceil(width)}px;height:${Math.ceil(height)}px`);
  const copy = copyOf(card);
  copy.style.height = `${Math.ceil(height)}px`;
  holder.append(copy);
  const body = withoutControls(new XMLSerializer().serializeToString(holder));
  const size = `width="${Math.ceil(width)}" height="${Math.ceil(height)}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}">`
    + `<style>${withoutControls(text).replace(/&/g, '&amp;').replace(/</g, '&lt;')}</style>`
    + `<rect width="100%" height="100%" fill="${themeColors().surface || '#fff'}"/>`
    + `<foreignObject width="100%" height="100%">${body}</foreignObject></svg>`;
}

export const svgAddress = (svg) => `data:image/svg+xml;charset=utf-8;base64,${toBase64(svg)}`;

function toBase64(text) {
  let binary = '';
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

// A PNG as a data: address, at twice the size on screen.
export async function panelPng(card) {
  const address = svgAddress(await panelSvg(card));
  const image = new Image();
  await new Promise((resolve, reject) => { image.onload = resolve; image.onerror = () => reject(new Error('the picture could not be drawn')); image.src = address; });
  const canvas = document.createElement('canvas');
  canvas.width = image.width * PNG_SCALE;
  canvas.height = image.height * PNG_SCALE;
  const ctx = canvas.getContext('2d');
  ctx.scale(PNG_SCALE, PNG_SCALE);
  ctx.drawImage(image, 0, 0);
  return canvas.toDataURL('image/png');
}

export const panelPicture = async (card, kind) => (kind === 'png' ? panelPng(card) : svgAddress(await panelSvg(card)));

// A small menu "save as picture" in the head of every panel of a screen.
export function addPictureMenus(screen, t) {
  for (const { card, spec } of screen.entries.values()) {
    const menu = document.createElement('details');
    menu.className = 'bs-picture-menu';
    menu.innerHTML = `<summary class="bs-icon" data-t-label="picture.save">⤓</summary>
      <div><button type="button" class="bs-button" data-kind="svg">SVG</button><button type="button" class="bs-button" data-kind="png">PNG</button></div>`;
    menu.addEventListener('click', async (event) => {
      const kind = event.target.dataset?.kind;
      if (!kind) return;
      menu.open = false;
      const address = await panelPicture(card, kind);
      download(await (await fetch(address)).blob(), `batchscope-${spec.name}.${kind}`);
    });
    menu.addEventListener('keydown', (event) => { if (event.key === 'Escape') menu.open = false; });
    menu.addEventListener('focusout', (event) => { if (!menu.contains(event.relatedTarget)) menu.open = false; });
    card.querySelector('.bs-panel-tools').append(menu);
    t.apply(menu);
  }
}
