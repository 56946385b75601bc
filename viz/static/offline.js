// The entry of an exported file: one recording, replayed from the file itself with no server, no engine and no network.

import { contextMaker } from './context.js';
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

const makeContext = contextMaker({ t, data, tooltip, colors: () => (colors ??= themeColors()) });

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

const SETTLE_MS = 15000;
const nextFrame = () => new Promise((resolve) => { requestAnimationFrame(resolve); });

// Draws every panel afresh and returns when all in sight have been drawn; charts take turns and come last.
async function settled() {
  const { screen } = replay;
  const since = performance.now();
  screen.restyle();
  const busy = ({ card, panel, dirty, inSight }) => panel && inSight && !card.hidden
    && (dirty || (panel.chart?.box.clientWidth > 0 && panel.chart.drawnAt < since));
  while ([...screen.entries.values()].some(busy) && performance.now() - since < SETTLE_MS) await nextFrame();
  for (let frame = 0; frame < 3; frame += 1) await nextFrame();       // what a panel does in the frame after its own
}

// What `python -m viz.export --svg` drives.
window.batchscopeOffline = {
  // step: null for the end of the recording; request: the one to highlight, or null.
  show: async (step, request) => {
    if (step === null) replay.store.seekIndex(replay.store.last); else replay.store.seekStep(step);
    replay.screen.select(request);
  },
  settled,
  picture: async (panel, kind) => {
    const { screen, store } = replay;
    // The story is of the chosen request; where none was chosen, it is of one that runs, or of the last one that ended.
    const told = panel === 'request_story' && !screen.pinned ? store.state.active[0] ?? store.state.ended.at(-1) : null;
    if (told) { screen.select(told); await settled(); }
    const address = await panelPicture(screen.entries.get(panel).card, kind);
    if (told) { screen.select(null); await settled(); }
    return address;
  },
  get replay() { return replay; },
};

start();
