// Fetches the course, one lesson, and its recorded runs; all from this server, each once.

const kept = new Map();

async function once(path, read) {
  if (!kept.has(path)) {
    kept.set(path, fetch(new URL(path, document.baseURI)).then((answer) => {
      if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
      return read(answer);
    }));
    kept.get(path).catch(() => kept.delete(path));       // a failed fetch may be tried again
  }
  return kept.get(path);
}

export const loadCourse = () => once("api/lessons", (answer) => answer.json());
export const loadLesson = (name) => once(`api/lessons/${encodeURIComponent(name)}`, (answer) => answer.json());
export const figureUrl = (name, figure, language) => new URL(`api/lessons/${encodeURIComponent(name)}/figures/${figure}.svg?lang=${language}`, document.baseURI).href;
export const handoutUrl = (name, language) => new URL(`api/lessons/${encodeURIComponent(name)}/handout?lang=${language}`, document.baseURI).href;

/** {header, metrics: {run: record}, runs: {run: {snapshot, events}}} of a lesson's recording. */
export const loadRecording = (name) => once(`api/lessons/${encodeURIComponent(name)}/run.jsonl.gz`, async (answer) => {
  const text = await new Response(answer.body.pipeThrough(new DecompressionStream("gzip"))).text();
  return readRecording(text);
});

export function readRecording(text) {
  const [header, ...rest] = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  if (header.format !== "batchscope-lesson" || header.version !== 1) throw new Error("This is not the recording of a lesson.");
  const runs = {};
  let run = null;
  for (const value of rest) {
    if ("run" in value) { run = { snapshot: null, events: [] }; runs[value.run] = run; } else if (value.type === "snapshot") run.snapshot = value;
    else run.events.push(value);
  }
  return { header, metrics: header.metrics, runs };
}
