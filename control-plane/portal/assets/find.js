/** Searches the sections of all documents. */
// @ts-check

const RESULTS_MAX = 20;
const EXCERPT_BEFORE = 40;
const EXCERPT_LENGTH = 140;

const box = document.querySelector('#find');
const input = box?.querySelector('input');
const said = box?.querySelector('[role=status]');
const list = box?.querySelector('ol');

/** @typedef {{ href: string, title: string, text: string }} Section */

/** @param {Document} page @param {HTMLAnchorElement} link @returns {Section[]} */
function sectionsOf(page, link) {
  const found = [...page.querySelectorAll('main article[id], main section[id]')];
  return found.map(section => ({
    href: `${link.pathname}#${section.id}`,
    title: `${link.textContent}: ${titleOf(section)}`,
    text: textOf(page, section),
  }));
}

/** Puts spaces between cells and paragraphs, unlike `textContent`. */
/** @param {Document} page @param {Element} section */
function textOf(page, section) {
  const texts = page.createNodeIterator(section, NodeFilter.SHOW_TEXT);
  const pieces = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode()) pieces.push(text.nodeValue);
  return pieces.join(' ').replaceAll(/\s+/g, ' ');
}

/** @param {Element} section */
function titleOf(section) {
  return section.ariaLabel ?? section.querySelector('h2, h3')?.textContent ?? section.id;
}

/** @param {HTMLAnchorElement} link */
async function read(link) {
  if (link.pathname === location.pathname) return sectionsOf(document, link);
  const answer = await fetch(link.href, { headers: { accept: 'text/html' } });
  const text = answer.ok ? await answer.text() : '';
  return sectionsOf(new DOMParser().parseFromString(text, 'text/html'), link);
}

/** @type {Promise<Section[]> | undefined} */
let reading;
function readAll() {
  const links = /** @type {NodeListOf<HTMLAnchorElement>} */ (
    document.querySelectorAll('.nav > li > a[href*="/docs"]')
  );
  reading ??= Promise.all([...links].map(read)).then(pages => pages.flat());
  return reading;
}

/** @param {Section} section @param {string[]} words */
function rankOf({ title, text }, words) {
  const [inTitle, inText] = [title.toLowerCase(), text.toLowerCase()];
  if (words.every(word => inTitle.includes(word))) return 0;
  return words.every(word => inText.includes(word) || inTitle.includes(word)) ? 1 : undefined;
}

/** @param {Section} section @param {string} word */
function entryOf({ href, title, text }, word) {
  const link = Object.assign(document.createElement('a'), { href, textContent: title });
  const from = Math.max(0, text.toLowerCase().indexOf(word) - EXCERPT_BEFORE);
  const excerpt = document.createElement('p');
  excerpt.textContent = `…${text.slice(from, from + EXCERPT_LENGTH)}…`;
  const entry = document.createElement('li');
  entry.append(link, excerpt);
  return entry;
}

async function find() {
  if (!input || !said || !list) return;
  const typed = input.value;
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const sections = words.length === 0 ? [] : await readAll();
  if (input.value !== typed) return;
  const ranked = sections.map(section => ({ section, rank: rankOf(section, words) }));
  const hits = ranked.filter(({ rank }) => rank !== undefined);
  hits.sort((a, b) => Number(a.rank) - Number(b.rank));
  said.textContent = words.length === 0 ? '' : `${hits.length} found`;
  const shown = hits.slice(0, RESULTS_MAX);
  list.replaceChildren(...shown.map(({ section }) => entryOf(section, words[0] ?? '')));
}

if (box instanceof HTMLElement && input) {
  box.hidden = false;
  input.addEventListener('input', find);
}
