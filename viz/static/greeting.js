// While the model is loading (or the server does not answer), a recorded example plays in the place of the live panels, and says
// plainly that it is a recording. As soon as the engine is ready it gives way to the live run.

import { parseRecording } from './recording.js';
import { Replay } from './replay.js';

const EXAMPLE = 'viz/examples/smollm2.jsonl.gz';
const PATIENCE_MS = 700;             // an engine that is ready at once needs no greeting

export async function greet(app) {
  await new Promise((resolve) => { setTimeout(resolve, PATIENCE_MS); });
  const busy = () => {
    const { engine, layout } = app.store.head;
    return engine.status === 'loading' || (engine.status === 'failed' && layout === null);     // not there yet, or not to be reached
  };
  if (!busy()) return;
  const answer = await fetch(new URL(EXAMPLE, document.baseURI));
  if (!answer.ok) return;
  const recording = await parseRecording(await answer.blob());
  const live = document.getElementById('bs-live');
  if (!live || !busy()) return;
  const host = document.createElement('div');
  host.id = 'bs-greeting';
  live.before(host);
  live.hidden = true;
  const replay = new Replay(host, recording, { specs: app.data.panels, makeContext: app.makeContext, t: app.t, prefix: 'greeting', layout: app.layout });
  await replay.mount();
  const note = document.createElement('span');
  const say = () => { note.textContent = app.t('greeting.loading', { message: app.store.head.engine.message ?? '' }); };
  replay.actions.append(note);
  say();
  replay.transport.play();
  const relabel = () => { replay.restyle(); say(); };
  document.addEventListener('bs:language', relabel);
  const stop = app.store.subscribe(() => {
    if (busy()) { say(); return; }
    stop();
    document.removeEventListener('bs:language', relabel);
    replay.destroy();
    host.remove();
    live.hidden = false;
    app.screen?.invalidateAll();
    app.announce(app.t('greeting.live'));
  });
}
