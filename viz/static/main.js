// The page's entry: reads the embedded data, opens the websocket, and mounts each part when its host appears. Importing this
// module again gives the same one, so every `gr.HTML` host may call `attach` on its own.

import { askForm } from './ask.js';
import { contextMaker } from './context.js';
import { Controls } from './controls.js';
import { Header } from './header.js';
import { makeTranslator, startLanguage } from './i18n.js';
import { relabelGradio } from './gradio_labels.js';
import { palette, themeColors } from './palette.js';
import { PanelLayout, Screen } from './screen.js';
import { Socket, socketUrl } from './socket.js';
import { Store } from './store.js';
import { openLesson } from './term_lessons.js';
import { Tooltip } from './tooltip.js';
import { Transport } from './transport.js';

const ROOMLESS = new Set(['hello', 'catalog', 'rooms', 'create_room']);
const HISTORY_EVENTS = 3000;       // how far back a newcomer can look: some six minutes at ×1
const TABS = ['compare', 'lessons', 'recordings'];

const data = JSON.parse(document.getElementById('bs-data').textContent);
const t = makeTranslator(data.texts, startLanguage(data.texts));
const store = new Store();
const tooltip = new Tooltip(t, (name) => openLesson(app, name));
const layout = new PanelLayout();
const motion = matchMedia('(prefers-reduced-motion: reduce)');
const parameters = new URLSearchParams(location.search);
if (parameters.has('panels')) layout.fromText(parameters.get('panels'));

let colors = null;
const readyCallbacks = [];

// What panels and tabs may use; also `window.batchscope`.
export const app = {
  data, t, store, tooltip, layout, palette,
  screen: null, socket: null, hello: null, role: null,
  hosts: {},
  colors: () => (colors ??= themeColors()),
  // Commands about a room are about the watched one; the others take no room.
  command: (cmd, fields = {}) => app.socket.command(cmd, ROOMLESS.has(cmd) ? fields : { room: app.socket.room, ...fields }),
  watch: (room) => app.socket.watch(room),
  ask: (values, count) => askForm(app, values, count),
  setLanguage,
  setDark: (dark) => { remember('theme', dark ? 'dark' : 'light'); document.body.classList.toggle('dark', dark); },
  setProjector: (on) => { document.body.classList.toggle('bs-projector', on); remember('projector', on ? '1' : ''); restyle(); },
  announce,
  makeContext,
  onReady: (callback) => { if (app.screen?.mounted) callback(app); else readyCallbacks.push(callback); },
};
window.batchscope = app;

const newContext = contextMaker(app);

// A context for panels over any store: the live one here, a recording's or a compared room's elsewhere.
export function makeContext(ofStore, command = app.command) { return newContext(ofStore, command); }

function remember(key, value) {
  try { localStorage.setItem(`batchscope.${key}`, value); } catch { /* storage may be blocked in a frame */ }
}

function recall(key) {
  try { return localStorage.getItem(`batchscope.${key}`); } catch { return null; }
}

// --- hosts ---------------------------------------------------------------------------------------------------------------

const parts = {
  header: (element) => { app.header = new Header(element.querySelector('#bs-header'), app); },
  transport: (element) => { app.transport = new Transport(element.querySelector('#bs-transport'), app); },
  examples: (element) => import('./examples.js').then((module) => module.mountExamples(element.querySelector('#bs-examples'), app)),
  controls: (element) => { app.controls = new Controls(element.querySelector('#bs-controls'), app); },
  live: (element) => mountScreen(element.querySelector('#bs-live')),
};

export async function attach(name, element) {
  app.hosts[name] = element;
  if (TABS.includes(name)) { mountTab(name, element.querySelector(`#bs-${name}`)); return; }
  await parts[name](element);
  relabel();
}

async function mountScreen(root) {
  await plotlyLoaded();
  root.replaceChildren();
  const hosts = {};
  for (const area of ['main', 'side', 'more']) {
    const element = document.createElement('div');
    element.className = `bs-area bs-area-${area}`;
    root.append(element);
    hosts[area] = element;
  }
  app.screen = new Screen({ store, specs: data.panels, hosts, context: makeContext(store), layout });
  await app.screen.mount();
  app.screen.mounted = true;
  setTimeout(loadHistory, 1000);
  for (const callback of readyCallbacks.splice(0)) callback(app);
  const extras = await import('./extras.js');
  extras.start(app);
}

