// Prompts to start with: one click writes one into the prompt box.

const EXAMPLES = ['sea', 'list', 'long', 'count'];

export function mountExamples(root, app) {
  root.innerHTML = `<div class="bs-chips" role="group" data-t-label="ask.examples">${EXAMPLES.map((name) => `<button type="button" class="bs-chip-button" data-example="${name}" data-t="example.${name}.label"></button>`).join('')}</div>`;
  app.t.apply(root);
  root.addEventListener('click', (event) => {
    const name = event.target.closest('[data-example]')?.dataset.example;
    if (name) fillPrompt(app.t(`example.${name}.prompt`));
  });
}

// Gradio listens to the textarea's input event; its value setter alone would go unnoticed.
export function fillPrompt(text) {
  const area = document.querySelector('#bs-prompt textarea');
  Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').set.call(area, text);
  area.dispatchEvent(new Event('input', { bubbles: true }));
  area.focus();
}
