// The entry of an exported file: one recording, replayed from the file itself with no server, no engine and no network.

import { makePlot } from './figure.js';
import { makeTranslator, startLanguage } from './i18n.js';
import { palette, themeColors } from './palette.js';
import { addPictureMenus, panelPicture } from './panel_image.js';
import { RecordingRefused, parseRecording } from './recording.js';
import { Replay } from './replay.js';
import { PanelLayout } from './screen.js';
import { Tooltip } from './tooltip.js';

const data = JSON.parse(document.getElementById('bs-data').textContent);
const t = makeTranslator(data.texts, startLanguage(data.texts));
const root = document.getElementById('bs-offline');
const tooltip = new Tooltip(t);
let colors = null;
let replay = null;

function makeContext(store, command) {
  return {
    store, t, palette, command, data, tooltip, tip: (element, text) => tooltip.attach(element, text),
    colors: () => (colors ??= themeColors()), plot: (element, figure) => makePlot(element, figure, () => (colors ??= themeColors())),
    reducedMotion: () => matchMedia('(prefers-reduced-motion: reduce)').matches, number: (value, digits = 0) => t.number(value, digits),
  };
}

function recordingBlob() {
  const text = atob(document.getElementById('bs-recording').textContent.trim());
  return new Blob([Uint8Array.from(text, (letter) => letter.charCodeAt(0))]);
}

function setDark(dark) {
  document.body.classList.toggle('dark', dark);
  palette.setDark(dark);
  colors = null;
  replay?.restyle();
}

function buildBar() {
  const bar = document.getElementById('bs-offline-bar');
  const language = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-button', textContent: t.language() === 'en' ? '한국어' : 'English' });
  const theme = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-button', textContent: '◐' });
  theme.setAttribute('aria-label', t('offline.theme'));
  language.addEventListener('click', () => {
    t.setLanguage(t.language() === 'en' ? 'ko' : 'en');
    document.documentElement.lang = t.language();
    buildBar();
    replay?.restyle();
  });
  theme.addEventListener('click', () => setDark(!document.body.classList.contains('dark')));
  const note = Object.assign(document.createElement('span'), { className: 'bs-soft', textContent: t('offline.note') });
  bar.querySelector('[data-tools]').replaceChildren(note, language, theme);
}

async function start() {
  document.documentElement.lang = t.language();
  buildBar();
  setDark(matchMedia('(prefers-color-scheme: dark)').matches);
  try {
    const recording = await parseRecording(recordingBlob());
    replay = new Replay(root, recording, {
      specs: data.panels, t, makeContext, prefix: 'offline', layout: new PanelLayout('batchscope.offline.panels'),
      loadPanel: (name) => import(`batchscope/panels/${name}.js`),       // bare names: the file's import map knows them
    });
    await replay.mount();
    addPictureMenus(replay.screen, t);
    document.body.dataset.ready = 'true';
  } catch (error) {
    root.textContent = error instanceof RecordingRefused ? error.sentence(t) : String(error.message ?? error);
  }
}

// What `python -m viz.export --svg` drives.
window.batchscopeOffline = {
  showEnd: () => new Promise((resolve) => { replay.store.seekIndex(replay.store.last); setTimeout(resolve, 1500); }),
  picture: (panel, kind) => {
    const entry = replay.screen.entries.get(panel);
    return entry ? panelPicture(entry.card, kind) : null;
  },
  get replay() { return replay; },
};

start();