// A newcomer may scrub back too: the room's retained past is fetched once, when the page has drawn what is there now.
async function loadHistory() {
  try {
    const from = Math.max(0, store.head.seq - HISTORY_EVENTS);
    const answer = await fetch(new URL(`api/rooms/${encodeURIComponent(app.socket.room)}/history?from=${from}`, document.baseURI));
    if (!answer.ok) return;
    const text = await answer.text();
    store.prepend(text.split('\n').filter(Boolean).map((line) => JSON.parse(line)));
  } catch (error) { console.info('no earlier history', error); }
}

// A tab's module is loaded when the tab is first seen, so the live page does not wait for it.
function mountTab(name, element) {
  const seen = new IntersectionObserver(async (records) => {
    if (!records.some((record) => record.isIntersecting)) return;
    seen.disconnect();
    try {
      const module = await import(`./tabs/${name}.js`);
      element.replaceChildren();
      await module.mount(element, app);
      t.apply(element);
    } catch (error) {
      element.textContent = t('panel.broken', { name, error: String(error.message ?? error) });
      console.error(`tab ${name}`, error);
    }
  });
  seen.observe(element);
}

function plotlyLoaded() {
  if (window.Plotly) return Promise.resolve();
  return new Promise((resolve) => {
    const script = document.querySelector('script[src*="plotly-cartesian"]');
    script.addEventListener('load', resolve, { once: true });
    if (window.Plotly) resolve();
  });
}

// --- language, theme, announcements ----------------------------------------------------------------------------------------

function setLanguage(language) {
  t.setLanguage(language);
  remember('language', language);
  relabel();
  restyle();
  document.dispatchEvent(new CustomEvent('bs:language', { detail: { language } }));
}

function relabel() {
  document.documentElement.lang = t.language();
  t.apply(document);
  relabelGradio(t);
}

function restyle() {
  colors = null;
  palette.setDark(document.body.classList.contains('dark'));
  app.screen?.restyle();
  app.transport?.restyle();
}

// One polite live region for what happened away from the keyboard's focus.
function announce(text) {
  let region = document.getElementById('bs-announce');
  if (!region) {
    region = Object.assign(document.createElement('p'), { id: 'bs-announce', className: 'bs-sr' });
    region.setAttribute('role', 'status');
    region.setAttribute('aria-live', 'polite');
    document.body.append(region);
  }
  region.textContent = text;
}

function startTheme() {
  const chosen = parameters.get('theme') ?? parameters.get('__theme') ?? recall('theme');
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.body.classList.toggle('dark', dark);
  if ((parameters.get('view') ?? '') === 'projector' || recall('projector') === '1') document.body.classList.add('bs-projector');
  palette.setDark(dark);
  let wasDark = dark;
  new MutationObserver(() => {
    const now = document.body.classList.contains('dark');
    if (now !== wasDark) { wasDark = now; restyle(); }
  }).observe(document.body, { attributes: true, attributeFilter: ['class'] });
}

startTheme();
store.subscribe((what) => {
  if (what === 'seek') document.body.classList.toggle('bs-past', !store.live);
});
app.socket = new Socket({
  url: socketUrl(), store, room: parameters.get('room') ?? 'main', token: parameters.get('host') ?? parameters.get('token'),
  onStatus: (status, error) => document.dispatchEvent(new CustomEvent('bs:status', { detail: { status, error } })),
  onHello: (hello) => { app.hello = hello; app.role = hello?.role ?? null; document.dispatchEvent(new CustomEvent('bs:hello', { detail: hello })); },
  onOther: (message) => document.dispatchEvent(new CustomEvent('bs:message', { detail: message })),
});
// The class is joined with the page, not with the tab: the host can bring everybody to the Lessons tab.
import('./lessons/class_link.js').then((lessons) => lessons.start(app)).catch((error) => console.info('no class', error));
