// What is added to the live page once it stands: pictures of panels, "what if?" in the transport bar, the list of rooms behind the
// room's badge, the state in the address, and the example that greets a visitor while the model loads.

import { openForkDialog } from './fork.js';
import { greet } from './greeting.js';
import { addPictureMenus } from './panel_image.js';
import { openRoomsDialog } from './rooms_dialog.js';
import { LinkRefused, openLink } from './share.js';
import { showTab } from './show_tab.js';

export function start(app) {
  rememberWorkload(app);
  addPictureMenus(app.screen, app.t);
  addForkButton(app);
  addRoomsButton(app);
  greet(app).catch((error) => console.info('no greeting', error));
  whenConnected(app, () => openHash(app));
  addEventListener('hashchange', () => openHash(app));
}

// A link and a run card tell the workload that was started last from this page.
function rememberWorkload(app) {
  const { command } = app;
  app.command = async (cmd, fields) => {
    const result = await command(cmd, fields);
    if (cmd === 'workload') app.workload = fields.workload;
    return result;
  };
}

function addForkButton(app) {
  const bar = document.getElementById('bs-transport');
  if (!bar || bar.querySelector('[data-fork]')) return;
  const button = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-button' });
  button.dataset.fork = '';
  button.dataset.t = 'fork.button';
  button.dataset.tLabel = 'fork.button_help';
  button.addEventListener('click', () => openForkDialog(app, { room: app.socket.room }, app.store.state));
  bar.querySelector('.bs-live-badge').after(button);
  app.t.apply(bar);
}

function addRoomsButton(app) {
  const badge = document.querySelector('#bs-header [data-room]');
  if (!badge) return;
  badge.setAttribute('role', 'button');
  badge.setAttribute('aria-haspopup', 'dialog');
  badge.tabIndex = 0;
  badge.style.cursor = 'pointer';
  badge.addEventListener('click', () => openRoomsDialog(app));
  badge.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); openRoomsDialog(app); } });
}

function whenConnected(app, act) {
  if (app.store.started) { act(); return; }
  const stop = app.store.subscribe(() => { if (app.store.started) { stop(); act(); } });
}

async function openHash(app) {
  const { t } = app;
  try {
    const said = await openLink(app, location.hash, showTab);
    if (said) app.announce(said);
  } catch (error) {
    const sentence = error instanceof LinkRefused ? t(`share.bad.${error.key}`) : error.message;
    app.announce(sentence);
    showSentence(sentence);
  }
}

// A refused link is told where one looks first; it goes away by itself or with a click.
function showSentence(text) {
  const box = Object.assign(document.createElement('p'), { className: 'bs-root bs-sentence bs-link-sentence', textContent: text });
  box.dataset.kind = 'error';
  box.setAttribute('role', 'alert');
  box.addEventListener('click', () => box.remove());
  document.body.append(box);
  setTimeout(() => box.remove(), 12000);
}
