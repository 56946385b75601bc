// Gradio's components are labelled by Python in English; here their labels follow the page's language at once, without a reload.

const LABELS = ['prompt', 'mode', 'max_new_tokens', 'temperature', 'top_k', 'top_p', 'min_p', 'repetition_penalty', 'n', 'seed', 'ignore_eos'];
const TABS = ['live', 'compare', 'lessons', 'recordings'];

export function relabelGradio(t) {
  for (const name of LABELS) {
    const block = document.getElementById(`bs-${name}`);
    const label = block?.querySelector('[data-testid="block-info"], label > span:not([data-testid])');
    if (label) setText(label, t(`ask.${name}`));
    if (label && t.has(`help.param.${name}`)) label.dataset.tip = t(`help.param.${name}`);
  }
  setText(document.getElementById('bs-send'), t('ask.send'));
  setText(document.getElementById('bs-send8'), t('ask.send8'));
  setText(document.querySelector('#bs-ask-more .label-wrap > span'), t('ask.more'));
  const prompt = document.querySelector('#bs-prompt textarea');
  if (prompt) prompt.placeholder = t('ask.placeholder');
  const seed = document.querySelector('#bs-seed textarea, #bs-seed input');
  if (seed) seed.placeholder = t('ask.seed_auto');
  document.querySelectorAll('#bs-mode input[type=radio]').forEach((radio) => {
    const text = radio.parentElement?.querySelector('span');
    if (text) setText(text, t(`ask.${radio.value}`));
  });
  document.querySelectorAll('#bs-tabs > .tab-wrapper button[role=tab]').forEach((button, at) => {
    if (TABS[at]) setText(button, t(`tab.${TABS[at]}`));
  });
}

// Changes the text without taking away icons or inputs that stand beside it.
function setText(element, text) {
  if (!element) return;
  const node = [...element.childNodes].find((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim());
  if (node) { if (node.textContent.trim() !== text) node.textContent = text; } else if (!element.childElementCount) element.textContent = text;
}
