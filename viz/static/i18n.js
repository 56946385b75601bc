// Texts by key in the chosen language. `t('key', {name: value})` fills `{name}`; an unknown key shows itself, so that a missing
// text is seen. Elements carry `data-t` (text), `data-t-label` (aria-label and tooltip), `data-t-placeholder`.

export function makeTranslator(texts, language) {
  let current = texts[language] ? language : 'en';
  const t = (key, values) => {
    const text = texts[current][key] ?? texts.en?.[key] ?? key;
    return values ? text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole)) : text;
  };
  t.has = (key) => key in (texts[current] ?? {}) || key in (texts.en ?? {});
  t.language = () => current;
  t.languages = () => Object.keys(texts);
  t.setLanguage = (next) => { if (texts[next]) current = next; };
  const formats = new Map();                                 // making one costs a hundred times what using it does
  t.number = (value, digits = 0) => {
    const key = `${current}${digits}`;
    if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(current, { minimumFractionDigits: digits, maximumFractionDigits: digits }));
    return formats.get(key).format(value);
  };
  t.apply = (root) => {
    for (const element of root.querySelectorAll('[data-t]')) element.textContent = t(element.dataset.t);
    for (const element of root.querySelectorAll('[data-t-label]')) {
      const text = t(element.dataset.tLabel);
      // Beside a text of its own the sentence is a description; alone it is the name.
      element.setAttribute('t' in element.dataset ? 'aria-description' : 'aria-label', text);
      element.dataset.tip = text;
    }
    for (const element of root.querySelectorAll('[data-t-placeholder]')) element.placeholder = t(element.dataset.tPlaceholder);
  };
  return t;
}

// The language to start with: the URL's, the one chosen before, the browser's, English.
export function startLanguage(texts) {
  const asked = new URLSearchParams(location.search).get('lang');
  let stored = null;
  try { stored = localStorage.getItem('batchscope.language'); } catch { /* storage may be blocked in a frame */ }
  for (const code of [asked, stored, ...(navigator.languages ?? [])]) {
    const short = code?.slice(0, 2).toLowerCase();
    if (short && texts[short]) return short;
  }
  return 'en';
}
