/** Lines of CSV as RFC 4180 has them, safe to be opened by a spreadsheet. */

/**
 * What a spreadsheet takes for the beginning of a formula, as OWASP lists it: the signs of full
 * width too, which it reads as those of ASCII where its language is Chinese or Japanese.
 */
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

/**
 * Numbers stay numbers. Text is quoted; where it begins like a formula, an apostrophe goes before
 * it (OWASP, CSV injection).
 */
export function csvLine(cells: readonly (string | number)[]): string {
  const text = cells.map(cell => {
    if (typeof cell === 'number') return String(cell);
    const safe = FORMULA.test(cell) ? `'${cell}` : cell;
    return `"${safe.replaceAll('"', '""')}"`;
  });
  return `${text.join(',')}\r\n`;
}
