// Which lesson explains a term of the screen, and the way there. The names are those of the folders in `lessons/`.

import { showTab } from './show_tab.js';

const LIFE = '04-the-life-of-a-request';
const DECISIONS = '05-three-decisions';
const CACHE = '06-the-paged-cache';
const SLICES = '07-prefill-in-slices';
const PRESSURE = '11-when-memory-runs-out';

export const LESSON_OF = {
  pending: LIFE, prefilling: LIFE, decoding: LIFE, finished: LIFE, failed: LIFE,
  offloaded: PRESSURE, soft_reset: PRESSURE, 'reason.starved': PRESSURE,
  decode: '03-a-batch-rebuilt-every-step', prefill: SLICES, unused: SLICES, 'reason.token_budget': SLICES, 'reason.whole_prompt': SLICES,
  padding: '12-cuda-graphs', request_cap: DECISIONS, 'reason.request_cap': DECISIONS, 'reason.no_free_block': DECISIONS,
  'reason.kv_read_budget': DECISIONS, 'reason.head_of_line': '08-fifo-and-prefillfirst', 'reason.safety_margin': '09-safety-margin',
  'reason.static_barrier': '02-static-batching-and-its-holes', 'reason.fork_parent': CACHE,
  'block.owned': CACHE, 'block.free': CACHE, rebuild_knob: CACHE, 'block.shared': '10-prefix-caching', 'block.cached': '10-prefix-caching',
  'block.padding': '12-cuda-graphs',
};

// "06-the-paged-cache" → 6
export const lessonNumber = (name) => Number.parseInt(name, 10);

export function openLesson(app, name) {
  app.lesson = name;                       // what the tab opens when it has not been shown yet
  showTab('lessons');
  app.lessons?.open(name);
}
