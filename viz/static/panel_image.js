// Any panel as a picture: SVG (a chart of Plotly's as pure SVG; anything else as SVG around the panel's own markup, with its pixels for
// readers that know no HTML) or PNG made from it. Everything is inside the picture; nothing is fetched.

import { download } from './recording.js';
import { themeColors } from './palette.js';

const XHTML = 'http://www.w3.org/1999/xhtml';
const PNG_SCALE = 2;
const LEAVE_OUT = '.bs-panel-tools, .bs-sr, .bs-surface-tip, button.bs-icon';
// Plotly's layers lie over one another; everything else in its sheet is for its buttons and pointers.
const OURS = /\.bs-|\.main-svg/;
const PSEUDO_ELEMENTS = /::?(before|after|marker|placeholder|backdrop|-[a-z-]+)/g;

const withoutControls = (text) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '');
const escaped = (text) => withoutControls(text).replace(/&/g, '&amp;').replace(/</g, '&lt;');

// The style rules that hold now. A picture is a page of its own and mostly narrow: asked there, `max-width` would fold the panel as on
// a phone.
function* rulesNow(rules) {
  for (const rule of rules) {
    if (rule.media) { if (matchMedia(rule.media.mediaText).matches) yield* rulesNow(rule.cssRules); } else if (rule.selectorText) yield rule;
  }
}

// Whether a rule is about something in the picture.
function concerns(body, selector) {
  const plain = selector.replace(PSEUDO_ELEMENTS, '');
  try { return body.matches(plain) || body.querySelector(plain) !== null; } catch { return true; }             // nothing was left of "::marker"
}

// The page's own rules for the picture.
function rulesFor(body) {
  let text = '* { scrollbar-width: none !important; }\n';
  for (const sheet of document.styleSheets) {
    let rules;
    try { rules = sheet.cssRules; } catch { continue; }                        // a sheet of another origin; not ours
    for (const rule of rulesNow(rules)) if (OURS.test(rule.selectorText) && concerns(body, rule.selectorText)) text += `${rule.cssText}\n`;
  }
  return text;
}

// The page's tokens (--bs-…) with their values as they are now.
function tokens() {
  const names = new Set();
  for (const sheet of document.styleSheets) {
    try { for (const rule of rulesNow(sheet.cssRules)) for (const name of rule.style) if (name.startsWith('--bs-')) names.add(name); } catch { /* as above */ }
  }
  const style = getComputedStyle(document.body);
  return [...names].map((name) => `${name}:${style.getPropertyValue(name).trim()}`).join(';');
}

// Takes out of the copy what is not seen on the page or is only there to be clicked, and turns canvases into images.
function freeze(original, copy) {
  if (original.matches(LEAVE_OUT) || getComputedStyle(original).display === 'none') { copy.remove(); return; }
  if (original instanceof HTMLCanvasElement) {
    if (!original.width || !original.height) { copy.remove(); return; }
    const image = document.createElementNS(XHTML, 'img');
    image.setAttribute('src', original.toDataURL('image/png'));
    image.setAttribute('class', original.className);
    image.setAttribute('style', `${original.getAttribute('style') ?? ''};width:${original.clientWidth}px;height:${original.clientHeight}px`);
    copy.replaceWith(image);
    return;
  }
  if (original instanceof SVGElement) return;
  const children = [...copy.children];
  [...original.children].forEach((child, index) => freeze(child, children[index]));
}

// A copy of the panel among the elements that its style rules look for.
function bodyOf(card, width, height) {
  const element = (name, className, style) => {
    const made = document.createElementNS(XHTML, name);
    made.setAttribute('class', className);
    made.setAttribute('style', style);
    return made;
  };
  const copy = card.cloneNode(true);
  const area = element('div', card.closest('.bs-area')?.className ?? '', 'display:block');
  const root = element('div', card.closest('.bs-replay') ? 'bs-root bs-replay' : 'bs-root', `width:${width}px;height:${height}px`);
  const body = element('body', document.body.className, `${tokens()};margin:0;background:none`);
  copy.style.height = `${height}px`;
  area.append(copy);
  root.append(area);
  body.append(root);
  freeze(card, copy);
  return body;
}

const frame = (width, height, content) => `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" `
  + `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`
  + `<rect width="100%" height="100%" fill="${themeColors().surface || '#fff'}"/>${content}</svg>`;

