/** A bookmark of a section that has moved to another page follows this page's link to it. */
// @ts-check

const { hash } = location;
if (hash !== '' && document.getElementById(hash.slice(1)) === null) {
  const links = /** @type {NodeListOf<HTMLAnchorElement>} */ (
    document.querySelectorAll('main a[href]')
  );
  const link = [...links].find(one => one.hash === hash);
  if (link) location.replace(link.href);
}
