/** A bookmark of a section that is on another page now follows the page's own link to it. */
// @ts-check

const { hash } = location;
if (hash !== '' && document.getElementById(hash.slice(1)) === null) {
  const links = /** @type {NodeListOf<HTMLAnchorElement>} */ (
    document.querySelectorAll('main a[href]')
  );
  const link = [...links].find(one => one.hash === hash);
  if (link) location.replace(link.href);
}
