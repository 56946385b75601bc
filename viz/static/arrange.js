// Puts elements into a list in this order, and takes out what is not among them. Only what came, went or moved is touched: an element
// that is taken out and put back is laid out again with everything in it.
export function arrange(list, elements) {
  const wanted = new Set(elements);
  for (const element of [...list.children]) if (!wanted.has(element)) element.remove();
  let before = null;
  for (const element of elements.toReversed()) {
    if (element.parentElement !== list || element.nextElementSibling !== before) list.insertBefore(element, before);
    before = element;
  }
}