// {width, height, html}: the content of an SVG that shows the card as it stands on the page.
function htmlDrawing(card) {
  const bounds = card.getBoundingClientRect();
  const [width, height] = [Math.ceil(bounds.width), Math.ceil(bounds.height)];
  const body = bodyOf(card, width, height);
  const markup = withoutControls(new XMLSerializer().serializeToString(body));
  // The attribute tells readers without HTML to take the next thing in the switch.
  const html = `<foreignObject width="${width}" height="${height}" requiredExtensions="${XHTML}">${markup}</foreignObject>`;
  return { width, height, html: `<style>${escaped(rulesFor(body))}</style><switch>${html}`, end: '</switch>' };
}

// A card whose body is a chart and nothing else: title, note and Plotly's own SVG.
async function chartSvg(card, chart) {
  const bounds = card.getBoundingClientRect();
  const at = chart.getBoundingClientRect();
  const colors = themeColors();
  const words = (element, weight) => {
    if (!element?.textContent) return '';
    const place = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const squeezed = element.scrollWidth > element.clientWidth ? `textLength="${element.clientWidth}" lengthAdjust="spacingAndGlyphs" ` : '';
    return `<text ${squeezed}x="${place.left - bounds.left}" y="${place.top - bounds.top + place.height / 2 + size * 0.35}" font-size="${size}" `
      + `font-weight="${weight}" font-family="${colors.font.replace(/"/g, "'")}" fill="${style.color}">${escaped(element.textContent)}</text>`;
  };
  const address = await window.Plotly.toImage(chart, { format: 'svg', width: chart.clientWidth, height: chart.clientHeight });
  const inner = decodeURIComponent(address.slice(address.indexOf(',') + 1));
  return frame(Math.ceil(bounds.width), Math.ceil(at.bottom - bounds.top + 8),
    `${words(card.querySelector('h3'), 650)}${words(card.querySelector('.bs-panel-note'), 400)}`
    + `<g transform="translate(${at.left - bounds.left} ${at.top - bounds.top})">${inner}</g>`);
}

function onlyChart(card) {
  const chart = card.querySelector('.bs-chart-plot:not([hidden])');
  return chart?.data && !card.querySelector('canvas, table:not([hidden])') ? chart : null;
}

// The SVG text of a mounted, visible panel card.
export async function panelSvg(card) {
  const chart = onlyChart(card);
  if (chart) return chartSvg(card, chart);
  const { width, height, html, end } = htmlDrawing(card);
  let pixels = '';
  try {
    const address = await rasterize(frame(width, height, html + end));
    pixels = `<image width="${width}" height="${height}" xlink:href="${address}"/>`;
  } catch (error) { if (error.name !== 'SecurityError') throw error; }         // a browser that keeps such pixels to itself
  return frame(width, height, html + pixels + end);
}

export const svgAddress = (svg) => `data:image/svg+xml;charset=utf-8;base64,${toBase64(svg)}`;

function toBase64(text) {
  let binary = '';
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

// A PNG of an SVG as a data: address, at twice the size on screen.
async function rasterize(svg) {
  const image = new Image();
  await new Promise((resolve, reject) => { image.onload = resolve; image.onerror = () => reject(new Error('the picture could not be drawn')); image.src = svgAddress(svg); });
  const canvas = document.createElement('canvas');
  canvas.width = image.width * PNG_SCALE;
  canvas.height = image.height * PNG_SCALE;
  const ctx = canvas.getContext('2d');
  ctx.scale(PNG_SCALE, PNG_SCALE);
  ctx.drawImage(image, 0, 0);
  return canvas.toDataURL('image/png');
}

export async function panelPng(card) {
  const chart = onlyChart(card);
  if (chart) return rasterize(await chartSvg(card, chart));
  const { width, height, html, end } = htmlDrawing(card);
  return rasterize(frame(width, height, html + end));
}

export const panelPicture = async (card, kind) => (kind === 'png' ? panelPng(card) : svgAddress(await panelSvg(card)));

// By hand and not with fetch: an exported file forbids itself every request, even for an address that holds its own content.
function blobOf(address) {
  const [head, data] = address.split(',', 2);
  return new Blob([Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0))], { type: head.slice(5).split(';')[0] });
}

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
      download(blobOf(await panelPicture(card, kind)), `batchscope-${spec.name}.${kind}`);
    });
    menu.addEventListener('keydown', (event) => { if (event.key === 'Escape') menu.open = false; });
    menu.addEventListener('focusout', (event) => { if (!menu.contains(event.relatedTarget)) menu.open = false; });
    card.querySelector('.bs-panel-tools').append(menu);
    t.apply(menu);
  }
}
