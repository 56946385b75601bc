// Sends what stands in the prompt form. The values come from Gradio's components in the order of FIELDS in viz/page_ask.py.

const FIELDS = ['prompt', 'mode', 'max_new_tokens', 'temperature', 'top_k', 'top_p', 'min_p', 'repetition_penalty', 'n', 'seed', 'ignore_eos'];
const PARAMS = ['max_new_tokens', 'temperature', 'top_k', 'top_p', 'min_p', 'repetition_penalty', 'n', 'ignore_eos'];

// "Send 8 at once" asks one question in eight lengths, so that their lives differ: that is what a batch looks like.
const EIGHT_LENGTHS = [1, 0.5, 0.75, 0.25, 1, 0.4, 0.9, 0.6];

export async function askForm(app, values, count) {
  const form = Object.fromEntries(FIELDS.map((name, at) => [name, values[at]]));
  const params = {};
  for (const name of PARAMS) {
    if (form[name] === null || form[name] === undefined || form[name] === app.data.sampling.defaults[name]) continue;
    params[name] = form[name];
  }
  if (form.seed !== null && String(form.seed).trim() !== '') {
    const seed = Number(form.seed);
    if (!Number.isInteger(seed)) { say(app, app.t('ask.bad_seed'), 'error'); return; }
    params.seed = seed;
  }
  const chat = form.mode === 'chat';
  const one = (share) => ({
    prompt: form.prompt ?? '', chat,
    params: share === 1 ? params : { ...params, max_new_tokens: Math.max(1, Math.round((params.max_new_tokens ?? app.data.sampling.defaults.max_new_tokens) * share)) },
  });
  try {
    const fields = count === 1 ? one(1) : { requests: EIGHT_LENGTHS.slice(0, count).map(one) };
    const { ids, refused = [] } = await whereAllowed(app, () => app.command('submit', fields));
    if (!ids.length && refused.length) { say(app, refused[0].message, 'error'); return; }
    if (!app.store.live) app.store.goLive();
    say(app, app.t(ids.length === 1 ? 'ask.sent' : 'ask.sent_many', { id: ids[0], count: ids.length }), 'good');
  } catch (error) {
    say(app, error.message, 'error');
  }
}

// Where strangers visit, the main room is a show: the first prompt opens a room of the visitor's own and goes there.
async function whereAllowed(app, send) {
  try {
    return await send();
  } catch (error) {
    if (error.code !== 'main_is_a_show') throw error;
    const { room } = await app.socket.command('create_room', { config: app.store.head.config ?? {} });
    await app.socket.command('pace', { room, steps_per_second: 8 });
    await app.watch(room);
    return send();
  }
}

function say(app, text, kind) {
  const line = document.getElementById('bs-ask-message');
  line.textContent = text;
  line.dataset.kind = kind;
  document.getElementById('bs-prompt')?.querySelector('textarea')?.setAttribute('aria-invalid', String(kind === 'error'));
}
